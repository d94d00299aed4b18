"""Policies without a daemon: a home's files, or drafts over them, read once. Does not own: reloading (folder)."""

from collections.abc import Callable, Sequence
from pathlib import Path

from palyra.adapters.policy.cedar import CedarPolicy
from palyra.adapters.policy.folder import draft_policies


def load_draft(drafts: Sequence[Path], root: Path, now_ms: Callable[[], int] | None = None) -> CedarPolicy:
    """Returns the bundled policies and those of a home's folder as they are now, with drafts over them.

    A draft named like a file of the folder replaces it; others are added. Invalid says what is wrong with them.
    """
    return CedarPolicy(draft_policies(drafts, root), now_ms)
