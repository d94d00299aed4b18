"""Projections as pure functions: rows from events, and what they refuse."""

import pytest
from msgspec.structs import replace

from palyra.core.errors import Conflict, Invalid
from palyra.core.events import DATA_TYPES, Data, ErasedData, Event
from palyra.core.events.model import UsageRecorded
from palyra.core.events.run import EndReason, MessageAssistant, RunAccepted, RunDone, RunStarted
from palyra.core.events.session import Parent, SessionBranched, SessionCreated, SessionLabelled, SessionReset
from palyra.core.events.tool import (
    ApprovalKind,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalStatus,
    Decision,
    Grant,
    GrantRevoked,
    Refusal,
    Scope,
)
from palyra.core.ids import ApprovalId, RunId, SessionId, StreamId, derive_grant_id
from palyra.core.projections.project import PROJECTED_TYPES, RowKey, keys_of, project
from palyra.core.projections.rows import ApprovalRow, GrantKind, GrantRow, Row, RunRow, SessionRow, UsageRow
from palyra.core.run.loop import make_limits
from palyra.core.run.states import RunState
from palyra.core.trust import Trust
from tests.support.evidence import tape_of
from tests.support.runs import ALICE, RUN, SESSION

APPROVAL = ApprovalId("0" * 26)
ACCEPTED = RunAccepted(agent="main", origin="test", can_ask=True, limits=make_limits())
CREATED = SessionCreated(owner=ALICE, agent="main", key="k", label="first")
REQUEST = ApprovalRequested(approval_id=APPROVAL, kind=ApprovalKind.TOOL, digest="d", rule="r", expires_at_ms=9)
GRANT = Grant(
    grant_id=derive_grant_id(APPROVAL),
    tool="t",
    scope=Scope.SESSION,
    constraints=(),
    taint=(),
    principal=ALICE,
    agent="main",
)
ANSWER = ApprovalResolved(
    approval_id=APPROVAL,
    status=ApprovalStatus.ALLOWED,
    decision=Decision.ALLOW,
    decided_by=ALICE,
    digest="d",
    grant=GRANT,
)

# Every type that no list needs, by name, so that a new type is decided on.
UNPROJECTED_TYPES = frozenset(
    """
    admin.acted answer.rejected cancel.requested candidate.applied candidate.decided candidate.proposed
    changes.keeping changes.kept
    changes.undoing changes.undone checkpoint.signed draft.applying draft.conflicted erased guard.tripped
    learning.applied memory.forgotten memory.stored memory.superseded model.failed model.output model.requested
    objectives.checked pairing.carried_over pairing.issued pairing.linked pairing.locked pairing.revoked route.planned
    routine.changed routine.created routine.fired routine.removed routine.skipped tool.drafted tool.held
    tool.proposed tool.started tool.uncertain
    """.split()
)


class Table:
    """Rows in memory, as a store would keep them."""

    def __init__(self, stream: StreamId = SESSION) -> None:
        self.rows: dict[RowKey, Row] = {}
        self.stream = stream
        self.seq = 0

    def add(self, *items: Data | ErasedData, run_id: RunId | None = RUN, type_name: str = "") -> "Table":
        for data in items:
            self.seq += 1
            event = Event(
                seq=self.seq,
                position=self.seq,
                stream=self.stream,
                run_id=run_id,
                type=type_name or data.TYPE,
                at_ms=1_000 * self.seq,
                actor=ALICE,
                trust=Trust.OPERATOR,
                data=data,
                hash="",
                salt=None,
                digest="",
            )
            seen = {key: self.rows[key] for key in keys_of(event) if key in self.rows}
            for row in project(event, seen):
                assert RowKey(type(row), row.id) in keys_of(event), "a row it did not name beforehand"
                assert tape_of(row) == self.stream
                self.rows[RowKey(type(row), row.id)] = row
        return self

    def session(self) -> SessionRow:
        row = self.rows[RowKey(SessionRow, self.stream)]
        assert isinstance(row, SessionRow)
        return row

    def run(self) -> RunRow:
        row = self.rows[RowKey(RunRow, RUN)]
        assert isinstance(row, RunRow)
        return row


def test_session_row_follows_its_life() -> None:
    table = Table().add(CREATED, SessionLabelled(label="second"), SessionReset())
    row = table.session()
    assert (row.owner, row.key, row.label, row.reset_seq, row.seq) == (ALICE, "k", "second", 3, 3)


def test_branch_knows_its_parent() -> None:
    parent = Parent(session_id=SessionId(StreamId("01JZ0000000000000000PARENT")), seq=7, hash="00")
    row = Table().add(SessionBranched(owner=ALICE, agent="main", parent=parent)).session()
    assert (row.parent_id, row.parent_seq) == (parent.session_id, 7)


def test_session_is_created_once_and_first() -> None:
    with pytest.raises(Invalid, match="session_exists"):
        Table().add(CREATED, CREATED)
    with pytest.raises(Invalid, match="session_unknown"):
        Table().add(SessionReset())


