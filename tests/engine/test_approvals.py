"""Approvals through the engine: one card for calls that are alike, grants that answer open questions, waiting for days."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from palyra.adapters.providers.prepared_turns import PreparedCall, Turn
from palyra.adapters.providers.scripted import Script
from palyra.core.errors import Conflict
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
from palyra.core.ids import digest_call
from palyra.core.trust import Trust
from palyra.engine.api.requests import ApprovalAnswer, ApprovalRecord, ApprovalsQuery, RunRecord, RunRequest
from palyra.engine.engine import Engine
from palyra.engine.session.grant_fanout import GrantFanout
from palyra.engine.setup import EngineSettings
from palyra.ports.policy import PolicyAnswer, PolicyQuestion
from tests.support.asking import ask, calls, finished, says, wait_for
from tests.support.engines import ALICE, OWNER, Workshop
from tests.support.journals import FixedClock
from tests.support.policies import PermitsModels
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

REGULAR_TASKS = {
    "deadlines", "checkpoints", "heartbeats", "jobs", "job leases", "routines", "upkeep", "vectors", "watchdog",
}  # fmt: skip

DAY_MS = 24 * 3600 * 1000
WRITES = tuple(PreparedCall("fs.write", {"path": f".git/hooks/{n}", "content": f"line {n}\n"}) for n in range(12))
MAILS = Turn(calls=tuple(PreparedCall("mark.send", {"text": text}) for text in ("a", "a", "b", "a")))
DONE = says("Done.")


class AskByPath(PermitsModels):
    """Asks about every path by a rule of its own."""

    def judge(self, question: PolicyQuestion) -> PolicyAnswer:
        return PolicyAnswer(verdict=Verdict.ASK, rule=str(question.arguments["path"]), reason="")


def workshop_at(root: Path, *turns: Turn, settings: EngineSettings | None = None) -> Workshop:
    return Workshop(root, [Script(turns=turns)], settings)


async def waiting(engine: Engine, session: str = "s") -> RunRecord:
    record = await engine.runs.start(OWNER, ask(session_key=session))
    await wait_for(engine, record.id, "run.waiting")
    return record


async def pending(engine: Engine) -> Sequence[ApprovalRecord]:
    return await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))


async def allow(engine: Engine, card: ApprovalRecord, scope: Scope = Scope.ONCE, option: int | None = None) -> None:
    await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW, scope=scope, option=option))


def answers(events: Sequence[Event]) -> list[ApprovalResolved]:
    return [event.data for event in events if isinstance(event.data, ApprovalResolved)]


async def test_twelve_writes_into_one_folder_are_one_card(tmp_path: Path) -> None:
    workshop = workshop_at(tmp_path, Turn(calls=WRITES), DONE)
    async with workshop.open() as engine:
        record = await waiting(engine)
        (card,) = await pending(engine)
        assert (card.count, card.tool, len(card.calls)) == (12, "fs.write", 12)
        assert [call.arguments for call in card.calls] == [call.arguments for call in WRITES]
        assert [call.digest for call in card.calls] == [digest_call("fs.write", call.arguments) for call in WRITES]
        assert card.touches.paths == tuple(f".git/hooks/{n}" for n in range(12))
        assert card.calls[3].touches.paths == (".git/hooks/3",)
        assert "line 3" in (card.calls[3].preview or "")
        assert all(f"line {n}" in (card.preview or "") for n in range(12))
        assert card.reason
        await allow(engine, card)
        events = await finished(engine, record)
    assert len([event for event in events if isinstance(event.data, ToolJudged)]) == 12
    outcomes = [event.data.outcome for event in events if isinstance(event.data, ToolFinished)]
    assert outcomes == [Outcome.OK] * 12
    assert len(list((workshop.workspace / ".git/hooks").iterdir())) == 12


async def test_yes_to_a_group_allows_its_calls_and_no_later_ones(tmp_path: Path) -> None:
    workshop = workshop_at(tmp_path, MAILS, calls("mark.send", text="a"), DONE)
    async with workshop.open() as engine:
        record = await waiting(engine)
        first, second = await pending(engine)
        assert (first.count, second.count) == (3, 1)
        await allow(engine, first)
        await allow(engine, second)

        async def is_one_left() -> bool:
            return len(await pending(engine)) == 1

        await until(is_one_left)
        (third,) = await pending(engine)
        assert len(workshop.executed()) == 4
        await engine.approvals.answer(OWNER, third.id, ApprovalAnswer(decision=Decision.DENY))
        await finished(engine, record)
    assert len(workshop.executed()) == 4


async def test_group_is_answered_after_a_restart(tmp_path: Path) -> None:
    workshop = workshop_at(tmp_path, MAILS, DONE)
    async with workshop.open() as engine:
        record = await waiting(engine)
    async with workshop.open() as engine:
        for card in await pending(engine):
            await allow(engine, card)
        await finished(engine, record)
    assert len(workshop.executed()) == 4


async def test_answer_in_one_place_closes_the_question_in_all(tmp_path: Path) -> None:
    async with workshop_at(tmp_path, MAILS, DONE).open() as engine:
        record = await waiting(engine)
        followers = [asyncio.create_task(finished(engine, record)) for _ in range(2)]
        cards = await pending(engine)
        for card in cards:
            await allow(engine, card)
            with pytest.raises(Conflict, match="approval_decided"):
                await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.DENY))
        assert await pending(engine) == ()
        for events in await asyncio.gather(*followers):
            assert [answer.approval_id for answer in answers(events)] == [card.id for card in cards]


async def test_time_limited_grant_answers_open_questions_of_all_sessions(tmp_path: Path) -> None:
    workshop = workshop_at(tmp_path, calls("mark.send", text="mail"), DONE)
    async with workshop.open() as engine:
        records = [await waiting(engine, session) for session in "abc"]
        first = (await pending(engine))[0]
        await allow(engine, first, Scope.TIMEBOXED)
        tapes = [await finished(engine, record) for record in records]
        (grant,) = await engine.approvals.grants(OWNER, "", 10)
        for events in tapes[1:]:
            (answer,) = answers(events)
            assert (answer.status, answer.decided_by, answer.covered_by) == (ApprovalStatus.ALLOWED, OWNER, grant.id)
            assert answer.reason == f"covered by grant {grant.id}"
            assert answer.grant is None
        cards = await engine.approvals.list(OWNER, ApprovalsQuery())
        assert [card.covered_by for card in cards] == [None, grant.id, grant.id]
    assert len(workshop.executed()) == 3


async def test_grant_of_a_session_answers_there_and_nowhere_else(tmp_path: Path) -> None:
    """Two policies asked about two files of one folder, so there are two cards; a grant for the folder answers both."""
    twice = Turn(calls=tuple(PreparedCall("fs.write", {"path": f"n/{name}", "content": ""}) for name in "ab"))
    workshop = workshop_at(tmp_path, twice, DONE)
    workshop.policy = AskByPath()
    async with workshop.open() as engine:
        here, there = await waiting(engine, "here"), await waiting(engine, "there")
        first, second = [card for card in await pending(engine) if card.session_id == here.session_id]
        await allow(engine, first, option=2)
        answered = answers(await finished(engine, here))
        assert [(answer.approval_id, answer.decided_by) for answer in answered] == [
            (first.id, OWNER),
            (second.id, OWNER),
        ]
        assert [answer.covered_by is not None for answer in answered] == [False, True]
        await settled(engine)
        assert [card.session_id for card in await pending(engine)] == [there.session_id] * 2


@pytest.mark.parametrize("change", ["text", "principal", "revoked"])
async def test_grant_answers_no_question_that_it_does_not_cover(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = [
        Script(when="one", turns=(calls("mark.send", text="one"), DONE)),
        Script(turns=(calls("mark.send", text="two" if change == "text" else "one"), DONE)),
    ]
    workshop = Workshop(tmp_path, scripts)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask("one", session_key="a"))
        await wait_for(engine, record.id, "run.waiting")
        who = ALICE if change == "principal" else OWNER
        other = await engine.runs.start(who, ask("other", session_key="b"))
        frames = await engine.runs.follow(who, other.id, None)
        async for frame in frames:
            if frame.type == "run.waiting":
                break
        if change == "revoked":
            monkeypatch.setattr(GrantFanout, "spread", lambda fanout, grant_id: None)
        card = next(card for card in await pending(engine) if card.run_id == record.id)
        await allow(engine, card, Scope.TIMEBOXED)
        await finished(engine, record)
        if change == "revoked":
            (grant,) = await engine.approvals.grants(OWNER, "", 10)
            await engine.approvals.revoke(OWNER, grant.id)
            await engine._parts.loops._fanout.reconsider(None)
        await settled(engine)
        assert (await engine.runs.get(who, other.id)).state == "waiting"
    assert len(workshop.executed()) == 1


async def test_grant_given_right_before_a_crash_answers_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GrantFanout, "spread", lambda fanout, grant_id: None)
    workshop = workshop_at(tmp_path, calls("mark.send", text="mail"), DONE)
    async with workshop.open() as engine:
        first, second = await waiting(engine, "a"), await waiting(engine, "b")
        await allow(engine, (await pending(engine))[0], Scope.TIMEBOXED)
        await finished(engine, first)
        assert [card.run_id for card in await pending(engine)] == [second.id]
    async with workshop.open() as engine:
        (answer,) = answers(await finished(engine, second))
        assert answer.covered_by is not None
    assert len(workshop.executed()) == 2


async def test_answer_that_comes_after_its_time_is_refused(tmp_path: Path) -> None:
    workshop = workshop_at(tmp_path, calls("mark.send", text="mail"), DONE)
    workshop.clock = clock = FixedClock()
    async with workshop.open() as engine:
        record = await waiting(engine)
        (card,) = await pending(engine)
        clock.advance(900_000)
        with pytest.raises(Conflict, match="approval_expired"):
            await allow(engine, card)
        await finished(engine, record)
    assert workshop.executed() == []


async def test_run_waits_for_days_as_one_entry_of_a_heap(tmp_path: Path) -> None:
    settings = EngineSettings(approval_timeout_ms=30 * DAY_MS)
    workshop = workshop_at(tmp_path, calls("mark.send", text="mail"), DONE, settings=settings)
    workshop.clock = clock = FixedClock()
    async with workshop.open() as engine:
        record = await waiting(engine)
        await settled(engine)
        deadlines = engine._parts.deadlines
        before = engine._parts.tasks.names
        for _ in range(10):
            clock.advance(DAY_MS)
            deadlines.look_at_clock()
            await settled(engine)
        assert deadlines._heap == [(clock.at_ms + 20 * DAY_MS, record.session_id)]
        assert engine._parts.tasks.names == before == REGULAR_TASKS
        (card,) = await pending(engine)
        await allow(engine, card)
        await finished(engine, record)
        await settled(engine)  # The row is durable a moment before its loop hears of it.
        assert deadlines._due == {}
    assert len(workshop.executed()) == 1


async def settled(engine: Engine) -> None:
    """Until every loop is idle and nothing but the daemon's own tasks is left."""
    await asyncio.sleep(0.001)
    await until(lambda: engine._parts.tasks.names <= REGULAR_TASKS, "rest")


