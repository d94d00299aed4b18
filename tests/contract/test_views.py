"""What every store's views promise: whose things they show, in which order, page by page."""

import pytest
from msgspec.structs import replace

from palyra.core.events.run import Ancestor, RunAccepted
from palyra.core.events.session import SessionCreated
from palyra.core.events.tool import (
    ApprovalKind,
    ApprovalResolved,
    ApprovalStatus,
    Decision,
    Grant,
    GrantRevoked,
    Refusal,
    Scope,
)
from palyra.core.ids import ApprovalId, Principal, RunId, SessionId, derive_approval_id, derive_grant_id, digest_call
from palyra.core.projections.rows import GrantKind
from palyra.core.run.states import TERMINAL, RunState
from palyra.ports.journal import Append, Journal
from palyra.ports.views import GrantFilter, RunFilter, SpendFilter
from tests.contract.conftest import Opened
from tests.support.journals import (
    ALICE,
    BOB,
    START_MS,
    Ids,
    approval_requested,
    draft,
    run_accepted,
    run_cycle,
    run_started,
    session_branched,
    session_created,
    usage_recorded,
)

pytestmark = pytest.mark.anyio


async def new_session(journal: Journal, ids: Ids, owner: Principal = ALICE, key: str | None = None) -> SessionId:
    session = ids.session()
    await journal.commit([Append(session, 0, (session_created(owner, key=key),))])
    return session


async def new_run(journal: Journal, ids: Ids, session: SessionId, actor: Principal = ALICE) -> RunId:
    run, head = ids.run(), await journal.head(session)
    assert head is not None
    await journal.commit([Append(session, head.seq, (run_accepted(run, actor),))])
    return run


def answer(approval_id: ApprovalId, cause: str, grant: Grant | None = None) -> ApprovalResolved:
    return ApprovalResolved(
        approval_id=approval_id,
        status=ApprovalStatus.ALLOWED,
        decision=Decision.ALLOW,
        decided_by=ALICE,
        digest=digest_call("shell.run", {"command": cause}),
        grant=grant,
    )


async def test_a_session_is_shown_to_its_owner_and_the_operator(opened: Opened, ids: Ids) -> None:
    session = await new_session(opened.journal, ids, key="main")
    for principal in (ALICE, None):
        row = await opened.sessions.session(session, principal)
        assert row is not None
        assert (row.id, row.owner, row.key) == (session, ALICE, "main")
    assert await opened.sessions.session(session, BOB) is None
    assert await opened.sessions.session_by_key("main", BOB) is None
    assert await opened.sessions.session(ids.session(), None) is None


async def test_sessions_come_in_order_page_by_page(opened: Opened, ids: Ids) -> None:
    mine = []
    for number in range(6):
        owner = BOB if number % 3 == 2 else ALICE
        session = await new_session(opened.journal, ids, owner)
        mine += [session] if owner == ALICE else []
    first = await opened.sessions.sessions(ALICE, "", 3)
    rest = await opened.sessions.sessions(ALICE, first[-1].id, 3)
    assert [row.id for row in (*first, *rest)] == mine
    assert len(await opened.sessions.sessions(None, "", 100)) == 6


async def test_a_label_finds_its_newest_session(opened: Opened, ids: Ids) -> None:
    old, new = ids.session(), ids.session()
    await opened.journal.commit([Append(session, 0, (session_created(label="work"),)) for session in (old, new)])
    found = await opened.sessions.session_by_label("work", ALICE)
    assert found is not None
    assert found.id == new
    assert await opened.sessions.session_by_label("work", BOB) is None


async def test_branches_name_their_parent(opened: Opened, ids: Ids) -> None:
    parent = ids.session()
    (first,) = await opened.journal.commit([Append(parent, 0, (session_created(),))])
    branches = [ids.session() for _ in range(2)]
    await opened.journal.commit([Append(branch, 0, (session_branched(first),)) for branch in branches])
    assert [(row.id, row.parent_id, row.parent_seq) for row in await opened.sessions.dependents(parent)] == [
        (branch, parent, 1) for branch in branches
    ]


