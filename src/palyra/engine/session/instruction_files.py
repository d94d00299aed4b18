"""Reads the instruction files of an agent's workspace (AGENTS.md and the like) into the session's context.

Owns: when they are read, their limits, what of them is new, and their trust (L8). So too for a principal's own notes,
which a run reads only in a session of its own principal (L11). Of a workspace's file no block is read but a shared one.
Does not own: reading a file (ports.references), judging (reference_judge), showing them (core.context.documents).
Each file is judged as a call of fs.read that the session's owner makes, whichever tools the agent has. What is new joins
the commit that assembles the context: a crash before it leaves nothing, and the next start reads again.
Invariants: a file that is as it was recorded leaves no event. Reading that fails or takes too long changes nothing, and
never ends a run. A text is redacted before it is cut, so that no cut leaves half a secret (L5).
"""

import asyncio
import hashlib
import secrets
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import structlog
from msgspec.structs import replace

from palyra.core.agents import AgentSpec
from palyra.core.context.documents import DOCUMENT_BYTES_MAX, DOCUMENTS_MAX, TOTAL_BYTES_MAX, WindowDocument
from palyra.core.errors import NotFound, PalyraError, Unavailable
from palyra.core.events import Draft
from palyra.core.events.model import DocumentRead
from palyra.core.events.tool import FileBytes
from palyra.core.fences import FENCE_ID_LENGTH
from palyra.core.ids import RunId
from palyra.core.learning.documents import NOTES, SHARED_BLOCKS, notes_path
from palyra.core.managed_blocks import without_blocks
from palyra.core.projections.provenance import full_path
from palyra.core.redaction import Redactor, Secret
from palyra.core.references.calls import READ, read_call
from palyra.core.references.caps import ROOM_MIN, cut_text
from palyra.core.run.state import Run
from palyra.core.spelling import strip_unseen
from palyra.core.taint import label, labels
from palyra.core.trust import Trust, lowest
from palyra.core.writes import SealSecret, Write
from palyra.engine.session.drafts import ENGINE
from palyra.engine.session.pending_commit import SessionState
from palyra.engine.session.reference_judge import ReferenceJudge, ReferenceSender
from palyra.ports.clock import Clock
from palyra.ports.references import FileReader, ReadScope, ReferenceText, TextPart
from palyra.ports.sealer import Sealer
from palyra.ports.views import ProvenanceViews
from palyra.ports.workspace_documents import DocumentFiles

LIMIT_S = 3.0  # The session's other commands wait meanwhile. Four small files take milliseconds.
PAUSE_MS = 60_000  # A thread that hangs cannot be ended. A workspace that hung is left alone for so long.
PATHS_MAX = 64  # So many paths are tried, whatever the number of roots and names.
REDACTION_MARGIN = 8_000  # So many characters behind the cut are read too: a secret across the cut is then seen whole.

_SHARED = frozenset(SHARED_BLOCKS.values())

log = structlog.get_logger()

Changes = tuple[tuple[Draft, ...], tuple[Write, ...]]


class _SeenFile(msgspec.Struct, frozen=True, kw_only=True):
    data: DocumentRead
    secrets: tuple[Secret, ...]


