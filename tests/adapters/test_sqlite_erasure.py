"""Erasing from the SQLite file: the bytes are gone, artifacts and secrets too, and families go together."""

import subprocess
from pathlib import Path

import apsw
import pytest

from palyra.adapters.store.sqlite.journal import SqliteJournal
from palyra.adapters.store.sqlite.rows import TABLES
from palyra.core.channel_writes import QueueOutbox
from palyra.core.channels.outbox import OutboxItem, OutboxKind
from palyra.core.ids import ArtifactId, JobId, NodeId, SessionId
from palyra.core.jobs.model import NewJob
from palyra.core.writes import (
    EnqueueJob,
    Heartbeat,
    LinkArtifact,
    MentionMemory,
    PutCandidate,
    RecordReflection,
    RecordUse,
    SealSecret,
    SetHeartbeat,
    TakeLease,
    Write,
)
from palyra.ports.journal import Append, Erasure
from tests.support.journals import (
    ALICE,
    START_MS,
    Ids,
    draft,
    message_user,
    run_accepted,
    run_cycle,
    session_branched,
    session_created,
)
from tests.support.learning import candidate_of, reflection_of, use_of
from tests.support.memory import item_of
from tests.support.sqlite import files_holding, journal_at

pytestmark = pytest.mark.anyio

SECRET = "the-rabbit-is-under-the-stone"


def erasure(session: SessionId, *seqs: int) -> Erasure:
    return Erasure(stream=session, seqs=seqs or None, reason="asked", actor=ALICE, at_ms=START_MS)


async def fill(journal: SqliteJournal, ids: Ids, secret: str) -> SessionId:
    """A tape whose every text holds the secret, short and long, among others of its kind."""
    session = ids.session()
    created = session_created(key=f"{secret}-{session}", label=secret)
    texts = [message_user(f"{secret} {'x' * (number * 37 % 900)}") for number in range(40)]
    long = message_user((secret + " ") * 2_000)
    await journal.commit([Append(session, 0, (created, *texts, long, *run_cycle(ids.run(), secret, secret)))])
    return session


async def test_erased_text_is_in_no_file_of_the_journal(tmp_path: Path) -> None:
    ids = Ids()
    async with journal_at(tmp_path / "journal.db") as journal:
        sessions = []
        for number in range(40):
            sessions.append(await fill(journal, ids, SECRET if number % 2 else "harmless"))
        assert files_holding(tmp_path, SECRET) != []
        await journal.erase([erasure(session) for session in sessions[1::2]])
        assert files_holding(tmp_path, SECRET) == []
        assert files_holding(tmp_path, "harmless") == ["journal.db"]
    assert files_holding(tmp_path, SECRET) == []


async def test_text_erased_event_by_event_is_gone_too(tmp_path: Path) -> None:
    ids = Ids()
    async with journal_at(tmp_path / "journal.db") as journal:
        session = await fill(journal, ids, "harmless")
        for number in range(20):
            await journal.commit([Append(session, 55 + number, (message_user(f"{SECRET}-{number}"),))])
        for number in range(20):
            await journal.erase([erasure(session, 56 + number)])
        for number in (0, 7, 19):
            assert files_holding(tmp_path, f'{SECRET}-{number}"') == []
        assert files_holding(tmp_path, SECRET) == []