async def test_a_run_is_shown_to_its_principal_and_to_the_owner_of_its_session(opened: Opened, ids: Ids) -> None:
    session = await new_session(opened.journal, ids)
    run = await new_run(opened.journal, ids, session, BOB)
    for principal in (ALICE, BOB, None):
        assert await opened.runs.run(run, principal) is not None
    assert await opened.runs.run(run, Principal("user:carol")) is None


async def test_a_run_row_follows_its_events(opened: Opened, ids: Ids) -> None:
    session, run = await new_session(opened.journal, ids), ids.run()
    await opened.journal.commit([Append(session, 1, tuple(run_cycle(run)))])
    row = await opened.runs.run(run, ALICE)
    assert row is not None
    assert (row.state, row.accepted_seq, row.answer_seq, row.ended_seq) == (RunState.DONE, 2, 13, 14)
    assert (row.input_tokens, row.output_tokens, row.cost_nano_usd) == (1200, 80, 2_100_000)


async def test_runs_of_a_session_come_in_order_page_by_page(opened: Opened, ids: Ids) -> None:
    session = await new_session(opened.journal, ids)
    runs = [await new_run(opened.journal, ids, session) for _ in range(5)]
    assert [row.id for row in await opened.runs.runs(session, "", 3)] == runs[:3]
    assert [row.id for row in await opened.runs.runs(session, runs[2], 3)] == runs[3:]


async def test_unfinished_runs_of_a_session_come_in_the_order_accepted(opened: Opened, ids: Ids) -> None:
    session, other = await new_session(opened.journal, ids), await new_session(opened.journal, ids)
    late, early, done = ids.run(), ids.run(), ids.run()
    await opened.journal.commit([Append(session, 1, (*run_cycle(done), run_accepted(early), run_accepted(late)))])
    await new_run(opened.journal, ids, other)
    assert [row.id for row in await opened.runs.unfinished(session)] == [early, late]


async def test_runs_are_found_by_state(opened: Opened, ids: Ids) -> None:
    session, done = await new_session(opened.journal, ids), ids.run()
    await opened.journal.commit([Append(session, 1, tuple(run_cycle(done)))])
    accepted, started = await new_run(opened.journal, ids, session), await new_run(opened.journal, ids, session)
    await opened.journal.commit([Append(session, 16, (run_started(started),))])
    found = [row.id for row in await opened.runs.runs_in(frozenset({RunState.ACCEPTED, RunState.IN_PROGRESS}), "", 10)]
    assert found == [accepted, started]
    assert [row.id for row in await opened.runs.runs_in(TERMINAL, "", 10)] == [done]
    assert [row.id for row in await opened.runs.runs_in(frozenset({RunState.ACCEPTED}), accepted, 10)] == []


async def test_usage_is_summed_by_model(opened: Opened, ids: Ids) -> None:
    session = await new_session(opened.journal, ids)
    run = await new_run(opened.journal, ids, session)
    spends = (usage_recorded(run), usage_recorded(run), usage_recorded(run, None, "large"))
    await opened.journal.commit([Append(session, 2, spends)])
    rows = {row.model: row for row in await opened.runs.usage(run)}
    assert (rows["small"].calls_count, rows["small"].cost_nano_usd) == (2, 4_200_000)
    assert (rows["large"].calls_count, rows["large"].unpriced_count) == (1, 1)


async def test_a_pending_approval_is_listed_for_those_it_concerns(opened: Opened, ids: Ids) -> None:
    session = await new_session(opened.journal, ids)
    run = await new_run(opened.journal, ids, session, BOB)
    asked = (approval_requested(run, "c1"), approval_requested(run, "c2"))
    await opened.journal.commit([Append(session, 2, asked)])
    wanted = [derive_approval_id(run, cause, 1) for cause in ("c1", "c2")]
    for principal in (ALICE, BOB, None):
        assert [
            row.id for row in await opened.approvals.list_approvals(principal, ApprovalStatus.PENDING, "", 10)
        ] == wanted
        assert await opened.approvals.approval(wanted[0], principal) is not None
    stranger = Principal("user:carol")
    assert await opened.approvals.list_approvals(stranger, ApprovalStatus.PENDING, "", 10) == ()
    assert await opened.approvals.approval(wanted[0], stranger) is None
    assert [
        row.id for row in await opened.approvals.list_approvals(None, ApprovalStatus.PENDING, wanted[0], 10)
    ] == wanted[1:]


