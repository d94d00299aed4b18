"""The SQLite journal: connects the writer, the reads and the views of one file.

Does not own: any SQL.
Invariant: a call returns only what is durable, and a commit's events only after its fsync.
"""

from collections.abc import Sequence

from palyra.adapters.store.commit_preparation import prepare_commit
from palyra.adapters.store.sqlite.checkpoints import last_signed_at_ms, sign_heads
from palyra.adapters.store.sqlite.connection import JournalSettings
from palyra.adapters.store.sqlite.empty_table import EmptyTable
from palyra.adapters.store.sqlite.erase import erase
from palyra.adapters.store.sqlite.memory_search import SqliteMemorySearch
from palyra.adapters.store.sqlite.reads import Reads, ThreadReads, WriterReads
from palyra.adapters.store.sqlite.recorder import Recorder
from palyra.adapters.store.sqlite.tape_reads import read_head, read_journal, read_tape, read_tape_end
from palyra.adapters.store.sqlite.upkeep import SqliteUpkeep
from palyra.adapters.store.sqlite.views_approvals import SqliteApprovals
from palyra.adapters.store.sqlite.views_candidates import SqliteLearning
from palyra.adapters.store.sqlite.views_channels import SqliteChannels, SqlitePairing, SqlitePositions
from palyra.adapters.store.sqlite.views_incidents import SqliteIncidents
from palyra.adapters.store.sqlite.views_jobs import SqliteJobs
from palyra.adapters.store.sqlite.views_marks import SqliteMarks
from palyra.adapters.store.sqlite.views_memory import SqliteMemory
from palyra.adapters.store.sqlite.views_outbox import SqliteOutbox
from palyra.adapters.store.sqlite.views_provenance import SqliteProvenance
from palyra.adapters.store.sqlite.views_routines import SqliteRoutines
from palyra.adapters.store.sqlite.views_runs import SqliteRuns
from palyra.adapters.store.sqlite.views_search import SqliteSearch
from palyra.adapters.store.sqlite.views_sessions import SqliteSessions
from palyra.adapters.store.sqlite.views_state import SqliteState
from palyra.adapters.store.sqlite.views_usage import SqliteUsage
from palyra.adapters.store.sqlite.views_workload import SqliteWorkload
from palyra.adapters.store.sqlite.writer import Writer
from palyra.core.events import Event
from palyra.core.events.system import Head
from palyra.core.ids import StreamId, derive_node_id, system_stream
from palyra.core.writes import Fence, PutMemory, Write
from palyra.ports.clock import Clock
from palyra.ports.journal import Append, Erasure
from palyra.ports.signer import Signer


def open_journal(settings: JournalSettings, signer: Signer, clock: Clock) -> "SqliteJournal":
    """Opens the journal for writing, and creates it if new.

    If this raises Unavailable or Corrupt, nothing stays open or locked.
    """
    return SqliteJournal(settings, signer, clock)


class SqliteJournal:
    """`signed_at_ms` is when this node last signed a checkpoint here, before it was opened; 0 if never."""

    def __init__(self, settings: JournalSettings, signer: Signer, clock: Clock) -> None:
        recorder = Recorder(settings)
        self._system_tape = system_stream(derive_node_id(signer.public_key))
        self.signed_at_ms = last_signed_at_ms(recorder.connection, self._system_tape)
        self._writer = Writer(recorder)
        self._reads: Reads = WriterReads(self._writer) if settings.is_exclusive else ThreadReads(settings)
        self._signer = signer
        self._clock = clock
        self.sessions = SqliteSessions(self._reads)
        self.runs = SqliteRuns(self._reads)
        self.approvals = SqliteApprovals(self._reads)
        self.state = SqliteState(self._reads)
        self.usage = SqliteUsage(self._reads)
        self.provenance = SqliteProvenance(self._reads)
        self.search = SqliteSearch(self._reads)
        self.jobs = SqliteJobs(self._reads)
        self.routines = SqliteRoutines(self._reads)
        self.upkeep = SqliteUpkeep(self._writer, settings.path)
        self.incidents = SqliteIncidents(self._reads)
        self.marks = SqliteMarks(self._reads)
        self._memory_items = EmptyTable(self._reads, "memory_items")
        self.memory = SqliteMemory(self._reads, self._memory_items)
        self.memory_search = SqliteMemorySearch(self._reads, self._memory_items)
        self.learning = SqliteLearning(self._reads)
        self.workload = SqliteWorkload(self._reads)
        self.channels = SqliteChannels(self._reads)
        self.positions = SqlitePositions(self._reads)
        self.pairing = SqlitePairing(self._reads)
        self.outbox = SqliteOutbox(self._reads)

    @property
    def is_open(self) -> bool:
        return self._writer.is_open

    async def commit(
        self, appends: Sequence[Append], writes: Sequence[Write] = (), fence: Fence | None = None
    ) -> tuple[Event, ...]:
        commit = prepare_commit(appends, writes, fence)
        for append in appends:
            self.provenance.expect(append.drafts)
            self.approvals.expect(append.drafts)
        if any(isinstance(write, PutMemory) for write in writes):
            self._memory_items.expect_row()
        return await self._writer.commit(commit)

    async def read(self, stream: StreamId, after_seq: int, limit: int) -> tuple[Event, ...]:
        return await self._reads.ask(lambda connection: read_tape(connection, stream, after_seq, limit))

    async def read_last(self, stream: StreamId, limit: int) -> tuple[Event, ...]:
        return await self._reads.ask(lambda connection: read_tape_end(connection, stream, limit))

    async def read_all(self, after_position: int, limit: int) -> tuple[Event, ...]:
        return await self._reads.ask(lambda connection: read_journal(connection, after_position, limit))

    async def head(self, stream: StreamId) -> Head | None:
        return await self._reads.ask(lambda connection: read_head(connection, stream))

    async def erase(self, erasures: Sequence[Erasure]) -> tuple[Event, ...]:
        return await self._writer.perform(lambda recorder: erase(recorder, self._system_tape, erasures))

    async def checkpoint(self) -> tuple[Event, ...]:
        return await self._writer.perform(self._checkpoint)

    async def vacuum(self) -> None:
        """Gives the space of erased text back to the disk. Commits wait for as long as copying the file takes."""
        await self._writer.perform(Recorder.vacuum)

    async def close(self) -> None:
        await self._reads.close()
        await self._writer.stop(self._sign_last)

    def _sign_last(self, recorder: Recorder) -> tuple[Event, ...]:
        """Signs what there is. A journal in which nothing was recorded stays empty."""
        return self._checkpoint(recorder) if recorder.cache.numbers().position else ()

    def _checkpoint(self, recorder: Recorder) -> tuple[Event, ...]:
        recorder.reopen_broken()
        recorder.retry_empty_log()
        return sign_heads(recorder, self._signer, self._clock.now_ms())