def test_run_row_follows_its_life_and_frees_the_session() -> None:
    table = Table().add(CREATED, ACCEPTED, RunStarted())
    assert (table.run().state, table.session().active_run_id) == (RunState.IN_PROGRESS, RUN)
    table.add(MessageAssistant(text="a"), RunDone(reason=EndReason.FINAL_ANSWER, message=""))
    run = table.run()
    assert (run.state, run.reason, run.answer_seq, run.ended_seq) == (RunState.DONE, EndReason.FINAL_ANSWER, 4, 5)
    assert table.session().active_run_id is None


def test_one_active_run_a_session() -> None:
    other = RunId("01JZ0000000000000000RUN002")
    table = Table().add(CREATED, ACCEPTED, RunStarted()).add(ACCEPTED, run_id=other)
    with pytest.raises(Invalid, match="session_busy"):
        table.add(RunStarted(), run_id=other)


@pytest.mark.parametrize("data", [RunStarted(), RunDone(reason=EndReason.FINAL_ANSWER, message="")])
def test_illegal_lifecycle_events_are_refused(data: Data) -> None:
    with pytest.raises(Invalid, match="illegal_transition"):
        Table().add(CREATED, data)


def test_usage_sums_in_whole_billionths_and_counts_unknown_prices() -> None:
    spend = UsageRecorded(model="m", input_tokens=10, output_tokens=2, cached_tokens=4, cost_usd=0.1)
    unknown = UsageRecorded(model="m", input_tokens=1, output_tokens=1, cached_tokens=0, cost_usd=None)
    table = Table().add(CREATED, ACCEPTED, spend, spend, spend, unknown)
    run = table.run()
    assert (run.input_tokens, run.cost_nano_usd, run.unpriced_count) == (31, 300_000_000, 1)
    usage = [row for row in table.rows.values() if isinstance(row, UsageRow)]
    assert [(row.calls_count, row.cached_tokens, row.cost_nano_usd) for row in usage] == [(4, 12, 300_000_000)]


def test_approval_is_decided_once() -> None:
    table = Table().add(CREATED, ACCEPTED, REQUEST, ANSWER)
    row = table.rows[RowKey(ApprovalRow, APPROVAL)]
    assert isinstance(row, ApprovalRow)
    assert (row.status, row.resolved_seq, row.decided_by) == (ApprovalStatus.ALLOWED, 4, ALICE)
    with pytest.raises(Conflict, match="approval_decided"):
        table.add(ANSWER)


def test_answer_bound_to_another_call_is_refused() -> None:
    forged = ApprovalResolved(
        approval_id=APPROVAL, status=ApprovalStatus.ALLOWED, decision=Decision.ALLOW, decided_by=ALICE, digest="other"
    )
    with pytest.raises(Invalid, match="approval_mismatch"):
        Table().add(CREATED, ACCEPTED, REQUEST, forged)


def test_grant_comes_with_the_answer_and_is_revoked_once() -> None:
    table = Table().add(CREATED, ACCEPTED, REQUEST, ANSWER)
    revoked = GrantRevoked(grant_id=GRANT.grant_id)
    table.add(revoked)
    row = table.rows[RowKey(GrantRow, GRANT.grant_id)]
    assert isinstance(row, GrantRow)
    assert (row.granted_seq, row.revoked_seq) == (4, 5)
    with pytest.raises(Conflict, match="grant_revoked"):
        table.add(revoked)


def test_refusal_becomes_a_row_that_is_told_apart_and_revoked_once() -> None:
    refusal = Refusal(
        refusal_id=derive_grant_id(APPROVAL),
        tool="t",
        scope=Scope.SESSION,
        constraints=(),
        principal=ALICE,
        agent="main",
    )
    no = replace(ANSWER, status=ApprovalStatus.DENIED, decision=Decision.DENY, grant=None, refusal=refusal)
    table = Table().add(CREATED, ACCEPTED, REQUEST, no)
    row = table.rows[RowKey(GrantRow, refusal.refusal_id)]
    assert isinstance(row, GrantRow)
    assert (row.kind, row.scope, row.granted_seq) == (GrantKind.REFUSAL, Scope.SESSION, 4)
    table.add(GrantRevoked(grant_id=refusal.refusal_id))
    with pytest.raises(Conflict, match="grant_revoked"):
        table.add(GrantRevoked(grant_id=refusal.refusal_id))


def test_a_no_that_grants_is_refused() -> None:
    forged = replace(ANSWER, status=ApprovalStatus.DENIED, decision=Decision.DENY)
    with pytest.raises(Invalid, match="answer_mismatch"):
        Table().add(CREATED, ACCEPTED, REQUEST, forged)


def test_erased_session_keeps_its_shape_and_none_of_its_words() -> None:
    gone = ErasedData(erased="delete")
    table = Table().add(gone, type_name=CREATED.TYPE).add(gone, type_name=ACCEPTED.TYPE)
    table.add(gone, type_name="run.started").add(gone, type_name=REQUEST.TYPE).add(ANSWER)
    table.add(gone, type_name="run.failed")
    row = table.session()
    assert (row.is_erased, row.owner, row.key, row.label) == (True, "", None, None)
    assert table.run().state is RunState.FAILED
    assert not [row for row in table.rows.values() if isinstance(row, ApprovalRow | GrantRow)]


def test_every_event_type_is_projected_or_named_as_unprojected() -> None:
    assert not PROJECTED_TYPES & UNPROJECTED_TYPES
    assert set(DATA_TYPES) == PROJECTED_TYPES | UNPROJECTED_TYPES
