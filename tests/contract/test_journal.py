"""What every store of tapes promises: commits, reads and checkpoints."""

import asyncio
from typing import Any

import msgspec
import pytest

from palyra.core.canonical import encode_plain_record
from palyra.core.chain import GENESIS, Header, digest_data, link
from palyra.core.checkpoint import FIRST_PREVIOUS, checkpoint_hash
from palyra.core.errors import Conflict, Invalid, PalyraError, Unavailable
from palyra.core.events import Draft, ErasedData, Event
from palyra.core.events.codec import encode_data
from palyra.core.events.system import AdminActed, CheckpointSigned
from palyra.core.ids import NodeId, RunId, SessionId, StreamId, derive_node_id, system_stream
from palyra.core.writes import Fence, ReleaseLease, SetHeartbeat, TakeLease, Write
from palyra.ports.journal import Append, Journal
from tests.contract.conftest import Opened, Store
from tests.support.journals import (
    ALICE,
    BOB,
    FixedSigner,
    Ids,
    draft,
    message_user,
    run_accepted,
    run_cycle,
    run_done,
    run_started,
    session_created,
)

pytestmark = pytest.mark.anyio

NODE = derive_node_id(FixedSigner().public_key)
SYSTEM = system_stream(NODE)


async def new_session(journal: Journal, ids: Ids, *more: Draft) -> SessionId:
    session = ids.session()
    await journal.commit([Append(session, 0, (session_created(), *more))])
    return session


async def refusal(journal: Journal, *appends: Append) -> str:
    with pytest.raises(PalyraError) as caught:
        await journal.commit(appends)
    return caught.value.code


async def test_committed_events_are_read_back_as_they_were_returned(journal: Journal, ids: Ids) -> None:
    session = ids.session()
    events = await journal.commit([Append(session, 0, (session_created(), *run_cycle(ids.run())))])
    assert await journal.read(session, 0, 100) == events
    assert [event.seq for event in events] == list(range(1, 15))
    assert [event.position for event in events] == list(range(1, 15))


async def test_every_event_is_linked_to_the_one_before_it(journal: Journal, ids: Ids) -> None:
    session = await new_session(journal, ids, *run_cycle(ids.run()))
    previous = GENESIS
    for event in await journal.read(session, 0, 100):
        salt = bytes.fromhex(event.salt or "")
        assert not isinstance(event.data, ErasedData)
        digest = digest_data(salt, encode_data(event.data))
        assert digest.hex() == event.digest
        header = Header(
            actor=event.actor,
            at_ms=event.at_ms,
            run_id=event.run_id,
            seq=event.seq,
            session_id=event.stream,
            trust=event.trust,
            type=event.type,
        )
        previous = link(previous, encode_plain_record(header), digest)
        assert previous.hex() == event.hash


async def test_salts_differ_from_event_to_event(journal: Journal, ids: Ids) -> None:
    session = await new_session(journal, ids, *[message_user("same") for _ in range(20)])
    assert len({event.salt for event in await journal.read(session, 0, 100)}) == 21


async def test_a_stale_expectation_is_a_conflict_and_changes_nothing(journal: Journal, ids: Ids) -> None:
    session = await new_session(journal, ids)
    for expected_seq in (0, 2):
        assert await refusal(journal, Append(session, expected_seq, (message_user("late"),))) == "seq_stale"
    assert len(await journal.read_all(0, 100)) == 1


async def test_one_stale_append_undoes_the_whole_commit(journal: Journal, ids: Ids) -> None:
    first, second = await new_session(journal, ids), await new_session(journal, ids)
    good, stale = Append(first, 1, (message_user("a"),)), Append(second, 0, (message_user("b"),))
    assert await refusal(journal, good, stale) == "seq_stale"
    assert [len(await journal.read(tape, 0, 10)) for tape in (first, second)] == [1, 1]


async def test_appends_to_several_tapes_are_recorded_in_the_order_given(journal: Journal, ids: Ids) -> None:
    first, second = ids.session(), ids.session()
    events = await journal.commit(
        [
            Append(first, 0, (session_created(),)),
            Append(second, 0, (session_created(),)),
            Append(first, 1, (message_user("again"),)),
        ]
    )
    assert [(event.stream, event.seq, event.position) for event in events] == [
        (first, 1, 1),
        (second, 1, 2),
        (first, 2, 3),
    ]
    assert await journal.read_all(0, 10) == events


