"""Refusals through the engine: a no that lasts denies equal calls without a question, also after a restart."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from palyra.adapters.providers.prepared_turns import Turn
from palyra.adapters.providers.scripted import Script
from palyra.core.errors import Conflict, Invalid
from palyra.core.events import Event
from palyra.core.events.tool import (
    ApprovalResolved,
    ApprovalStatus,
    Decision,
    Outcome,
    Scope,
    ToolFinished,
    ToolJudged,
    Verdict,
)
from palyra.core.ids import Principal
from palyra.engine.api.requests import ApprovalAnswer, ApprovalRecord, ApprovalsQuery, RunRecord
from palyra.engine.engine import Engine
from palyra.engine.session import earlier_answers
from palyra.engine.session.grant_fanout import GrantFanout
from palyra.ports.policy import PolicyAnswer, PolicyQuestion
from tests.support.asking import ask, calls, finished, says
from tests.support.delegating import child_begun, delegates, delegating, events_of
from tests.support.engines import ALICE, OWNER, Workshop
from tests.support.journals import FixedClock
from tests.support.policies import PermitsModels
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

SEND = calls("mark.send", text="mail")
DONE = says("Done.")


class Changeable(PermitsModels):
    """A policy whose verdict a test changes."""

    def __init__(self) -> None:
        self.verdict = Verdict.ASK

    def judge(self, question: PolicyQuestion) -> PolicyAnswer:
        return PolicyAnswer(verdict=self.verdict, rule="changeable", reason="")


def workshop_at(root: Path, *turns: Turn) -> Workshop:
    return Workshop(root, [Script(turns=turns)])


async def asked(
    engine: Engine, session: str = "s", principal: Principal = OWNER, text: str = "go"
) -> tuple[RunRecord, ApprovalRecord]:
    record = await engine.runs.start(principal, ask(text, session_key=session))
    async for frame in await engine.runs.follow(principal, record.id, None):
        if frame.type == "run.waiting":
            break
    cards = await engine.approvals.list(principal, ApprovalsQuery(status=ApprovalStatus.PENDING))
    return record, next(card for card in cards if card.run_id == record.id)


async def answer(engine: Engine, card: ApprovalRecord, decision: Decision, scope: Scope, **more: object) -> None:
    given = ApprovalAnswer(decision=decision, scope=scope, **more)  # type: ignore[arg-type]
    await engine.approvals.answer(OWNER, card.id, given)


async def run(engine: Engine, session: str = "s", principal: Principal = OWNER) -> list[Event]:
    return await finished(engine, await engine.runs.start(principal, ask(session_key=session)), principal)


async def waiting_cards(engine: Engine, count: int) -> Sequence[ApprovalRecord]:
    async def are_there() -> bool:
        return len(await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))) == count

    await until(are_there)
    return await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))


def verdicts(events: Sequence[Event]) -> list[tuple[Verdict, str]]:
    return [(event.data.verdict, event.data.rule) for event in events if isinstance(event.data, ToolJudged)]


REFUSED = [(Verdict.DENY, "refused_before")]


async def test_refused_call_is_denied_without_a_question_and_the_model_is_told_not_to_try_again(tmp_path: Path) -> None:
    workshop = workshop_at(tmp_path, SEND, DONE)
    async with workshop.open() as engine:
        record, card = await asked(engine)
        await answer(engine, card, Decision.DENY, Scope.SESSION, reason="we do not mail")
        (first,) = [each.data for each in await finished(engine, record) if isinstance(each.data, ToolFinished)]
        assert first.error is not None
        assert "Do not try it again" in first.error.message
        events = await run(engine)
        assert verdicts(events) == REFUSED
        (judged,) = [each.data for each in events if isinstance(each.data, ToolJudged)]
        (refusal,) = await engine.approvals.grants(OWNER, "", 10)
        assert (refusal.kind, refusal.scope, judged.refused_by) == ("refusal", "session", refusal.id)
        (done,) = [each.data for each in events if isinstance(each.data, ToolFinished)]
        assert (done.outcome, done.error and done.error.code) == (Outcome.DENIED, "refused_before")
        assert done.error is not None
        assert "we do not mail" in done.error.message
        assert "Do not try this again" in done.error.message
        assert not [event for event in events if event.type == "approval.requested"]
    assert workshop.executed() == []


async def test_refusal_of_a_session_survives_a_restart_and_ends_with_its_reset(tmp_path: Path) -> None:
    workshop = workshop_at(tmp_path, SEND, DONE)
    async with workshop.open() as engine:
        record, card = await asked(engine)
        await answer(engine, card, Decision.DENY, Scope.SESSION)
        await finished(engine, record)
    async with workshop.open() as engine:
        assert verdicts(await run(engine)) == REFUSED
        await asked(engine, "elsewhere")
        await engine.sessions.reset(OWNER, record.session_id)
        await asked(engine)
    assert workshop.executed() == []


async def test_timeboxed_refusal_holds_in_all_sessions_of_its_principal_until_its_time_is_over(tmp_path: Path) -> None:
    workshop = workshop_at(tmp_path, SEND, DONE)
    clock = workshop.clock = FixedClock()
    async with workshop.open() as engine:
        _, card = await asked(engine)
        await answer(engine, card, Decision.DENY, Scope.TIMEBOXED, ttl_s=60)
        assert verdicts(await run(engine, "other")) == REFUSED
        await asked(engine, "alices", ALICE)
        assert await engine.approvals.grants(ALICE, "", 10) == ()
        clock.advance(61_000)
        await asked(engine, "later")


async def test_refusal_wins_over_a_grant_and_over_a_policy_that_allows(tmp_path: Path) -> None:
    workshop = workshop_at(tmp_path, SEND, DONE)
    workshop.policy = policy = Changeable()
    async with workshop.open() as engine:
        first, card = await asked(engine, "a")
        second, other = await asked(engine, "b")
        await answer(engine, card, Decision.DENY, Scope.SESSION)
        await answer(engine, other, Decision.ALLOW, Scope.TIMEBOXED)
        await finished(engine, first)
        await finished(engine, second)
        assert verdicts(await run(engine, "a")) == REFUSED
        assert verdicts(await run(engine, "b")) == [(Verdict.ALLOW, "grant")]
        policy.verdict = Verdict.ALLOW
        assert verdicts(await run(engine, "a")) == REFUSED
    assert len(workshop.executed()) == 2


async def test_revoked_refusal_lets_the_call_ask_again(tmp_path: Path) -> None:
    async with workshop_at(tmp_path, SEND, DONE).open() as engine:
        record, card = await asked(engine)
        await answer(engine, card, Decision.DENY, Scope.SESSION)
        await finished(engine, record)
        (refusal,) = await engine.approvals.grants(OWNER, "", 10)
        assert (await engine.approvals.revoke(OWNER, refusal.id)).is_revoked
        await asked(engine)


async def test_refusal_answers_open_questions_that_it_covers(tmp_path: Path) -> None:
    workshop = workshop_at(tmp_path, SEND, DONE)
    async with workshop.open() as engine:
        first, card = await asked(engine, "a")
        second, _ = await asked(engine, "b")
        await answer(engine, card, Decision.DENY, Scope.TIMEBOXED)
        await finished(engine, first)
        (refusal,) = await engine.approvals.grants(OWNER, "", 10)
        events = await finished(engine, second)
        (resolved,) = [each.data for each in events if isinstance(each.data, ApprovalResolved)]
        assert (resolved.status, resolved.covered_by) == (ApprovalStatus.DENIED, refusal.id)
        assert (resolved.decided_by, resolved.reason) == (OWNER, "refused_before")
    assert workshop.executed() == []


async def test_refusal_given_right_before_a_crash_answers_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GrantFanout, "spread", lambda fanout, grant_id: None)
    workshop = workshop_at(tmp_path, SEND, DONE)
    async with workshop.open() as engine:
        first, card = await asked(engine, "a")
        second, _ = await asked(engine, "b")
        await answer(engine, card, Decision.DENY, Scope.TIMEBOXED)
        await finished(engine, first)
    async with workshop.open() as engine:
        assert (await finished(engine, second))[-1].type == "run.done"
    assert workshop.executed() == []


async def test_refusal_by_an_option_covers_its_shape_and_nothing_wider(tmp_path: Path) -> None:
    turns = [calls("fs.write", path=f"{path}", content="") for path in (".githooks/a", ".githooks/b", ".husky/c")]
    async with workshop_at(tmp_path, *turns, DONE).open() as engine:
        record, card = await asked(engine)
        folder = next(i for i, each in enumerate(card.options) if "in .githooks/, in this session" in each.text)
        await answer(engine, card, Decision.DENY, Scope.ONCE, option=folder)
        (later,) = [each for each in await waiting_cards(engine, count=1) if each.touches.paths == (".husky/c",)]
        await answer(engine, later, Decision.DENY, Scope.ONCE)
        events = await finished(engine, record)
    assert [rule for _, rule in verdicts(events)] == ["run_outside", "refused_before", "run_outside"]


async def test_what_a_session_was_refused_is_refused_to_the_runs_it_delegates(tmp_path: Path) -> None:
    made = delegating(tmp_path, ("^go$", (SEND, delegates("send"), DONE)), ("^send$", (SEND, says("I could not."))))
    async with made.open() as engine:
        record, card = await asked(engine)
        await answer(engine, card, Decision.DENY, Scope.SESSION)
        (child,) = await child_begun(engine, record.id)
        await finished(engine, record)
        assert verdicts(await events_of(engine, child)) == REFUSED
    assert made.executed() == []


async def test_scope_on_a_no_that_offers_none_is_an_error_and_decides_nothing(tmp_path: Path) -> None:
    async with workshop_at(tmp_path, SEND, DONE).open() as engine:
        _, card = await asked(engine)
        with pytest.raises(Invalid, match="option_unknown"):
            await answer(engine, card, Decision.DENY, Scope.SESSION, option=40)
        assert (await engine.approvals.get(OWNER, card.id)).status == "pending"


async def test_an_old_no_is_not_pushed_out_and_a_new_one_beyond_the_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(earlier_answers, "PAGE_ROWS", 2)
    monkeypatch.setattr(earlier_answers, "REFUSALS_MAX", 5)
    scripts = [Script(when=f"mail{n}", turns=(calls("mark.send", text=f"mail {n}"), DONE)) for n in range(6)]
    workshop = Workshop(tmp_path, scripts)
    async with workshop.open() as engine:
        for number in range(5):
            record, card = await asked(engine, text=f"mail{number}")
            await answer(engine, card, Decision.DENY, Scope.SESSION)
            await finished(engine, record)
        record, card = await asked(engine, text="mail5")
        with pytest.raises(Conflict, match="palyra approvals grants") as refused:
            await answer(engine, card, Decision.DENY, Scope.SESSION)
        assert refused.value.code == "refusals_full"
        await answer(engine, card, Decision.DENY, Scope.ONCE)
        await finished(engine, record)
        again = await engine.runs.start(OWNER, ask("mail0", session_key="s"))
        assert verdicts(await finished(engine, again)) == REFUSED
        await engine.sessions.reset(OWNER, record.session_id)
        record, card = await asked(engine, text="mail5")
        await answer(engine, card, Decision.DENY, Scope.SESSION)
    assert workshop.executed() == []
