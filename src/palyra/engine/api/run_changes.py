"""What a run changed in the workspace, as one difference, and putting it back (L11).

Owns: joining the changes of a run's calls, showing them, and a person's undo.
Does not own: the disk (ports.drafts), a model's own undo (the tool fs.undo).
Invariants: a file that changed since is never overwritten, and then nothing is put back. The intent is recorded before
any file is touched. A run is undone by one caller at a time.
"""

import hashlib
from dataclasses import dataclass, field

import msgspec

from palyra.core.drafts.changes import decode_changes, unmatched, without_paths
from palyra.core.drafts.plan import join, reverse
from palyra.core.errors import Conflict, NotFound, Unavailable
from palyra.core.events.draft import ChangesUndoing, ChangesUndone, FileChange
from palyra.core.events.tool import ToolFinished
from palyra.core.ids import CallId, EffectId, Principal, RunId, parse_artifact_id
from palyra.core.projections.rows import RunRow
from palyra.core.redaction import Redactor
from palyra.engine.session.commands import RecordSessionEvent
from palyra.engine.session.long_texts import redact_text
from palyra.engine.session.session_loops import SessionLoops
from palyra.ports.artifacts import Artifacts
from palyra.ports.drafts import AppliedDraft, Contents, DraftConflict, DraftFailure, Drafts
from palyra.ports.journal import Journal
from palyra.ports.views import RunViews

PAGE_EVENTS = 500
RECORDED_MAX = 256  # An event has a cap. The files themselves are put back whatever their number.
ARTIFACT_BYTES_MAX = 64 * 1024 * 1024


class RunChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What a run changed. `diff` is for a person; `changes` lists each path once."""

    run_id: RunId
    changes: tuple[FileChange, ...]
    diff: str
    is_undone: bool = False


class _CallChanges(msgspec.Struct, frozen=True):
    call_id: CallId
    changes: tuple[FileChange, ...]
    undo_artifact_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChangeService:
    runs: RunViews
    journal: Journal
    artifacts: Artifacts
    drafts: Drafts
    loops: SessionLoops
    redactor: Redactor
    _active: set[RunId] = field(default_factory=set)

    async def show(self, principal: Principal, run_id: RunId, path: str | None = None) -> RunChanges:
        calls = await self._calls(await self._row(principal, run_id))
        changes = _chosen(_joined(calls), path)
        diff = await self.drafts.compare(changes, await self._contents(calls)) if changes else ""
        return RunChanges(run_id=run_id, changes=changes, diff=(await redact_text(self.redactor, diff)).text)

    async def undo(
        self, principal: Principal, run_id: RunId, path: str | None = None, *, by: Principal | None = None
    ) -> RunChanges:
        """Puts the files back as they were before the run. All of them, or those below one path."""
        row = await self._row(principal, run_id)
        calls = await self._calls(row)
        changes = _chosen(_joined(calls), path)
        if not changes:
            return RunChanges(run_id=run_id, changes=(), diff="")
        if row.ended_seq is None:
            raise Conflict("run_active", f"run {run_id} is not over; cancel it or wait, then undo")
        if run_id in self._active:
            raise Conflict("undo_active", f"run {run_id} is being undone by another request; look again in a moment")
        self._active.add(run_id)
        try:
            shown, named = await self.show(principal, run_id, path), tuple(call.call_id for call in calls)
            intent = ChangesUndoing(calls=named, changes=changes[:RECORDED_MAX])
            await self.loops.post(row.session_id, RecordSessionEvent(principal=by or principal, data=intent))
            backwards = tuple(reverse(change) for change in changes)
            put_back = await self._put_back(run_id, backwards, await self._contents(calls))
            changed = tuple(change for change in changes if (change.root, change.path) in put_back)
            done = ChangesUndone(calls=named, changes=changed[:RECORDED_MAX])
            await self.loops.post(row.session_id, RecordSessionEvent(principal=by or principal, data=done))
        finally:
            self._active.discard(run_id)
        return msgspec.structs.replace(shown, changes=changed, is_undone=True)

    async def _put_back(
        self, run_id: RunId, changes: tuple[FileChange, ...], contents: Contents
    ) -> frozenset[tuple[str, str]]:
        """Returns root and path of what was not back already."""
        effect_id = EffectId(hashlib.sha256(f"undo/{run_id}".encode()).hexdigest())
        unpacked = await self.drafts.unpack(effect_id, changes, contents)
        try:
            match await self.drafts.apply(effect_id, unpacked.changes):
                case AppliedDraft(carried_out=carried_out):
                    return frozenset((change.root, change.path) for change in carried_out)
                case DraftConflict(path=path):
                    message = f"{path} has changed since the run, so nothing was put back; name the paths to put back"
                    raise Conflict("changed_since", message, is_retryable=False)
                case DraftFailure(message=message):
                    raise Unavailable("undo_failed", message)
        finally:
            await self.drafts.forget(effect_id)

    async def _row(self, principal: Principal, run_id: RunId) -> RunRow:
        row = await self.runs.run(run_id, principal)
        if row is None:
            raise NotFound("run_unknown", f"there is no run {run_id}")
        return row

    async def _calls(self, row: RunRow) -> list[_CallChanges]:
        """Reads what each call of the run changed, in order."""
        found: list[_CallChanges] = []
        cursor = row.accepted_seq
        while cursor < row.seq and (page := await self.journal.read(row.session_id, cursor, PAGE_EVENTS)):
            for event in page:
                data = event.data
                is_own = event.run_id == row.id and event.seq <= row.seq
                if is_own and isinstance(data, ToolFinished) and data.changes_artifact_id is not None:
                    changes = decode_changes(await self._read(data.changes_artifact_id))
                    found.append(_CallChanges(data.call_id, changes, data.undo_artifact_id))
            cursor = page[-1].seq
        return found

    async def _contents(self, calls: list[_CallChanges]) -> Contents:
        names = [call.undo_artifact_id for call in calls if call.undo_artifact_id is not None]
        return tuple([await self._read(name) for name in names])

    async def _read(self, artifact_id: str) -> bytes:
        return await self.artifacts.get(parse_artifact_id(artifact_id), 0, ARTIFACT_BYTES_MAX)


def _joined(calls: list[_CallChanges]) -> tuple[FileChange, ...]:
    return join([change for call in calls for change in call.changes])


def _chosen(changes: tuple[FileChange, ...], path: str | None) -> tuple[FileChange, ...]:
    if path is None:
        return changes
    if unmatched(changes, (path,)):
        raise NotFound("path_unchanged", "the run changed nothing at that path")
    rest = without_paths(changes, (path,))
    return tuple(change for change in changes if change not in rest)
