"""The plan of a group of commits, over dictionaries: what it refuses, and what it leaves. No database takes part."""

import pytest

from palyra.core.chain import GENESIS, link
from palyra.core.commit.lookup import needed_by
from palyra.core.commit.model import Commit, LastNumbers, UniqueKey
from palyra.core.commit.plan import CommitPlan
from palyra.core.errors import Conflict, Corrupt, Invalid, PalyraError
from palyra.core.events import Draft
from palyra.core.events.session import Parent, SessionBranched
from palyra.core.events.system import AdminActed
from palyra.core.events.tool import ApprovalRequested, ApprovalResolved, ApprovalStatus, Decision
from palyra.core.ids import NodeId, SessionId, StreamId, derive_node_id, system_stream
from palyra.core.projections.project import RowKey
from palyra.core.projections.rows import ApprovalRow, Row, RunRow, SessionRow
from palyra.core.writes import ClearHeartbeat, Fence, ReleaseLease, TakeLease
from tests.support.commits import DictionaryStore, append, commit
from tests.support.journals import (
    ALICE,
    BOB,
    Ids,
    approval_requested,
    draft,
    message_user,
    run_accepted,
    run_cycle,
    run_started,
    session_branched,
    session_created,
    tainted_write,
)

NODE = NodeId("node")
IDS = Ids()
SESSION, OTHER = IDS.session(), IDS.session()
RUN, SECOND_RUN = IDS.run(), IDS.run()


@pytest.fixture
def store() -> DictionaryStore:
    """Holds one session of one event."""
    store = DictionaryStore()
    store.commit(commit(append(SESSION, 0, session_created())))
    return store


def take(token: int) -> TakeLease:
    return TakeLease(name="work", owner=NODE, expected_token=token, expires_at_ms=1)


def answer(request: Draft, digest: str | None = None) -> Draft:
    data = request.data
    assert isinstance(data, ApprovalRequested)
    resolved = ApprovalResolved(
        approval_id=data.approval_id,
        status=ApprovalStatus.ALLOWED,
        decision=Decision.ALLOW,
        decided_by=ALICE,
        digest=data.digest if digest is None else digest,
    )
    return draft(resolved, request.run_id)


def test_a_stale_or_future_seq_is_refused(store: DictionaryStore) -> None:
    assert store.refusal(commit(append(SESSION, 0, message_user("x")))) == "seq_stale"
    assert store.refusal(commit(append(SESSION, 2, message_user("x")))) == "seq_stale"
    assert store.refusal(commit(append(SESSION, 1, message_user("x")))) is None


def test_an_append_without_events_only_asks_for_its_seq(store: DictionaryStore) -> None:
    assert store.refusal(commit(append(SESSION, 1))) is None
    assert store.refusal(commit(append(SESSION, 0))) == "seq_stale"


def test_two_commits_of_one_group_cannot_take_the_same_seq(store: DictionaryStore) -> None:
    first, second = commit(append(SESSION, 1, message_user("a"))), commit(append(SESSION, 1, message_user("b")))
    assert store.refusal(first, second) == "seq_stale"


def test_a_tape_without_a_session_takes_nothing_but_its_first_event(store: DictionaryStore) -> None:
    assert store.refusal(commit(append(OTHER, 0, message_user("x")))) == "session_unknown"
    assert store.refusal(commit(append(SESSION, 1, session_created()))) == "session_exists"


def test_a_tape_needs_a_name_that_is_one(store: DictionaryStore) -> None:
    plan = CommitPlan(store.everything())
    with pytest.raises(Invalid, match="stream"):
        plan.add(commit(append(StreamId("../x"), 0, session_created())))
    assert plan.tapes == []


def test_a_system_tape_begins_with_any_of_its_events(store: DictionaryStore) -> None:
    tape = system_stream(derive_node_id(bytes(32)))
    assert store.refusal(commit(append(tape, 0, draft(AdminActed(action="x"))))) is None