async def test_an_append_without_events_only_asks_where_the_tape_is(journal: Journal, ids: Ids) -> None:
    session = await new_session(journal, ids)
    assert await journal.commit([Append(session, 1, ())]) == ()
    assert await refusal(journal, Append(session, 0, ())) == "seq_stale"


async def test_an_illegal_event_is_refused_and_changes_nothing(journal: Journal, ids: Ids) -> None:
    session, run = await new_session(journal, ids), ids.run()
    assert await refusal(journal, Append(session, 1, (run_started(run),))) == "illegal_transition"
    assert await refusal(journal, Append(session, 1, (session_created(),))) == "session_exists"
    assert len(await journal.read(session, 0, 10)) == 1


async def test_a_session_tape_begins_with_its_owner(journal: Journal, ids: Ids) -> None:
    assert await refusal(journal, Append(ids.session(), 0, (message_user("first"),))) == "session_unknown"
    assert await journal.read_all(0, 10) == ()


@pytest.mark.parametrize("stream", ["", "no-ulid", "system:short", "01JXT21Q00000000000000000U"])
async def test_a_tape_has_a_proper_name(journal: Journal, stream: str) -> None:
    drafts = (draft(AdminActed(action="test")),) if stream.startswith("system:") else (session_created(),)
    assert await refusal(journal, Append(StreamId(stream), 0, drafts)) == "stream_invalid"


async def test_session_events_stay_off_system_tapes_and_the_reverse(journal: Journal, ids: Ids) -> None:
    assert await refusal(journal, Append(SYSTEM, 0, (message_user("x"),))) == "event_misplaced"
    assert await refusal(journal, Append(ids.session(), 0, (draft(AdminActed(action="x")),))) == "event_misplaced"


async def test_a_time_outside_any_calendar_is_refused(journal: Journal, ids: Ids) -> None:
    late = Append(ids.session(), 0, (draft(session_created().data, at_ms=1 << 60),))
    assert await refusal(journal, late) == "time_out_of_range"


async def test_two_producers_racing_for_one_tape_get_one_winner_a_seq(journal: Journal, ids: Ids) -> None:
    session = await new_session(journal, ids)

    async def produce(name: str) -> list[int]:
        won = []
        while (head := await journal.head(session)) is not None and head.seq < 40:
            try:
                await journal.commit([Append(session, head.seq, (message_user(name),))])
                won.append(head.seq + 1)
            except Conflict as conflict:
                assert conflict.code == "seq_stale"
        return won

    wins = await asyncio.gather(*[produce(name) for name in ("a", "b", "c")])
    events = await journal.read(session, 0, 100)
    assert sorted(seq for won in wins for seq in won) == [event.seq for event in events[1:]]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


async def test_a_refused_commit_leaves_others_of_its_group_untouched(journal: Journal, ids: Ids) -> None:
    sessions = [await new_session(journal, ids) for _ in range(20)]
    stale = {sessions[3], sessions[11]}
    commits = [journal.commit([Append(tape, 0 if tape in stale else 1, (message_user("x"),))]) for tape in sessions]
    outcomes = await asyncio.gather(*commits, return_exceptions=True)
    for tape, outcome in zip(sessions, outcomes, strict=True):
        assert isinstance(outcome, Conflict) is (tape in stale)
    assert [event.position for event in await journal.read_all(0, 100)] == list(range(1, 39))


async def test_commits_of_one_group_may_follow_each_other_on_one_tape(journal: Journal, ids: Ids) -> None:
    session, run = await new_session(journal, ids), ids.run()
    drafts = run_cycle(run)
    await asyncio.gather(*[journal.commit([Append(session, seq, (d,))]) for seq, d in enumerate(drafts, start=1)])
    assert [event.data for event in await journal.read(session, 1, 100)] == [d.data for d in drafts]


async def test_a_commit_whose_waiter_is_cancelled_happens_as_a_whole_or_not_at_all(journal: Journal, ids: Ids) -> None:
    session, other = await new_session(journal, ids), await new_session(journal, ids)
    waiting = asyncio.ensure_future(journal.commit([Append(session, 1, (message_user("a"), message_user("b")))]))
    beside = asyncio.ensure_future(journal.commit([Append(other, 1, (message_user("c"),))]))
    await asyncio.sleep(0)
    waiting.cancel()
    assert [event.seq for event in await beside] == [2]
    with pytest.raises(asyncio.CancelledError):
        await waiting
    head = await journal.head(session)
    assert head is not None
    assert head.seq in (1, 3)
    await journal.commit([Append(session, head.seq, (message_user("d"),))])


