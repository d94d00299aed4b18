"""Changes managed blocks in documents of a workspace, such as MEMORY.md, and in a principal's own notes in the home.

Owns: the order of the steps of a change, the versions that are kept, and the taint of the new bytes (L8).
Does not own: blocks in a text (core.managed_blocks), files (ports.workspace_documents), what is worth writing.
A change is recorded on the session's tape before the file changes, with the text before it as an artifact, and again
afterwards. After a crash the file is the old one or the new one, and applying the same again gives the new one.
Invariants: bytes that come from tainted ones, or from tainted lines, are known as tainted before they exist. Lines are
redacted (L5). A block that a person edited is a conflict, and nothing is written.
"""

import asyncio
import hashlib
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from palyra.core.errors import Conflict, Corrupt, Invalid, Unauthorized
from palyra.core.events.session import ChangePhase, DocumentChanged
from palyra.core.events.tool import FileBytes
from palyra.core.ids import ArtifactId, Principal, SessionId
from palyra.core.learning.documents import notes_folder
from palyra.core.managed_blocks import BlockApplied, BlockConflict, BlockUnchanged, apply_block
from palyra.core.projections.provenance import full_path
from palyra.core.redaction import Redactor
from palyra.core.taint import SOURCES_MAX, label
from palyra.core.trust import Trust
from palyra.core.writes import LinkArtifact, Write
from palyra.engine.agents import AgentDirectory
from palyra.engine.api.sessions import SessionService
from palyra.engine.session.commands import RecordSessionEvent
from palyra.engine.session.session_loops import SessionLoops
from palyra.ports.artifacts import Artifacts
from palyra.ports.clock import Clock
from palyra.ports.views import ProvenanceViews
from palyra.ports.workspace_documents import DocumentFiles, FoundDocument

ATTEMPTS_MAX = 3  # A file that a person changes at the same moment is read again so many times.
SUFFIX = ".md"  # The marks are comments of Markdown. In another format they would be content.
MEDIA_TYPE = "text/markdown"

_sources = msgspec.json.Decoder(tuple[str, ...])


class BlockChange(msgspec.Struct, frozen=True, kw_only=True):
    """What is to stand in a block, and in whose session that was found.

    `root` is a directory of the agent's workspace, or the folder of all notes. `taint` names the sources of the lines;
    whoever changes a document has to say so, because its bytes are read as instructions later.
    """

    principal: Principal
    session_id: SessionId
    root: str
    path: str
    name: str
    lines: tuple[str, ...]
    taint: tuple[str, ...]


class BlockWritten(msgspec.Struct, frozen=True, kw_only=True):
    """`artifact_id` is the whole text before the change; None if there was no file."""

    revision: int
    before_sha256: str | None
    after_sha256: str
    artifact_id: ArtifactId | None


BlockOutcome = BlockWritten | BlockUnchanged | BlockConflict


def _no_locks() -> "WeakValueDictionary[str, asyncio.Lock]":
    return WeakValueDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceDocuments:
    sessions: SessionService
    agents: AgentDirectory
    loops: SessionLoops
    files: DocumentFiles
    artifacts: Artifacts
    provenance: ProvenanceViews
    redactor: Redactor
    clock: Clock
    notes_root: str = ""
    locks: "WeakValueDictionary[str, asyncio.Lock]" = field(default_factory=_no_locks)

    async def apply_managed_block(self, change: BlockChange) -> BlockOutcome:
        """Returns once the change is durable, or says why nothing was written."""
        session = await self.sessions.get(change.principal, change.session_id)
        is_own_notes = change.root == self.notes_root and change.path.startswith(f"{notes_folder(change.principal)}/")
        if not is_own_notes and change.root not in self.agents.of_run(session.agent).workspace:
            raise Unauthorized("outside_workspace", f"{change.root} is no directory of the agent's workspace")
        if not change.path.endswith(SUFFIX):
            raise Invalid("not_markdown", f"only documents whose name ends in {SUFFIX} have managed blocks")
        change = replace(change, lines=self._redacted(change.lines))
        found = await self.files.read(change.root, change.path)
        lock = self.locks.setdefault(f"{found.root}/{found.path}", asyncio.Lock())
        async with lock:
            for _ in range(ATTEMPTS_MAX):
                outcome = await self._attempt(change)
                if outcome is not None:
                    return outcome
        raise Conflict("document_changed", f"{change.path} changed again and again meanwhile; try later")

    async def _attempt(self, change: BlockChange) -> BlockOutcome | None:
        """Returns None if the file changed meanwhile."""
        found = await self.files.read(change.root, change.path)
        applied = apply_block(found.text or "", change.name, change.lines)
        if not isinstance(applied, BlockApplied):
            return applied
        begun, writes = await self._begun(change, found, applied)
        await self._record(change, begun, writes)
        try:
            await self.files.replace(change.root, change.path, applied.text, begun.before_sha256)
        except Conflict:
            await self._record(change, replace(begun, phase=ChangePhase.REFUSED))
            return None
        await self._record(change, replace(begun, phase=ChangePhase.DONE))
        return BlockWritten(
            revision=applied.revision,
            before_sha256=begun.before_sha256,
            after_sha256=begun.written.sha256,
            artifact_id=None if begun.artifact_id is None else ArtifactId(begun.artifact_id),
        )

    async def _begun(
        self, change: BlockChange, found: FoundDocument, applied: BlockApplied
    ) -> tuple[DocumentChanged, tuple[Write, ...]]:
        """Returns the intent, and the link that keeps the text before it."""
        taint = set(change.taint)
        before_sha256: str | None = None
        artifact_id: ArtifactId | None = None
        writes: tuple[Write, ...] = ()
        if found.text is not None:
            body = found.text.encode()
            before_sha256 = hashlib.sha256(body).hexdigest()
            old = await self._taint_of(FileBytes(root=found.root, path=found.path, sha256=before_sha256))
            taint |= old
            artifact_id = await self.artifacts.put(body)
            trust, source = (Trust.EXTERNAL, label("file", found.path)) if old else (Trust.LOCAL, None)
            now_ms = self.clock.now_ms()
            writes = (LinkArtifact(artifact_id, change.session_id, len(body), MEDIA_TYPE, now_ms, trust, source),)
        after_sha256 = hashlib.sha256(applied.text.encode()).hexdigest()
        sources = tuple(sorted(taint))[:SOURCES_MAX]
        begun = DocumentChanged(
            phase=ChangePhase.BEGUN,
            block=change.name,
            revision=applied.revision,
            written=FileBytes(root=found.root, path=found.path, sha256=after_sha256, taint=sources),
            before_sha256=before_sha256,
            artifact_id=artifact_id,
        )
        return begun, writes

    async def _taint_of(self, file: FileBytes) -> set[str]:
        row = await self.provenance.tainted_file(full_path(file), file.sha256)
        if row is None:
            return set()
        try:
            return set(_sources.decode(row.sources))
        except msgspec.DecodeError as cause:
            raise Corrupt("row_unreadable", "a files row is damaged; rebuild the projections") from cause

    async def _record(self, change: BlockChange, data: DocumentChanged, writes: tuple[Write, ...] = ()) -> None:
        await self.loops.post(
            change.session_id, RecordSessionEvent(principal=change.principal, data=data, writes=writes)
        )

    def _redacted(self, lines: tuple[str, ...]) -> tuple[str, ...]:
        """The lines are redacted together, because a key may go over several."""
        if any("\n" in line for line in lines):
            raise Invalid("block_line_invalid", "a line of a managed block holds no line end and no mark of a block")
        return tuple(self.redactor.text("\n".join(lines)).text.split("\n")) if lines else ()