async def test_everyones_things_are_listed_for_nobody_in_particular(opened: Opened, ids: Ids) -> None:
    """None is who may see all; everybody else sees what concerns them."""
    wanted = {}
    for owner in (ALICE, BOB):
        session = await new_session(opened.journal, ids, owner)
        run = await new_run(opened.journal, ids, session, owner)
        await opened.journal.commit([Append(session, 2, (approval_requested(run),))])
        wanted[owner] = (run, derive_approval_id(run, "c1", 1))
    for principal, owners in ((None, (ALICE, BOB)), (ALICE, (ALICE,)), (Principal("user:carol"), ())):
        runs = await opened.runs.list_runs(principal, RunFilter())
        approvals = await opened.approvals.list_approvals(principal, None, "", 10)
        assert {row.id for row in runs} == {wanted[owner][0] for owner in owners}
        assert {row.id for row in approvals} == {wanted[owner][1] for owner in owners}


async def test_an_answered_approval_is_pending_no_more(opened: Opened, ids: Ids) -> None:
    session = await new_session(opened.journal, ids)
    run = await new_run(opened.journal, ids, session)
    approval_id = derive_approval_id(run, "c1", 1)
    await opened.journal.commit([Append(session, 2, (approval_requested(run), draft(answer(approval_id, "c1"), run)))])
    assert await opened.approvals.list_approvals(None, ApprovalStatus.PENDING, "", 10) == ()
    row = await opened.approvals.approval(approval_id, ALICE)
    assert row is not None
    assert (row.status, row.resolved_seq, row.decided_by) == (ApprovalStatus.ALLOWED, 4, ALICE)


async def test_an_uncertain_call_is_in_doubt_in_every_session_of_its_principal_until_answered(
    opened: Opened, ids: Ids
) -> None:
    session = await new_session(opened.journal, ids)
    run = await new_run(opened.journal, ids, session, BOB)
    asked = (approval_requested(run, "c1", ApprovalKind.UNCERTAIN), approval_requested(run, "c2"))
    await opened.journal.commit([Append(session, 2, asked)])
    digests = [digest_call("shell.run", {"command": cause}) for cause in ("c1", "c2", "c3")]
    for principal, doubted in ((ALICE, True), (BOB, True), (Principal("user:carol"), False)):
        found = [await opened.approvals.is_doubted(principal, digest) for digest in digests]
        assert found == [doubted, False, False]
    done = replace(answer(derive_approval_id(run, "c1", 1), "c1"), decision=Decision.DONE)
    await opened.journal.commit([Append(session, 4, (draft(done, run),))])
    assert not await opened.approvals.is_doubted(ALICE, digests[0])


async def test_the_open_questions_of_a_session_are_its_own_alone(opened: Opened, ids: Ids) -> None:
    session = await new_session(opened.journal, ids)
    run = await new_run(opened.journal, ids, session)
    await opened.journal.commit([Append(session, 2, (approval_requested(run, "c1", ApprovalKind.UNCERTAIN),))])
    other = await new_session(opened.journal, ids)
    assert await opened.approvals.pending_of(other) == ()
    (question,) = await opened.approvals.pending_of(session)
    assert (question.kind, question.digest) == (ApprovalKind.UNCERTAIN, digest_call("shell.run", {"command": "c1"}))


async def test_a_grant_is_listed_until_it_is_revoked(opened: Opened, ids: Ids) -> None:
    session = await new_session(opened.journal, ids)
    run = await new_run(opened.journal, ids, session)
    approval_id = derive_approval_id(run, "c1", 1)
    grant = Grant(
        grant_id=derive_grant_id(approval_id),
        tool="shell.run",
        scope=Scope.SESSION,
        constraints=(),
        taint=(),
        principal=ALICE,
        agent="default",
    )
    resolved = draft(answer(approval_id, "c1", grant), run)
    await opened.journal.commit([Append(session, 2, (approval_requested(run), resolved))])
    assert [row.id for row in await opened.approvals.grants(ALICE, "", 10)] == [grant.grant_id]
    assert [row.id for row in await opened.approvals.grants(None, "", 10)] == [grant.grant_id]
    assert await opened.approvals.grants(BOB, "", 10) == ()
    await opened.journal.commit([Append(session, 4, (draft(GrantRevoked(grant_id=grant.grant_id)),))])
    assert await opened.approvals.grants(ALICE, "", 10) == ()