async def test_many_more_commits_than_may_wait_are_all_served(journal: Journal, ids: Ids) -> None:
    session = await new_session(journal, ids)
    count = 5_000
    commits = [journal.commit([Append(session, seq, (message_user("x"),))]) for seq in range(1, count)]
    events = await asyncio.gather(*commits)
    assert [event.seq for (event,) in events] == list(range(2, count + 1))


async def test_everything_acknowledged_is_there_after_closing_and_opening(store: Store, ids: Ids) -> None:
    opened = await store.open()
    session, run = ids.session(), ids.run()
    events = await opened.journal.commit([Append(session, 0, (session_created(key="k"), *run_cycle(run)))])
    row = await opened.runs.run(run, None)
    opened = await store.reopen()
    assert await opened.journal.read(session, 0, 100) == events
    assert await opened.runs.run(run, None) == row
    more = await opened.journal.commit([Append(session, len(events), (message_user("on"),))])
    positions = [event.position for event in await opened.journal.read_all(0, 100)]
    assert positions == list(range(1, more[0].position + 1))


async def test_a_closed_journal_refuses_and_says_so(store: Store, ids: Ids) -> None:
    opened = await store.open()
    await store.close()
    for question in (
        opened.journal.commit([Append(ids.session(), 0, (session_created(),))]),
        opened.journal.read_all(0, 1),
        opened.journal.checkpoint(),
    ):
        with pytest.raises(Unavailable, match="journal_closed"):
            await question
    await opened.journal.close()


async def test_closing_finishes_what_was_accepted(store: Store, ids: Ids) -> None:
    opened = await store.open()
    sessions = [ids.session() for _ in range(50)]
    commits = [asyncio.ensure_future(opened.journal.commit([Append(s, 0, (session_created(),))])) for s in sessions]
    await asyncio.sleep(0)
    await store.close()
    assert len([await commit for commit in commits]) == 50
    assert len(await (await store.open()).sessions.sessions(None, "", 100)) == 50


async def test_reads_page_through_a_tape_and_through_all(journal: Journal, ids: Ids) -> None:
    session = await new_session(journal, ids, *run_cycle(ids.run()))
    await new_session(journal, ids)
    everything = await journal.read_all(0, 100)
    assert len(everything) == 15
    assert await journal.read(session, 3, 4) == everything[3:7]
    assert await journal.read_last(session, 3) == everything[11:14]
    assert await journal.read_all(13, 100) == everything[13:]
    head = await journal.head(session)
    assert (head.seq, head.hash) == (14, everything[13].hash) if head else False


async def test_an_unknown_tape_is_empty(journal: Journal, ids: Ids) -> None:
    assert await journal.read(ids.session(), 0, 10) == ()
    assert await journal.read_last(ids.session(), 10) == ()
    assert await journal.head(ids.session()) is None


@pytest.mark.parametrize("limit", [0, -1, 10_001])
async def test_a_read_has_a_limit(journal: Journal, ids: Ids, limit: int) -> None:
    with pytest.raises(Invalid, match="limit_invalid"):
        await journal.read_all(0, limit)


async def test_a_reader_that_follows_by_position_misses_nothing(journal: Journal, ids: Ids) -> None:
    seen: list[Event] = []

    async def follow() -> None:
        while len(seen) < 300:
            seen.extend(await journal.read_all(seen[-1].position if seen else 0, 50))
            await asyncio.sleep(0)

    async def produce() -> None:
        session = await new_session(journal, ids)
        for seq in range(1, 100):
            await journal.commit([Append(session, seq, (message_user("x"),))])

    await asyncio.gather(follow(), *[produce() for _ in range(3)])
    assert [event.position for event in seen] == list(range(1, 301))


async def test_a_session_key_is_taken_once_by_an_owner(opened: Opened, ids: Ids) -> None:
    commits = [
        opened.journal.commit([Append(ids.session(), 0, (session_created(owner, key="main"),))])
        for owner in (ALICE, ALICE, BOB, ALICE)
    ]
    outcomes = await asyncio.gather(*commits, return_exceptions=True)
    assert [getattr(outcome, "code", "") for outcome in outcomes] == ["", "session_key_taken", "", "session_key_taken"]
    assert (
        await refusal(opened.journal, Append(ids.session(), 0, (session_created(key="main"),))) == "session_key_taken"
    )