async def test_a_reader_from_outside_only_delays_the_cleaning_of_the_log(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with journal_at(path) as journal:
        session = await fill(journal, Ids(), SECRET)
        with subprocess.Popen(
            ["python3", "-c", HOLD_OPEN, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"reading\n"
            await journal.erase([erasure(session)])
            assert files_holding(tmp_path, SECRET) != []
            reader.communicate(b"\n")
        await journal.checkpoint()
        assert files_holding(tmp_path, SECRET) == []


async def test_a_tape_erased_whole_takes_its_secrets_and_links_along(tmp_path: Path) -> None:
    ids = Ids()
    async with journal_at(tmp_path / "journal.db") as journal:
        session, other, run = ids.session(), ids.session(), ids.run()
        shared, own = ArtifactId("a" * 64), ArtifactId("b" * 64)
        links = [LinkArtifact(shared, session, 3, "text/plain", 1), LinkArtifact(own, session, 3, "text/plain", 1)]
        writes: list[Write] = [
            *links,
            LinkArtifact(shared, other, 3, "text/plain", 1),
            SealSecret(run, "s1", b"sealed"),
        ]
        appends = [Append(session, 0, (session_created(), *run_cycle(run))), Append(other, 0, (session_created(),))]
        await journal.commit(appends, writes)
        assert await journal.state.artifacts_of(session) == (shared, own)
        assert await journal.state.unlinked([shared, own]) == ()
        await journal.erase([erasure(session, 2)])
        assert await journal.state.sealed_secret(run, "s1") == b"sealed"
        await journal.erase([erasure(session)])
        assert await journal.state.sealed_secret(run, "s1") is None
        assert await journal.state.artifacts_of(session) == ()
        assert await journal.state.unlinked([shared, own]) == (own,)


async def test_every_state_table_about_a_tape_loses_its_rows_with_the_tape(tmp_path: Path) -> None:
    """Asked of the schema, so that a new table has to be here, and in `drop_state` or among those without content."""
    without_content = {"heartbeats"}
    path, ids = tmp_path / "journal.db", Ids()
    session, run = ids.session(), ids.run()
    writes: list[Write] = [
        LinkArtifact(ArtifactId("a" * 64), session, 3, "text/plain", 1),
        SealSecret(run, "s1", b"sealed"),
        SetHeartbeat(run, NodeId("node-a"), 5),
        EnqueueJob(NewJob(id=JobId(ids.run()), kind="test", principal=ALICE, session_id=session, created_at_ms=1)),
        PutCandidate(candidate_of("It is so.", ALICE, session_id=session)),
        RecordUse(use_of(ALICE, 1, session_id=session), 9),
        RecordReflection(reflection_of(ALICE, 1, session_id=session), 9),
        MentionMemory((item_of("").id,), session),
        QueueOutbox(
            OutboxItem(
                id="01JX",
                channel="a",
                conversation_id="c",
                kind=OutboxKind.NOTICE,
                text="hi",
                created_at_ms=1,
                session_id=session,
            )
        ),
    ]
    async with journal_at(path) as journal:
        await journal.commit([Append(session, 0, (session_created(), *run_cycle(run)))], writes)
        before = state_counts(path)
        await journal.erase([erasure(session)])
    assert before == dict.fromkeys(before, 1)
    assert {table for table, count in state_counts(path).items() if count} == without_content


def state_counts(path: Path) -> dict[str, int]:
    """The rows of each table that names a tape or a run and is neither events nor a projection of them."""
    sql = """
        SELECT DISTINCT tables.name FROM sqlite_schema AS tables, pragma_table_info(tables.name) AS columns
        WHERE tables.type = 'table' AND columns.name IN ('stream', 'session_id', 'run_id')
    """
    folded = {"events", "tapes", *(table.name for table in TABLES.values())}
    connection = apsw.Connection(str(path))
    names = [str(name) for (name,) in connection.execute(sql) if name not in folded]
    counts = {name: connection.execute(f"SELECT count(*) FROM {name}").get for name in names}
    connection.close()
    return {name: int(count or 0) for name, count in counts.items()}


async def test_inactive_families_are_whole_or_not_listed(tmp_path: Path) -> None:
    ids = Ids()
    async with journal_at(tmp_path / "journal.db") as journal:
        old, parent, branch, late, busy = [ids.session() for _ in range(5)]
        await journal.commit([Append(old, 0, (session_created(),))])
        (root,) = await journal.commit([Append(parent, 0, (session_created(),))])
        await journal.commit([Append(branch, 0, (session_branched(root),))])
        await journal.commit([Append(busy, 0, (session_created(), run_accepted(ids.run())))])
        await journal.commit([Append(late, 0, (draft(session_created().data, at_ms=START_MS + 5_000),))])
        after_ms = START_MS + 1
        assert await journal.sessions.inactive_families(after_ms, 10) == ((old,), (parent, branch))
        assert await journal.sessions.inactive_families(START_MS, 10) == ()
        assert await journal.sessions.inactive_families(after_ms, 1) == ((old,),)
        run = run_cycle(ids.run())
        await journal.commit([Append(branch, 1, tuple(draft(d.data, d.run_id, at_ms=START_MS + 9_000) for d in run))])
        assert await journal.sessions.inactive_families(after_ms, 10) == ((old,),)
        await journal.erase([erasure(old)])
        assert await journal.sessions.inactive_families(after_ms, 10) == ()


async def test_vacuum_gives_space_back_and_changes_nothing(tmp_path: Path) -> None:
    ids, path = Ids(), tmp_path / "journal.db"
    async with journal_at(path) as journal:
        sessions = [await fill(journal, ids, SECRET) for _ in range(20)]
        await journal.erase([erasure(session) for session in sessions])
        before, size_bytes = await journal.read_all(0, 2_000), path.stat().st_size
        await journal.vacuum()
        assert await journal.read_all(0, 2_000) == before
        assert path.stat().st_size < size_bytes
        await journal.commit([Append(ids.session(), 0, (session_created(),))])


async def test_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    async with journal_at(tmp_path / "journal.db") as journal:
        run, node = Ids().run(), NodeId("node-a")
        await journal.commit([], [SetHeartbeat(run, node, 5), SetHeartbeat(run, node, 7), TakeLease("l", node, 0, 9)])
        assert await journal.state.stalled_heartbeats(8, 10) == (Heartbeat(run, node, 7, 7),)
        assert await journal.state.stalled_heartbeats(7, 10) == ()
        lease = await journal.state.lease("l")
        assert lease is not None
        assert (lease.owner, lease.token, lease.expires_at_ms) == (node, 1, 9)
        assert await journal.state.lease("other") is None


HOLD_OPEN = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("BEGIN")
connection.execute("SELECT count(*) FROM events").fetchall()
print("reading", flush=True)
sys.stdin.readline()
"""
