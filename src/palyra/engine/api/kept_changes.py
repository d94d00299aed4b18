"""What the layer of a run's session holds, and applying it to the workspace because a person says so (L11).

Owns: showing it, which of it a person chose, the record of that act.
Does not own: what comes into the layer (engine.session.draft_gate), the disk (ports.drafts).
Invariants: the intent is recorded before any file is touched. Nothing is applied while a run of the session goes on,
because its commands see the layer.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from palyra.core.drafts.changes import digest_changes, named_changes, place_of, unmatched
from palyra.core.drafts.review import folders_above, is_new
from palyra.core.errors import Conflict, NotFound, Unavailable
from palyra.core.events.draft import ChangesKeeping, ChangesKept, FileChange
from palyra.core.ids import EffectId, Principal, RunId, SessionId
from palyra.core.projections.rows import RunRow
from palyra.core.redaction import Redactor
from palyra.core.run.states import RunState
from palyra.engine.session.commands import RecordSessionEvent
from palyra.engine.session.long_changes import beside_loop
from palyra.engine.session.long_texts import redact_text
from palyra.engine.session.session_loops import SessionLoops
from palyra.ports.drafts import AppliedDraft, DraftConflict, DraftFailure, Drafts
from palyra.ports.views import RunViews

RECORDED_MAX = 256  # An event has a cap. All of the files are applied, whatever their number.
PAGE_RUNS = 100
_UNFINISHED = frozenset({RunState.ACCEPTED, RunState.IN_PROGRESS, RunState.WAITING})


class KeptChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What the layer of a session would change in the workspace. `diff` is for a person, `digest` names all it holds."""

    session_id: SessionId
    digest: str
    changes: tuple[FileChange, ...]
    diff: str
    is_applied: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptChangeService:
    runs: RunViews
    drafts: Drafts
    loops: SessionLoops
    redactor: Redactor

    async def show(self, principal: Principal, run_id: RunId, paths: Sequence[str] = ()) -> KeptChanges:
        row = await self._row(principal, run_id)
        held = (await self.drafts.kept(row.session_id)).changes
        changes = _chosen(held, paths)
        diff = await self.drafts.preview_kept(row.session_id, changes) if changes else ""
        shown = (await redact_text(self.redactor, diff)).text
        digest = await beside_loop(digest_changes, held)
        return KeptChanges(session_id=row.session_id, digest=digest, changes=changes, diff=shown)

    async def keep(
        self,
        principal: Principal,
        run_id: RunId,
        paths: Sequence[str] = (),
        *,
        digest: str | None = None,
        by: Principal | None = None,
    ) -> KeptChanges:
        """Applies what the layer holds, all of it or what lies at and below these paths.

        With the digest that was shown, it is applied only if the layer is still as it was shown.
        """
        row = await self._row(principal, run_id)
        shown = await self.show(principal, run_id, paths)
        if digest is not None and digest != shown.digest:
            raise Conflict("changed_since", "the session's layer has changed since it was shown; look again")
        if not shown.changes:
            return shown
        await self._require_idle(row.session_id)
        recorded, count = shown.changes[:RECORDED_MAX], len(shown.changes)
        actor = by or principal
        intent = ChangesKeeping(changes=recorded, changes_count=count)
        await self.loops.post(row.session_id, RecordSessionEvent(principal=actor, data=intent))
        effect_id = EffectId(hashlib.sha256(f"keep/{row.session_id}".encode()).hexdigest())
        match await self.drafts.take_kept(effect_id, row.session_id, shown.changes):
            case DraftConflict(path=path):
                raise Conflict("changed_since", f"{path} has just changed, so nothing was applied; look again")
            case DraftFailure(message=message):
                raise Unavailable("keep_failed", message)
            case AppliedDraft():
                pass
        done = ChangesKept(changes=recorded, changes_count=count)
        await self.loops.post(row.session_id, RecordSessionEvent(principal=actor, data=done))
        return msgspec.structs.replace(shown, is_applied=True)

    async def _require_idle(self, session_id: SessionId) -> None:
        after = ""
        while rows := await self.runs.runs_in(_UNFINISHED, after, PAGE_RUNS):
            after = rows[-1].id
            busy = next((row.id for row in rows if row.session_id == session_id), None)
            if busy is not None:
                raise Conflict(
                    "run_active", f"run {busy} is not over, and sees the layer; cancel it or wait, then keep"
                )

    async def _row(self, principal: Principal, run_id: RunId) -> RunRow:
        row = await self.runs.run(run_id, principal)
        if row is None:
            raise NotFound("run_unknown", f"there is no run {run_id}")
        return row


def _chosen(changes: tuple[FileChange, ...], paths: Sequence[str]) -> tuple[FileChange, ...]:
    """Returns what the paths name, with the new folders that it needs."""
    if not paths:
        return changes
    unknown = unmatched(changes, paths)
    if unknown:
        raise NotFound(
            "path_unchanged", "the session's layer holds nothing at that path; palyra runs keep shows all that it holds"
        )
    chosen = {place_of(each) for each in named_changes(changes, paths)}
    needed = {(root, folder) for root, path in chosen for folder in folders_above(path)}
    return tuple(each for each in changes if place_of(each) in chosen or (is_new(each) and place_of(each) in needed))