async def test_refusals_are_found_apart_from_grants_in_the_sessions_named(opened: Opened, ids: Ids) -> None:
    session, other = await new_session(opened.journal, ids), await new_session(opened.journal, ids)
    run = await new_run(opened.journal, ids, session)
    approval_id = derive_approval_id(run, "c1", 1)
    refusal = Refusal(
        refusal_id=derive_grant_id(approval_id),
        tool="shell.run",
        scope=Scope.SESSION,
        constraints=(),
        principal=ALICE,
        agent="default",
    )
    no = replace(answer(approval_id, "c1"), status=ApprovalStatus.DENIED, decision=Decision.DENY, refusal=refusal)

    async def found(kind: GrantKind, *sessions: SessionId, principal: Principal = ALICE) -> list[str]:
        wish = GrantFilter(
            kind=kind, principal=principal, tool="shell.run", session_ids=sessions, now_ms=START_MS, limit=10
        )
        return [row.id for row in await opened.approvals.grants_for(wish)]

    assert await found(GrantKind.REFUSAL, other, session) == []
    await opened.journal.commit([Append(session, 2, (approval_requested(run), draft(no, run)))])
    assert await found(GrantKind.REFUSAL, other, session) == [refusal.refusal_id]
    assert await found(GrantKind.REFUSAL, other) == []
    assert await found(GrantKind.GRANT, session) == []
    assert await found(GrantKind.REFUSAL, session, principal=BOB) == []
    assert [row.kind for row in await opened.approvals.grants(ALICE, "", 10)] == [GrantKind.REFUSAL]


async def given(opened: Opened, ids: Ids, session: SessionId, grant: Grant) -> None:
    """This grant, by an answer of a new run of the session."""
    run, head = ids.run(), await opened.journal.head(session)
    assert head is not None
    approval_id = derive_approval_id(run, "c1", 1)
    named = replace(grant, grant_id=derive_grant_id(approval_id))
    events = (run_accepted(run), approval_requested(run), draft(answer(approval_id, "c1", named), run))
    await opened.journal.commit([Append(session, head.seq, events)])


@pytest.mark.parametrize(
    ("change", "reached"),
    [
        ({"scope": Scope.TIMEBOXED, "expires_at_ms": START_MS + 10}, "here there"),
        ({"scope": Scope.SESSION}, "here"),
        ({"scope": Scope.TIMEBOXED, "expires_at_ms": START_MS}, ""),
        ({"scope": Scope.TIMEBOXED, "tool": "fs.write"}, ""),
        ({"scope": Scope.TIMEBOXED, "principal": BOB}, ""),
    ],
)
async def test_sessions_whose_questions_a_grant_may_answer(
    opened: Opened, ids: Ids, change: dict[str, object], reached: str
) -> None:
    sessions = {name: await new_session(opened.journal, ids) for name in ("here", "there", "idle")}
    sessions["bobs"] = await new_session(opened.journal, ids, BOB)
    for name in ("here", "there"):
        run = await new_run(opened.journal, ids, sessions[name])
        await opened.journal.commit([Append(sessions[name], 2, (approval_requested(run),))])
    shape = Grant(
        grant_id=derive_grant_id(ApprovalId("")),
        tool="shell.run",
        scope=Scope.SESSION,
        constraints=(),
        taint=(),
        principal=ALICE,
        agent="default",
    )
    await given(opened, ids, sessions["here"], replace(shape, **change))
    (row,) = await opened.approvals.grants(None, "", 10)
    wanted = {sessions[name] for name in reached.split()}
    for grant_id in (row.id, None):
        assert set(await opened.approvals.sessions_awaiting(grant_id, START_MS, 10)) == wanted
    assert await opened.approvals.sessions_awaiting(derive_grant_id(ApprovalId("x")), START_MS, 10) == ()
    head = await opened.journal.head(sessions["here"])
    assert head is not None
    await opened.journal.commit([Append(sessions["here"], head.seq, (draft(GrantRevoked(grant_id=row.id)),))])
    assert await opened.approvals.sessions_awaiting(row.id, START_MS, 10) == ()