def test_a_fence_holds_only_with_the_current_token(store: DictionaryStore) -> None:
    assert store.refusal(commit(fence=Fence("work", 1))) == "lease_lost"
    store.commit(commit(writes=(take(0),)))
    assert store.refusal(commit(fence=Fence("work", 1))) is None
    assert store.refusal(commit(writes=(take(1),)), commit(fence=Fence("work", 1))) == "lease_lost"


def test_a_lease_is_taken_and_released_with_its_current_token_only(store: DictionaryStore) -> None:
    assert store.refusal(commit(writes=(take(1),))) == "lease_lost"
    assert store.refusal(commit(writes=(take(0),)), commit(writes=(take(0),))) == "lease_lost"
    store.commit(commit(writes=(take(0),)))
    assert store.refusal(commit(writes=(ReleaseLease("work", 2),))) == "lease_lost"
    assert store.refusal(commit(writes=(ReleaseLease("work", 1),)), commit(writes=(take(1),))) is None


def test_an_idempotency_key_is_taken_once_for_each_principal(store: DictionaryStore) -> None:
    first = commit(append(SESSION, 1, run_accepted(RUN, idempotency_key="k")))
    again = commit(append(SESSION, 2, run_accepted(SECOND_RUN, idempotency_key="k")))
    of_bob = commit(append(SESSION, 2, run_accepted(SECOND_RUN, BOB, idempotency_key="k")))
    assert store.refusal(first, again) == "idempotency_key_taken"
    assert store.refusal(first, of_bob) is None
    store.commit(first)
    assert store.refusal(again) == "idempotency_key_taken"
    assert store.refusal(of_bob) is None


def test_a_session_key_is_taken_once_for_each_owner(store: DictionaryStore) -> None:
    third = IDS.session()
    first = commit(append(OTHER, 0, session_created(key="k")))
    again, of_bob = (commit(append(third, 0, session_created(owner, key="k"))) for owner in (ALICE, BOB))
    assert store.refusal(first, again) == "session_key_taken"
    store.commit(first)
    assert store.refusal(again) == "session_key_taken"
    assert store.refusal(of_bob) is None


def test_a_branch_takes_a_session_key_too(store: DictionaryStore) -> None:
    store.commit(commit(append(OTHER, 0, session_created(key="k"))))
    parent = Parent(session_id=SESSION, seq=1, hash="")
    branch = draft(SessionBranched(owner=ALICE, agent="default", parent=parent, key="k"))
    assert store.refusal(commit(append(IDS.session(), 0, branch))) == "session_key_taken"


def test_a_key_of_a_refused_commit_is_free_again(store: DictionaryStore) -> None:
    refused = commit(append(SESSION, 1, run_accepted(RUN, idempotency_key="k")), fence=None, writes=(take(7),))
    taking = commit(append(SESSION, 1, run_accepted(SECOND_RUN, idempotency_key="k")))
    outcomes = store.commit(refused, taking)
    assert [type(outcome) for outcome in outcomes] == [Conflict, tuple]


def test_an_erased_session_takes_nothing_more_and_no_branch(store: DictionaryStore) -> None:
    (created,) = store.commit(commit(append(OTHER, 0, session_created())))
    assert not isinstance(created, PalyraError)
    store.mark_erased(OTHER)
    assert store.refusal(commit(append(OTHER, 1, run_accepted(RUN)))) == "session_erased"
    assert store.refusal(commit(append(IDS.session(), 0, session_branched(created[0])))) == "session_erased"


def test_an_approval_is_decided_once(store: DictionaryStore) -> None:
    request = approval_requested(RUN)
    store.commit(commit(append(SESSION, 1, run_accepted(RUN), request)))
    first, second = commit(append(SESSION, 3, answer(request))), commit(append(SESSION, 4, answer(request)))
    assert store.refusal(first, second) == "approval_decided"
    assert store.refusal(commit(append(SESSION, 3, answer(request, "another")))) == "approval_mismatch"
    assert store.refusal(commit(append(SESSION, 3, request))) == "approval_exists"
    store.commit(first)
    assert store.refusal(second) == "approval_decided"