async def test_an_idempotency_key_is_taken_once_by_a_principal(opened: Opened, ids: Ids) -> None:
    session, run = await new_session(opened.journal, ids), ids.run()
    await opened.journal.commit([Append(session, 1, (run_accepted(run, idempotency_key="k"),))])
    again = Append(session, 2, (run_accepted(ids.run(), idempotency_key="k"),))
    assert await refusal(opened.journal, again) == "idempotency_key_taken"
    await opened.journal.commit([Append(session, 2, (run_accepted(ids.run(), BOB, idempotency_key="k"),))])
    found = await opened.runs.run_by_idempotency_key("k", ALICE)
    assert found is not None
    assert found.id == run


async def test_a_key_of_a_refused_commit_is_still_free(opened: Opened, ids: Ids) -> None:
    bad = Append(ids.session(), 0, (session_created(key="main"), run_started(ids.run())))
    good = Append(ids.session(), 0, (session_created(key="main"),))
    outcomes = await asyncio.gather(opened.journal.commit([bad]), opened.journal.commit([good]), return_exceptions=True)
    assert isinstance(outcomes[0], Invalid)
    assert isinstance(outcomes[1], tuple)


async def test_a_lease_is_taken_by_whoever_knows_its_token(journal: Journal, ids: Ids) -> None:
    ours, theirs = NodeId("node-a"), NodeId("node-b")
    await journal.commit([], [TakeLease("run:1", ours, 0, 10)])
    with pytest.raises(Conflict, match="lease_lost"):
        await journal.commit([], [TakeLease("run:1", theirs, 0, 10)])
    await journal.commit([], [TakeLease("run:1", theirs, 1, 20)])
    with pytest.raises(Conflict, match="lease_lost"):
        await journal.commit([], [ReleaseLease("run:1", 1)])
    await journal.commit([], [ReleaseLease("run:1", 2)])
    await journal.commit([], [TakeLease("run:1", ours, 2, 30)])


async def test_of_two_that_take_a_lease_at_once_one_gets_it(journal: Journal) -> None:
    nodes = [NodeId(f"node-{number}") for number in range(8)]
    takes = [journal.commit([], [TakeLease("l", node, 0, 10)]) for node in nodes]
    outcomes = await asyncio.gather(*takes, return_exceptions=True)
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 7


async def test_a_commit_behind_a_lost_fence_does_not_happen(store: Store, ids: Ids) -> None:
    journal = (await store.open()).journal
    session = await new_session(journal, ids)
    await journal.commit([], [TakeLease("run:1", NODE, 0, 10)])
    fence = Fence("run:1", 1)
    await journal.commit([Append(session, 1, (message_user("mine"),))], fence=fence)
    await journal.commit([], [TakeLease("run:1", NodeId("other"), 1, 20)])
    for _ in range(2):
        with pytest.raises(Conflict, match="lease_lost"):
            await journal.commit([Append(session, 2, (message_user("late"),))], fence=fence)
        assert len(await journal.read(session, 0, 10)) == 2
        journal = (await store.reopen()).journal


async def test_a_value_no_column_holds_fails_only_its_own_commit(journal: Journal, ids: Ids) -> None:
    session = await new_session(journal, ids)
    poison = journal.commit([], [SetHeartbeat(ids.run(), NODE, 1 << 70)])
    surrogate = journal.commit([], [TakeLease("\ud800", NODE, 0, 1)])
    good = journal.commit([Append(session, 1, (message_user("x"),))])
    outcomes = await asyncio.gather(poison, surrogate, good, return_exceptions=True)
    assert [getattr(outcome, "code", "") for outcome in outcomes] == ["value_invalid", "value_invalid", ""]


async def test_a_checkpoint_signs_the_heads_that_changed(journal: Journal, ids: Ids) -> None:
    first, second = await new_session(journal, ids), await new_session(journal, ids)
    (event,) = await journal.checkpoint()
    signed = event.data
    assert isinstance(signed, CheckpointSigned)
    assert (event.stream, signed.previous, signed.position) == (SYSTEM, FIRST_PREVIOUS, 2)
    assert [head.stream for head in signed.heads] == [first, second]
    await journal.commit([Append(second, 1, (message_user("x"),))])
    (event,) = await journal.checkpoint()
    following = event.data
    assert isinstance(following, CheckpointSigned)
    assert following.previous == checkpoint_hash(signed)
    assert [(head.stream, head.seq) for head in following.heads] == [(second, 2), (SYSTEM, 1)]