async def test_approvals_are_listed_in_the_order_asked_page_by_page(opened: Opened, ids: Ids) -> None:
    session = await new_session(opened.journal, ids)
    run = await new_run(opened.journal, ids, session)
    causes = [f"c{n}" for n in range(7)]
    await opened.journal.commit([Append(session, 2, tuple(approval_requested(run, cause) for cause in causes))])
    wanted = [derive_approval_id(run, cause, 1) for cause in causes]
    assert wanted != sorted(wanted)
    first = await opened.approvals.list_approvals(ALICE, ApprovalStatus.PENDING, "", 4)
    rest = await opened.approvals.list_approvals(ALICE, None, first[-1].id, 4)
    assert [row.id for row in (*first, *rest)] == wanted
    assert await opened.approvals.list_approvals(ALICE, ApprovalStatus.DENIED, "", 4) == ()
    assert await opened.approvals.list_approvals(BOB, None, "", 4) == ()


async def delegated(
    journal: Journal, ids: Ids, parent: tuple[SessionId, RunId], cost_usd: float = 0.0
) -> tuple[SessionId, RunId]:
    """A run that another one delegated, on a tape of its own, with what it spent."""
    session, run = ids.session(), ids.run()
    above = Ancestor(run_id=parent[1], session_id=parent[0], agent="main", origin="api", tools=("*",))
    accepted = run_accepted(run)
    assert isinstance(accepted.data, RunAccepted)
    created = SessionCreated(owner=ALICE, agent="main", purpose="delegation", serves=parent[0])
    drafts = (draft(created), replace(accepted, data=replace(accepted.data, lineage=(above,), origin="delegation")))
    await journal.commit([Append(session, 0, (*drafts, usage_recorded(run, cost_usd)))])
    return session, run


async def test_delegated_runs_are_found_by_their_parent_and_left_out_of_lists(opened: Opened) -> None:
    journal, views, ids = opened.journal, opened, Ids()
    session = await new_session(journal, ids)
    run = await new_run(journal, ids, session)
    child_session, child = await delegated(journal, ids, (session, run))
    assert [row.id for row in await views.runs.children(run, ALICE)] == [child]
    assert [row.parent_run_id for row in await views.runs.children(run, None)] == [run]
    assert await views.runs.children(run, BOB) == ()
    assert await views.runs.children(child, ALICE) == ()
    assert [row.id for row in await views.runs.list_runs(ALICE, RunFilter())] == [run]
    assert {row.id for row in await views.runs.list_runs(ALICE, RunFilter(has_delegated=True))} == {run, child}
    assert [row.id for row in await views.runs.list_runs(ALICE, RunFilter(session_id=child_session))] == [child]
    assert [row.id for row in await views.sessions.sessions(ALICE, "", 9)] == [session]
    both = await views.sessions.sessions(ALICE, "", 9, has_delegated=True)
    assert {row.id for row in both} == {session, child_session}
    assert await views.sessions.sessions(BOB, "", 9, has_delegated=True) == ()
    assert [row.id for row in await views.sessions.dependents(session)] == [child_session]


async def test_spend_of_delegated_runs_counts_for_all_above_them(opened: Opened) -> None:
    journal, views, ids = opened.journal, opened, Ids()
    session = await new_session(journal, ids)
    run = await new_run(journal, ids, session)
    first = await delegated(journal, ids, (session, run), cost_usd=0.25)
    second = await delegated(journal, ids, first, cost_usd=0.5)
    row = await views.runs.run(run, None)
    assert row is not None
    for wanted, cost in (
        (SpendFilter(since_ms=0, run_id=run), 0.75),
        (SpendFilter(since_ms=0, run_id=first[1]), 0.75),
        (SpendFilter(since_ms=0, run_id=second[1]), 0.5),
        (SpendFilter(since_ms=0, session_id=session), 0.75),
        (SpendFilter(since_ms=0, session_id=second[0]), 0.5),
        (SpendFilter(since_ms=0, agent=row.agent), 0.75),
        (SpendFilter(since_ms=0, channel=row.origin), 0.75),
        (SpendFilter(since_ms=0, agent="other"), 0.0),
        (SpendFilter(since_ms=0, channel="delegation"), 0.0),
        (SpendFilter(since_ms=0, principal=ALICE), 0.75),
    ):
        assert (await views.usage.spent(wanted)).nano_usd == round(cost * 1e9), wanted
