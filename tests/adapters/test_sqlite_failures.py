"""A disk that fails under a running journal: the commits it hits fail whole, and the rest goes on."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from palyra.adapters.store.commit_preparation import prepare_commit
from palyra.adapters.store.sqlite.connection import JournalSettings
from palyra.adapters.store.sqlite.journal import SqliteJournal, open_journal
from palyra.core.commit.model import Commit, PreparedAppend
from palyra.core.errors import Conflict, Corrupt, Invalid, PalyraError, Unavailable
from palyra.core.events import Event
from palyra.core.ids import SessionId
from palyra.core.writes import ClearHeartbeat
from palyra.ports.journal import Append
from tests.crash.disk import Disk, Effect, Fault
from tests.crash.faulty_vfs import registered
from tests.support.journals import FixedClock, FixedSigner, Ids, message_user, session_created
from tests.support.sqlite import change_from_outside, journal_at, ruin

pytestmark = pytest.mark.anyio


class Failing:
    """A disk that works until it is told to fail."""

    def __init__(self) -> None:
        self.disk = Disk(random.Random(1))

    def fail(self, effect: Effect, operations_count: int = 1, after: int = 0) -> None:
        first = self.disk.operation_count + after + 1
        self.disk._faults = (Fault(effect, first, first + operations_count - 1),)


@pytest.fixture
def failing(request: pytest.FixtureRequest) -> Iterator[tuple[Failing, JournalSettings]]:
    failing = Failing()
    with registered(failing.disk, request.node.name) as vfs:
        yield failing, JournalSettings(path=Path("/journal.db"), vfs=vfs, is_exclusive=True)


async def with_session(settings: JournalSettings) -> tuple[SqliteJournal, SessionId]:
    journal = open_journal(settings, FixedSigner(), FixedClock())
    session = Ids().session()
    await journal.commit([Append(session, 0, (session_created(),))])
    return journal, session


@pytest.mark.parametrize("operation", range(4))
@pytest.mark.parametrize(("effect", "code"), [(Effect.FULL, "disk_full"), (Effect.IO_ERROR, "disk_error")])
async def test_a_commit_the_disk_refused_is_unseen_and_the_next_works(
    failing: tuple[Failing, JournalSettings], effect: Effect, code: str, operation: int
) -> None:
    failures, settings = failing
    journal, session = await with_session(settings)
    failures.fail(effect, after=operation)
    outcomes: list[Event] = []
    for number in range(4):
        head = await journal.head(session)
        assert head is not None
        try:
            outcomes += await journal.commit([Append(session, head.seq, (message_user(f"{number}"),))])
        except Unavailable as error:
            assert error.code in {code, "disk_error"}
            assert await journal.head(session) == head
    assert failures.disk.fault_count == 1
    assert len(outcomes) >= 3
    assert [event.position for event in await journal.read_all(0, 10)] == list(range(1, len(outcomes) + 2))
    await journal.close()


async def test_every_commit_of_a_failed_group_is_told(failing: tuple[Failing, JournalSettings]) -> None:
    failures, settings = failing
    journal, session = await with_session(settings)
    failures.fail(Effect.IO_ERROR, 1_000)
    commits = [journal.commit([Append(session, seq, (message_user("x"),))]) for seq in range(1, 20)]
    outcomes = await asyncio.gather(*commits, return_exceptions=True)
    assert all(isinstance(outcome, PalyraError) for outcome in outcomes)
    assert len({id(outcome) for outcome in outcomes}) == len(outcomes)
    assert len(await journal.read_all(0, 10)) == 1
    failures.disk.repair()
    await journal.commit([Append(session, 1, (message_user("again"),))])
    await journal.close()


async def test_a_failed_commit_does_not_come_back_when_the_journal_is_opened_again(
    failing: tuple[Failing, JournalSettings],
) -> None:
    """A sync that failed leaves whole frames in the log; something must be written over them."""
    failures, settings = failing
    journal, session = await with_session(settings)
    for after in range(4):
        failures.fail(Effect.IO_ERROR, after=after)
        head = await journal.head(session)
        assert head is not None
        try:
            await journal.commit([Append(session, head.seq, (message_user("x"),))])
        except Unavailable:
            failures.disk.repair()
            await journal.commit([Append(session, head.seq, (message_user("y"),))])
    told = await journal.read_all(0, 100)
    await journal.close()
    journal = open_journal(settings, FixedSigner(), FixedClock())
    assert (await journal.read_all(0, 100))[: len(told)] == told
    await journal.close()


@pytest.mark.parametrize("operation", range(4))
async def test_a_commit_that_failed_last_is_not_there_after_closing(
    failing: tuple[Failing, JournalSettings], operation: int
) -> None:
    """Nothing follows it that would be written over its frames, unless closing does that."""
    failures, settings = failing
    journal, session = await with_session(settings)
    failures.fail(Effect.IO_ERROR, after=operation)
    try:
        await journal.commit([Append(session, 1, (message_user("x"),))])
    except Unavailable:
        told = 1
    else:
        told = 2
    failures.disk.repair()
    await journal.close()
    journal = open_journal(settings, FixedSigner(), FixedClock())
    assert len([event for event in await journal.read_all(0, 10) if event.stream == session]) == told
    await journal.close()


async def test_a_disk_that_fails_while_closing_is_told_and_all_is_released(
    failing: tuple[Failing, JournalSettings],
) -> None:
    failures, settings = failing
    journal, _ = await with_session(settings)
    failures.fail(Effect.IO_ERROR, 1_000)
    with pytest.raises(Unavailable, match="disk_error"):
        await journal.close()
    failures.disk.repair()
    journal = open_journal(settings, FixedSigner(), FixedClock())
    assert len(await journal.read_all(0, 10)) == 1
    await journal.close()


async def test_a_row_written_behind_our_back_fails_only_the_commit_it_meets(tmp_path: Path) -> None:
    """The pre-checks read what is known; a constraint of the table is the second, independent check."""
    path, ids = tmp_path / "journal.db", Ids()
    async with journal_at(path) as journal:
        sessions = [ids.session() for _ in range(3)]
        await journal.commit([Append(session, 0, (session_created(),)) for session in sessions])
        stolen = "INSERT INTO events SELECT 4, tape_id, 2, run_id, type, at_ms, actor, trust, data, salt, digest, hash"
        change_from_outside(path, f"{stolen} FROM events WHERE position = 2")
        commits = [journal.commit([Append(session, 1, (message_user("x"),))]) for session in sessions]
        outcomes = await asyncio.gather(*commits, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [tuple, Conflict, tuple]
        assert [event.position for event in await journal.read_all(0, 10)] == list(range(1, 7))


async def test_an_event_that_does_not_decode_is_corrupt_and_named(tmp_path: Path) -> None:
    path, session = tmp_path / "journal.db", Ids().session()
    async with journal_at(path) as journal:
        await journal.commit([Append(session, 0, (session_created(), message_user("x"), message_user("y")))])
        change_from_outside(path, "UPDATE events SET data = ? WHERE seq = 2", b'{"text":7}')
        with pytest.raises(Corrupt, match="event_unreadable") as caught:
            await journal.read(session, 0, 10)
        assert f"{session} seq 2" in caught.value.message
        change_from_outside(path, "UPDATE events SET trust = ? WHERE seq = 3", "divine")
        with pytest.raises(Corrupt, match="seq 3"):
            await journal.read(session, 2, 10)
        assert len(await journal.read(session, 0, 1)) == 1


@pytest.mark.parametrize("odd", [[1], {}, object(), 2**70, "\ud800", ()], ids=lambda value: type(value).__name__)
async def test_whatever_a_commit_raises_in_the_writer_is_its_outcome_alone(tmp_path: Path, odd: Any) -> None:
    """The second check: such a value is refused before it queues, so it is brought in behind that check."""
    ids = Ids()
    async with journal_at(tmp_path / "journal.db") as journal:
        sessions = [ids.session() for _ in range(3)]
        await journal.commit([Append(session, 0, (session_created(),)) for session in sessions])
        prepared = [prepare_commit([Append(session, 1, (message_user("x"),))], (), None) for session in sessions]
        prepared[1] = msgspec.structs.replace(prepared[1], writes=(ClearHeartbeat(run_id=odd),))
        prepared.append(Commit(appends=(PreparedAppend(odd, 0, ()),)))
        outcomes = await asyncio.gather(*map(journal._writer.commit, prepared), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes][:3] == [tuple, Invalid, tuple]
        assert isinstance(outcomes[3], PalyraError | tuple)
        assert await journal.commit([Append(sessions[1], 1, (message_user("y"),))])


async def test_whatever_another_act_raises_in_the_writer_is_its_outcome_alone(tmp_path: Path) -> None:
    async with journal_at(tmp_path / "journal.db") as journal:
        with pytest.raises(Invalid, match="KeyError"):
            await journal._writer.perform(lambda recorder: {"there": recorder}["absent"])
        assert journal.is_open
        await journal.commit([Append(Ids().session(), 0, (session_created(),))])


async def test_a_writer_whose_file_cannot_be_opened_anew_ends_and_says_so(tmp_path: Path) -> None:
    path, session = tmp_path / "journal.db", Ids().session()
    journal = open_journal(JournalSettings(path=path), FixedSigner(), FixedClock())
    await journal.commit([Append(session, 0, (session_created(),))])
    ruin(path)
    codes = []
    while journal.is_open:
        with pytest.raises(PalyraError) as caught:
            await journal.commit([Append(session, 1, (message_user("x"),))])
        codes.append(caught.value.code)
        assert len(codes) < 5
    with pytest.raises(Unavailable, match="journal_closed"):
        await journal.commit([Append(session, 1, (message_user("x"),))])
    with suppress(PalyraError):
        await journal.close()