async def test_without_a_change_there_is_no_checkpoint(store: Store, ids: Ids) -> None:
    journal = (await store.open()).journal
    (begun,) = await journal.checkpoint()
    assert isinstance(begun.data, CheckpointSigned)
    assert begun.data.heads == (), "the first one begins the tape before anything else"
    assert await journal.checkpoint() == ()
    await new_session(journal, ids)
    assert len(await journal.checkpoint()) == 1
    assert await journal.checkpoint() == ()
    assert await (await store.reopen()).journal.checkpoint() == ()


async def test_closing_signs_a_last_checkpoint(store: Store, ids: Ids) -> None:
    session = await new_session((await store.open()).journal, ids)
    opened = await store.reopen()
    (event,) = await opened.journal.read(SYSTEM, 0, 10)
    assert isinstance(event.data, CheckpointSigned)
    assert [head.stream for head in event.data.heads] == [session]


async def test_a_checkpoint_of_many_tapes_comes_in_chained_pieces(journal: Journal, ids: Ids) -> None:
    sessions = [ids.session() for _ in range(1_500)]
    await journal.commit([Append(session, 0, (session_created(),)) for session in sessions])
    events = await journal.checkpoint()
    pieces = [event.data for event in events if isinstance(event.data, CheckpointSigned)]
    assert [len(piece.heads) for piece in pieces] == [1_000, 500]
    assert pieces[1].previous == checkpoint_hash(pieces[0])
    assert await journal.checkpoint() == ()


async def test_a_run_ends_before_its_session_can_run_the_next(journal: Journal, ids: Ids) -> None:
    session, first, second = await new_session(journal, ids), ids.run(), ids.run()
    accepted = (run_accepted(first), run_started(first), run_accepted(second))
    await journal.commit([Append(session, 1, accepted)])
    assert await refusal(journal, Append(session, 4, (run_started(second),))) == "session_busy"
    await journal.commit([Append(session, 4, (run_done(first), run_started(second)))])


ODD = [[1], {"a": 1}, object(), 2**70, "\ud800", b"\x00", 1.5]


@pytest.mark.parametrize("odd", ODD, ids=lambda value: type(value).__name__)
async def test_an_odd_value_is_the_outcome_of_its_commit_alone(journal: Journal, ids: Ids, odd: Any) -> None:
    sessions = [await new_session(journal, ids) for _ in range(3)]
    run = RunId(odd) if not isinstance(odd, int) else ids.run()
    write = SetHeartbeat(run_id=run, node=NODE, at_ms=odd if isinstance(odd, int) else 1)
    commits = [
        attempt(journal, Append(session, 1, (message_user("x"),)), writes=(write,) if session == sessions[1] else ())
        for session in sessions
    ]
    outcomes = await asyncio.gather(*commits, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [tuple, Invalid, tuple]
    assert [len(await journal.read(session, 0, 10)) for session in sessions] == [2, 1, 2]


@pytest.mark.parametrize("odd", ODD, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("member", ["actor", "run_id", "at_ms", "trust"])
async def test_an_odd_header_is_refused_before_it_queues(journal: Journal, ids: Ids, member: str, odd: Any) -> None:
    session = await new_session(journal, ids)
    drafted = msgspec.structs.replace(message_user("x"), **{member: odd})
    with pytest.raises(Invalid):
        await journal.commit([Append(session, 1, (drafted,))])
    assert len(await journal.read(session, 0, 10)) == 1


async def test_a_number_too_large_for_a_column_is_the_outcome_of_its_commit_alone(journal: Journal, ids: Ids) -> None:
    """2**63 passes as a number of 64 bits, and no column holds it."""
    first, second = await new_session(journal, ids), await new_session(journal, ids)
    write = SetHeartbeat(run_id=ids.run(), node=NODE, at_ms=2**63)
    outcomes = await asyncio.gather(
        attempt(journal, Append(first, 1, (message_user("x"),)), writes=(write,)),
        attempt(journal, Append(second, 1, (message_user("y"),))),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [Invalid, tuple]


async def attempt(journal: Journal, append: Append, writes: tuple[Write, ...] = ()) -> tuple[Event, ...]:
    return await journal.commit([append], writes)
