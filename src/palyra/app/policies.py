"""Wires the operator's policies, beside a daemon or without one: checks, trials, changes on record.

Does not own: judging (adapters.policy).
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from palyra.adapters.policy.draft import load_draft
from palyra.adapters.policy.folder import FolderChange, PolicyFolder, draft_policies
from palyra.adapters.policy.policy_set import ParsedPolicies, PoliciesInvalid, PolicyEntry
from palyra.app import Home
from palyra.core.events.system import AdminActed
from palyra.core.ids import Principal
from palyra.ports.policy import Policy

if TYPE_CHECKING:
    from palyra.engine.engine import Engine

ACTOR = Principal("system:policy")
LOOK_EVERY_S = 0.5


class PolicyReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found: every policy there would be, or everything that is wrong."""

    ok: bool
    sha256: str = ""
    problems: tuple[str, ...] = ()
    policies: tuple[PolicyEntry, ...] = ()


def check_policies(home: Home, files: Sequence[Path]) -> PolicyReport:
    """Checks a home's policies with the files over them, as the daemon would read them."""
    try:
        parsed: ParsedPolicies = draft_policies(files, home.policies).current()
    except PoliciesInvalid as cause:
        return PolicyReport(ok=False, problems=tuple(str(problem) for problem in cause.problems))
    return PolicyReport(ok=True, sha256=parsed.sha256, policies=tuple(parsed.entries.values()))


def open_policy(home: Home, drafts: Sequence[Path] = ()) -> Policy:
    """Returns the policies of a home as they are, with drafts over them; Invalid says what is wrong with them."""
    return load_draft(drafts, home.policies)


def record_changes(folder: PolicyFolder, engine: "Engine") -> None:
    """Records each set of policies that is adopted or refused on the daemon's tape, also the one found at the start."""
    loop = asyncio.get_running_loop()

    def note(change: FolderChange) -> None:
        act = AdminActed(action=change.action, target=change.sha256, detail=change.detail)
        loop.call_soon_threadsafe(engine.note, ACTOR, act)

    folder.on_change = note
    if folder.state() != "ok":
        note(FolderChange("policy.rejected", folder.current().sha256, folder.state()))


async def watch(folder: PolicyFolder) -> None:
    """Reads changed files even if nothing is judged, so that the first call after a change meets the new policies."""
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        folder.current()
