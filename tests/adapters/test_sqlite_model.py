"""The store against a model: whatever is committed, erased and reopened, it holds what a plain list would."""

import asyncio
import tempfile
from pathlib import Path

import apsw
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.adapters.store.sqlite.connection import JournalSettings
from palyra.adapters.store.sqlite.journal import SqliteJournal, open_journal
from palyra.adapters.store.sqlite.refold import rebuild_projections
from palyra.core.errors import PalyraError
from palyra.core.events import Data, Draft
from palyra.core.events.base import ErasedData
from palyra.core.ids import SessionId, is_system_stream
from palyra.ports.journal import Append, Erasure
from tests.support.examples import examples
from tests.support.journals import (
    ALICE,
    START_MS,
    FixedClock,
    FixedSigner,
    Ids,
    message_user,
    run_cycle,
    session_created,
)

SESSIONS_MAX = 4


class Say(msgspec.Struct, frozen=True):
    """Messages to some sessions in one commit; `off` is how far the expected seq is from the truth."""

    sessions: tuple[int, ...]
    texts: tuple[str, ...]
    off: int = 0


class Run(msgspec.Struct, frozen=True):
    """The first events of a run, one commit each, all at once."""

    session: int
    events_count: int


class Erase(msgspec.Struct, frozen=True):
    session: int
    seqs: tuple[int, ...] | None


class Reopen(msgspec.Struct, frozen=True):
    is_exclusive: bool


class Checkpoint(msgspec.Struct, frozen=True):
    pass


Step = Say | Run | Erase | Reopen | Checkpoint

_session = st.integers(0, SESSIONS_MAX - 1)
_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_steps = st.lists(
    st.one_of(
        st.builds(
            Say,
            st.lists(_session, min_size=1, max_size=3).map(tuple),
            st.lists(_text, max_size=3).map(tuple),
            st.sampled_from([0, 0, 0, 1, -1]),
        ),
        st.builds(Run, _session, st.integers(1, 13)),
        st.builds(Erase, _session, st.none() | st.lists(st.integers(1, 20), max_size=4).map(tuple)),
        st.builds(Reopen, st.booleans()),
        st.builds(Checkpoint),
    ),
    max_size=12,
)


class Model:
    """Tapes as lists, and whether a session's last run is over."""

    def __init__(self) -> None:
        ids = Ids()
        self.ids = ids
        self.sessions = [ids.session() for _ in range(SESSIONS_MAX)]
        self.tapes: dict[SessionId, list[Data | ErasedData]] = {session: [] for session in self.sessions}
        self.is_busy = dict.fromkeys(self.sessions, False)

    def record(self, session: SessionId, drafts: list[Draft]) -> None:
        self.tapes[session] += [draft.data for draft in drafts]


class Trial:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._model = Model()
        self._journal = self._open(is_exclusive=False)

    async def run(self, steps: list[Step]) -> None:
        for step in steps:
            await self._perform(step)
        await self._compare()
        await self._journal.close()
        connection = apsw.Connection(str(self._path))
        assert rebuild_projections(connection) == 0
        connection.close()

    async def _perform(self, step: Step) -> None:
        match step:
            case Say():
                await self._say(step)
            case Run():
                await self._run(step)
            case Erase():
                await self._erase(step)
            case Reopen(is_exclusive=is_exclusive):
                await self._journal.close()
                self._journal = self._open(is_exclusive)
                await self._compare()
            case Checkpoint():
                await self._journal.checkpoint()

    async def _say(self, step: Say) -> None:
        lengths = {session: len(tape) for session, tape in self._model.tapes.items()}
        appends, said = [], []
        for number in step.sessions:
            session = self._model.sessions[number]
            drafts = [message_user(text) for text in step.texts]
            if lengths[session] == 0:
                drafts.insert(0, session_created(label="label"))
            appends.append(Append(session, max(0, lengths[session] + step.off), tuple(drafts)))
            said.append((session, drafts))
            lengths[session] += len(drafts)
        is_right = all(
            append.expected_seq == expected for append, expected in zip(appends, self._expected(said), strict=True)
        )
        try:
            await self._journal.commit(appends)
            assert is_right
        except PalyraError as refusal:
            assert refusal.code == "seq_stale"
            assert not is_right
            return
        for session, drafts in said:
            self._model.record(session, drafts)

    def _expected(self, said: list[tuple[SessionId, list[Draft]]]) -> list[int]:
        lengths = {session: len(tape) for session, tape in self._model.tapes.items()}
        expected = []
        for session, drafts in said:
            expected.append(lengths[session])
            lengths[session] += len(drafts)
        return expected

    async def _run(self, step: Run) -> None:
        session = self._model.sessions[step.session]
        length = len(self._model.tapes[session])
        if length == 0 or self._model.is_busy[session]:
            return
        drafts = list(run_cycle(self._model.ids.run()))[: step.events_count]
        if isinstance(self._model.tapes[session][0], ErasedData):
            with pytest.raises(PalyraError, match="session_erased"):
                await self._journal.commit([Append(session, length, (drafts[0],))])
            return
        commits = [self._journal.commit([Append(session, length + n, (draft,))]) for n, draft in enumerate(drafts)]
        await asyncio.gather(*commits)
        self._model.record(session, drafts)
        self._model.is_busy[session] = step.events_count < 13

    async def _erase(self, step: Erase) -> None:
        session = self._model.sessions[step.session]
        tape = self._model.tapes[session]
        wanted = range(1, len(tape) + 1) if step.seqs is None else step.seqs
        is_possible = bool(tape) and not self._model.is_busy[session] and all(1 <= seq <= len(tape) for seq in wanted)
        erasure = Erasure(stream=session, seqs=step.seqs, reason="asked", actor=ALICE, at_ms=START_MS)
        try:
            await self._journal.erase([erasure])
            assert is_possible
        except PalyraError as refusal:
            assert refusal.code in {"run_active", "session_unknown", "seq_unknown"}
            assert not is_possible
            return
        for seq in wanted:
            tape[seq - 1] = ErasedData(erased="asked")

    async def _compare(self) -> None:
        for session, tape in self._model.tapes.items():
            events = await self._journal.read(session, 0, 1_000)
            assert [event.data for event in events] == tape
            assert [event.seq for event in events] == list(range(1, len(tape) + 1))
            head = await self._journal.head(session)
            assert (head.seq if head else 0) == len(tape)
        everything = await self._journal.read_all(0, 10_000)
        assert [event.position for event in everything] == list(range(1, len(everything) + 1))
        assert sum(not is_system_stream(event.stream) for event in everything) == sum(
            map(len, self._model.tapes.values())
        )

    def _open(self, is_exclusive: bool) -> SqliteJournal:
        settings = JournalSettings(path=self._path, durability="normal", is_exclusive=is_exclusive)
        return open_journal(settings, FixedSigner(), FixedClock())


@settings(max_examples=examples(20))
@given(_steps)
def test_the_store_holds_what_a_plain_list_would(steps: list[Step]) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            await Trial(Path(folder) / "journal.db").run(steps)

    asyncio.run(run())