def test_an_answer_on_another_tape_is_refused(store: DictionaryStore) -> None:
    request = approval_requested(RUN)
    store.commit(commit(append(SESSION, 1, run_accepted(RUN), request)))
    other = append(OTHER, 0, session_created(), answer(request))
    assert store.refusal(commit(other)) == "approval_unknown"


def test_a_run_is_one_that_its_own_tape_accepted(store: DictionaryStore) -> None:
    assert store.refusal(commit(append(SESSION, 1, run_started(RUN)))) == "illegal_transition"
    accepted = commit(append(SESSION, 1, run_accepted(RUN)))
    elsewhere = commit(append(OTHER, 0, session_created(), run_started(RUN)))
    assert store.refusal(accepted, elsewhere) == "run_elsewhere"
    assert store.refusal(accepted, commit(append(SESSION, 2, run_accepted(RUN)))) == "illegal_transition"


def test_a_session_has_one_active_run(store: DictionaryStore) -> None:
    started = commit(append(SESSION, 1, run_accepted(RUN), run_started(RUN)))
    second = commit(append(SESSION, 3, run_accepted(SECOND_RUN), run_started(SECOND_RUN)))
    assert store.refusal(started, second) == "session_busy"


def test_a_refused_commit_leaves_no_trace_in_the_plan(store: DictionaryStore) -> None:
    """Its last write is what fails, so that everything before it has to be taken back."""
    refused = commit(
        append(SESSION, 1, run_accepted(RUN, idempotency_key="k"), message_user("x", RUN)),
        append(OTHER, 0, session_created(key="k")),
        writes=(ClearHeartbeat(RUN), take(0), take(0)),
    )
    kept = [
        commit(append(SESSION, 1, run_accepted(SECOND_RUN, idempotency_key="k")), writes=(take(0),)),
        commit(append(IDS.session(), 0, session_created(key="k"), message_user("y"))),
    ]
    alone, outcomes_alone = store.plan(*kept)
    beside, outcomes_beside = store.plan(kept[0], refused, kept[1])
    assert [outcome for outcome in outcomes_beside if isinstance(outcome, tuple)] == outcomes_alone
    assert what_is_written(beside) == what_is_written(alone)
    assert (beside.heads, beside.leases, beside.numbers()) == (alone.heads, alone.leases, alone.numbers())
    first, *_ = store.plan(refused)
    assert what_is_written(first) == ([], [], [], [], [])


def what_is_written(plan: CommitPlan) -> tuple[list[object], ...]:
    return ([*plan.tapes], [*plan.events], [*plan.indexed_positions], [*plan.row_changes()], [*plan.writes])


def test_events_are_numbered_and_linked_across_the_commits_of_a_group(store: DictionaryStore) -> None:
    plan, outcomes = store.plan(
        commit(append(SESSION, 1, message_user("a"))),
        commit(append(OTHER, 0, session_created())),
        commit(append(SESSION, 2, message_user("b"))),
    )
    events = [event for outcome in outcomes if isinstance(outcome, tuple) for event in outcome]
    assert [(event.stream, event.seq, event.position) for event in events] == [
        (SESSION, 2, 2),
        (OTHER, 1, 3),
        (SESSION, 3, 4),
    ]
    assert [row[:3] for row in plan.events] == [(2, 1, 2), (3, 2, 1), (4, 1, 3)]
    third = append(SESSION, 2, message_user("b")).events[0]
    assert plan.heads[SESSION].hash == link(bytes.fromhex(events[0].hash), third.header_bytes, third.digest)
    first = append(OTHER, 0, session_created()).events[0]
    assert plan.heads[OTHER].hash == link(GENESIS, first.header_bytes, first.digest)
    assert (plan.tapes, plan.indexed_positions, plan.numbers()) == ([(2, OTHER)], [2, 4], LastNumbers(4, 2))


def test_a_row_change_goes_from_the_stored_row_to_the_last_of_the_group(store: DictionaryStore) -> None:
    plan, _ = store.plan(*(commit(append(SESSION, 1 + n, each)) for n, each in enumerate(run_cycle(RUN))))
    changes = {RowKey(type(after), after.id): (before, after) for before, after in plan.row_changes()}
    before, after = changes[RowKey(SessionRow, SESSION)]
    assert before is store.rows[RowKey(SessionRow, SESSION)]
    assert after.seq == 14
    assert changes[RowKey(RunRow, RUN)][0] is None