@pytest.mark.parametrize(
    ("origin", "waits_headless", "is_asked"),
    [
        ("http", False, True),
        ("routine:nightly", False, False),
        ("v1", False, False),
        ("webhook:shop", False, False),
        ("channel:discord", False, False),
        ("something new", False, False),
        ("routine:nightly", True, True),
        ("v1", True, True),
    ],
)
async def test_who_can_be_asked_follows_from_the_origin(
    tmp_path: Path, origin: str, waits_headless: bool, is_asked: bool
) -> None:
    settings = EngineSettings(waits_headless=waits_headless)
    workshop = workshop_at(tmp_path, calls("mark.send", text="mail"), DONE, settings=settings)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, RunRequest(text="go", trust=Trust.OPERATOR, origin=origin))
        if is_asked:
            await wait_for(engine, record.id, "run.waiting")
            return
        events = await finished(engine, record)
    (judged,) = [event.data for event in events if isinstance(event.data, ToolJudged)]
    assert judged.rule == "nobody_to_ask"


async def test_channel_with_an_approver_says_so(tmp_path: Path) -> None:
    async with workshop_at(tmp_path, calls("mark.send", text="mail"), DONE).open() as engine:
        record = await engine.runs.start(OWNER, ask(can_ask=True))
        await wait_for(engine, record.id, "run.waiting")


async def test_lists_are_in_the_order_of_time_page_by_page(tmp_path: Path) -> None:
    workshop = workshop_at(tmp_path, calls("mark.send", text="mail"), DONE)
    workshop.clock = clock = FixedClock()
    async with workshop.open() as engine:
        records = []
        for n in range(8):
            records.append(await waiting(engine, f"s{n}"))
            clock.advance(1)
        listed: list[ApprovalRecord] = []
        while page := await engine.approvals.list(
            OWNER, ApprovalsQuery(after=listed[-1].id if listed else "", limit=3)
        ):
            listed += page
        assert [card.run_id for card in listed] == [record.id for record in records]
        for card in reversed(listed):
            await allow(engine, card, Scope.SESSION)
            clock.advance(1)
        first = await engine.approvals.grants(OWNER, "", 5)
        rest = await engine.approvals.grants(OWNER, first[-1].id, 5)
        assert [grant.approval_id for grant in (*first, *rest)] == [card.id for card in reversed(listed)]