class _Look(NamedTuple):
    """`unknown` are files of which nobody knows at the moment what they hold."""

    files: tuple[_SeenFile, ...]
    unknown: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionFiles:
    judge: ReferenceJudge
    files: FileReader
    provenance: ProvenanceViews
    redactor: Redactor
    sealer: Sealer
    clock: Clock
    notes: DocumentFiles
    notes_root: str = ""
    limit_s: float = LIMIT_S
    paused_until_ms: dict[tuple[str, ...], int] = field(default_factory=dict)

    async def changes(self, state: SessionState, run: Run, agent: AgentSpec) -> Changes:
        """Returns what differs from the context's documents, before a run's first model call and when they are stale.

        The secrets in every file that was read are sealed for this run, as those of a tool's output are.
        """
        known = state.window.documents
        is_due = run.loop.turns_count == 0 or state.window.has_stale_documents
        paths = _paths(agent)
        notes = self._notes_of(state, run, agent)
        if not is_due or not (paths or known or notes):
            return (), ()
        seen = await self._look(paths, notes, _sender(state, run, agent))
        if seen is None:
            has_others = not notes and any(each.path == NOTES for each in known)
            return ((self._draft(_gone(NOTES), run),) if has_others else ()), ()
        fresh = [each.data for each in seen.files if not _is_known(each.data, known)]
        still = {each.data.path for each in seen.files} | seen.unknown
        gone = [_gone(each.path) for each in known if each.path not in still]
        drafts = tuple(self._draft(data, run) for data in (*gone, *fresh))
        return drafts, self._seals(seen.files, run.run_id)

    def _draft(self, data: DocumentRead, run: Run) -> Draft:
        return Draft(data=data, actor=ENGINE, trust=data.trust, at_ms=self.clock.now_ms(), run_id=run.run_id)

    def _notes_of(self, state: SessionState, run: Run, agent: AgentSpec) -> str:
        """Returns where the notes of the run lie: in a session of somebody else it has none."""
        is_own = run.principal == state.owner and bool(self.notes_root and agent.workspace)
        return notes_path(state.owner, agent.workspace[0]) if is_own else ""

    async def _look(self, paths: tuple[str, ...], notes: str, sender: ReferenceSender) -> _Look | None:
        """Returns None if reading broke or took too long."""
        workspace, now_ms = sender.agent.workspace, self.clock.now_ms()
        if now_ms < self.paused_until_ms.get(workspace, now_ms):
            return None
        task = asyncio.create_task(self._read_all(paths, notes, sender), name="instruction files")
        try:
            await asyncio.wait({task}, timeout=self.limit_s)
        finally:
            task.cancel()
        if not task.done() or task.cancelled():
            self.paused_until_ms[workspace] = now_ms + PAUSE_MS
            log.warning("instruction_files_slow", agent=sender.agent.name, limit_s=self.limit_s)
            return None
        error = task.exception()
        if error is not None:
            log.error("instruction_files_broken", agent=sender.agent.name, exc_info=error)
            return None
        return task.result()

    async def _read_all(self, paths: tuple[str, ...], notes: str, sender: ReferenceSender) -> _Look:
        files: dict[str, _SeenFile] = {}
        unknown: set[str] = set()
        left_bytes = TOTAL_BYTES_MAX
        own = await self._read_notes(notes) if notes else None
        if own is not None:
            files[own.data.sha256] = own
            left_bytes -= len(own.data.text.encode())
        # Most of the names are of no file, so one look at all of them spares a judgement and a read for each.
        for path in await self.files.find_files(paths, sender.agent.workspace):
            try:
                seen = await self._read(path, sender, min(left_bytes, DOCUMENT_BYTES_MAX))
            except Unavailable:
                unknown.add(path)
                continue
            if seen is None or seen.data.sha256 in files or len(files) == DOCUMENTS_MAX:
                continue  # Many projects keep the same bytes under two names.
            files[seen.data.sha256] = seen
            left_bytes -= len(seen.data.text.encode())
        return _Look(tuple(files.values()), frozenset(unknown))

    async def _read(self, path: str, sender: ReferenceSender, room_bytes: int) -> _SeenFile | None:
        verdict = self.judge.judge(read_call(path), sender)
        if verdict.code is not None:
            log.info("instruction_file_refused", path=path, code=verdict.code, reason=verdict.reason)
            return None
        scope = ReadScope(
            workspace=sender.agent.workspace,
            chars_max=DOCUMENT_BYTES_MAX + REDACTION_MARGIN,
            may_read=lambda _path: False,
        )
        try:
            found = await self.files.read_file(path, scope)
        except (NotFound, Unavailable) as error:
            if isinstance(error, NotFound):
                return None
            raise
        except PalyraError as error:
            log.warning("instruction_file_unread", path=path, code=error.code, reason=error.message)
            return None
        return await self._compose(path, found, lowest((verdict.trust, Trust.LOCAL)), room_bytes)

    async def _read_notes(self, path: str) -> _SeenFile | None:
        try:
            found = await self.notes.read(self.notes_root, path)
        except PalyraError as error:
            log.warning("notes_unread", path=path, code=error.code, reason=error.message)
            return None
        if not found.text:
            return None
        sha256 = hashlib.sha256(found.text.encode()).hexdigest()
        chars_max = DOCUMENT_BYTES_MAX + REDACTION_MARGIN
        part = TextPart(title="", text=found.text[:chars_max], has_more=len(found.text) > chars_max)
        read = ReferenceText(parts=(part,), read=(FileBytes(root=found.root, path=found.path, sha256=sha256),))
        return await self._compose(NOTES, read, Trust.LOCAL, DOCUMENT_BYTES_MAX)

    async def _compose(self, path: str, found: ReferenceText, trust: Trust, room_bytes: int) -> _SeenFile:
        part, file = found.parts[0], found.read[0]
        source: str | None = None
        if await self.provenance.tainted_file(full_path(file), file.sha256) is not None:
            trust, source = Trust.EXTERNAL, label("file", file.path)
        # Redacting takes milliseconds, in which other sessions go on.
        shown = part.text if path == NOTES else without_blocks(part.text, _SHARED)
        redacted = await asyncio.to_thread(self.redactor.text, strip_unseen(shown))
        text, is_cut = _cut(redacted.text, room_bytes, has_more=part.has_more)
        data = DocumentRead(
            path=path,
            sha256=file.sha256,
            trust=trust,
            chars=len(text),
            text=text,
            is_cut=is_cut,
            source=source,
            # The fence is drawn after the content exists, so that no content can hold it.
            fence_id=secrets.token_hex(FENCE_ID_LENGTH // 2),
        )
        return _SeenFile(data=data, secrets=redacted.secrets)

    def _seals(self, files: tuple[_SeenFile, ...], run_id: RunId) -> tuple[Write, ...]:
        by_id = {secret.id: secret for each in files for secret in each.secrets}
        context = run_id.encode()
        return tuple(
            SealSecret(run_id, secret.id, self.sealer.seal(secret.value.encode(), context)) for secret in by_id.values()
        )


def _paths(agent: AgentSpec) -> tuple[str, ...]:
    """Returns the files to look for. Those of the first root are named as file tools name them, the others in full."""
    first, *others = agent.workspace or ("",)
    if not first:
        return ()
    roots = ("", *(f"{root.rstrip('/')}/" for root in others if root != first))
    return tuple(f"{root}{name}" for root in roots for name in agent.instruction_files)[:PATHS_MAX]


def _sender(state: SessionState, run: Run, agent: AgentSpec) -> ReferenceSender:
    return ReferenceSender(
        principal=run.principal,
        agent=replace(agent, tools=(READ,)),
        session_id=state.session_id,
        trust=Trust.OPERATOR,
        taint=labels(state.taint),
        channel=run.origin,
    )


def _is_known(data: DocumentRead, known: tuple[WindowDocument, ...]) -> bool:
    return any(
        (each.path, each.sha256, each.chars, each.is_cut, each.trust, each.source)
        == (data.path, data.sha256, data.chars, data.is_cut, data.trust, data.source)
        for each in known
    )


def _gone(path: str) -> DocumentRead:
    return DocumentRead(path=path, sha256="", trust=Trust.SYSTEM, is_gone=True)


def _cut(text: str, bytes_max: int, *, has_more: bool) -> tuple[str, bool]:
    """Cuts to so many bytes of UTF-8, so that a reader sees that something is left out."""
    if len(text.encode()) <= bytes_max and not has_more:
        return text, False
    if bytes_max < ROOM_MIN:
        return "[Left out: the files together are too long. Read this one with fs.read.]", True
    return cut_text(text, len(text.encode()[:bytes_max].decode(errors="ignore")), has_more=True)