def test_a_look_up_that_fails_refuses_only_the_commit_that_made_it(store: DictionaryStore) -> None:
    class Damaged:
        def __init__(self) -> None:
            self._loaded = store.everything()
            self.numbers, self.head = self._loaded.numbers, self._loaded.head
            self.lease_token, self.is_taken = self._loaded.lease_token, self._loaded.is_taken

        def row(self, key: RowKey) -> Row | None:
            if key.id == RUN:
                raise Corrupt("row_unreadable", "damaged")
            return self._loaded.row(key)

    plan = CommitPlan(Damaged())
    outcomes = plan.add_all(
        [
            commit(append(SESSION, 1, message_user("a"), run_accepted(RUN))),
            commit(append(SESSION, 1, run_accepted(SECOND_RUN))),
        ]
    )
    assert [type(outcome) for outcome in outcomes] == [Corrupt, tuple]
    assert [row[2] for row in plan.events] == [2]


def test_what_a_group_needs_is_named_before_it_is_planned() -> None:
    needed = needed_by(
        [
            commit(append(SESSION, 0, session_created(key="s")), append(OTHER, 3), fence=Fence("fence", 1)),
            commit(
                append(SESSION, 1, run_accepted(RUN, idempotency_key="r")), writes=(take(0), ReleaseLease("old", 1))
            ),
        ]
    )
    assert needed.streams == {SESSION, OTHER}
    assert needed.leases == {"fence", "work", "old"}
    assert needed.unique_keys == {UniqueKey(SessionRow, ALICE, "s"), UniqueKey(RunRow, ALICE, "r")}
    assert {RowKey(SessionRow, SESSION), RowKey(RunRow, RUN)} <= needed.rows


def groups_of_a_life() -> list[list[Commit]]:
    """Sessions, branches, runs, approvals, taint, keys and leases, with refusals among them."""
    ids = Ids(100)
    session, branch, run, second = ids.session(), ids.session(), ids.run(), ids.run()
    request = approval_requested(second)
    cycle = [commit(append(session, 1 + n, each)) for n, each in enumerate(run_cycle(run))]
    parent = Parent(session_id=SessionId(session), seq=1, hash="")
    branching = draft(SessionBranched(owner=ALICE, agent="default", parent=parent, key="b"))
    return [
        [commit(append(session, 0, session_created(key="a"))), *cycle[:5]],
        [*cycle[5:], commit(append(session, 14, run_accepted(second, idempotency_key="k")), writes=(take(0),))],
        [commit(append(session, 15, run_started(second), request), fence=Fence("work", 1)), cycle[0]],
        [commit(append(session, 17, answer(request))), commit(append(session, 18, answer(request)))],
        [commit(append(session, 18, tainted_write(second))), commit(append(branch, 0, branching))],
        [commit(append(ids.session(), 0, session_created(key="b"))), commit(fence=Fence("work", 2))],
    ]


def test_a_plan_looks_up_nothing_beyond_what_was_needed() -> None:
    """Planning over the needed part of the store comes to the same as planning over all of it."""
    store = DictionaryStore()
    refused = []
    for group in groups_of_a_life():
        over_all = CommitPlan(store.everything())
        outcomes = over_all.add_all(group)
        over_needed, same_outcomes = store.plan(*group)
        assert [_code(outcome) for outcome in same_outcomes] == [_code(outcome) for outcome in outcomes]
        assert what_is_written(over_needed) == what_is_written(over_all)
        assert over_needed.rows.keys() <= needed_by(group).rows
        refused += [outcome.code for outcome in store.commit(*group) if isinstance(outcome, PalyraError)]
    assert refused == ["seq_stale", "approval_decided", "session_key_taken", "lease_lost"]
    assert any(isinstance(row, ApprovalRow) for row in store.rows.values())


def _code(outcome: object) -> object:
    return outcome.code if isinstance(outcome, PalyraError) else outcome
