"""After a restart: every unfinished run goes on from its tape, and no law is broken on the way."""

from pathlib import Path

import pytest

from palyra.adapters.providers.scripted import Script, ScriptedProvider
from palyra.core.errors import Conflict
from palyra.core.events.tool import ApprovalStatus, Decision, Scope, ToolJudged
from palyra.engine.api.requests import ApprovalAnswer, ApprovalRecord, ApprovalsQuery, RunRecord
from palyra.engine.engine import Engine
from palyra.engine.setup import EngineSettings
from tests.support.asking import READ_THEN_ANSWER, SEND_THEN_ANSWER, SLOW, ask, calls, finished, says, wait_for
from tests.support.engines import OWNER, Workshop, mark_tools
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

FOREVER_S = 600.0


async def pending(engine: Engine) -> list[ApprovalRecord]:
    return list(await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING)))


async def allow(engine: Engine, record: RunRecord) -> None:
    await wait_for(engine, record.id, "run.waiting")
    (card,) = await pending(engine)
    await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW))


async def executed(workshop: Workshop, count: int) -> list[str]:
    """Once the tools have left that many marks: they write before they pause."""
    await until(lambda: len(workshop.executed()) >= count)
    return workshop.executed()


async def resumed(engine: Engine, record: RunRecord, count: int) -> None:
    seen = 0
    async for frame in await engine.runs.follow(OWNER, record.id, None):
        seen += frame.type == "run.resumed"
        if seen == count:
            return


async def lose_a_send(workshop: Workshop) -> RunRecord:
    """A `once` effect that was begun when the daemon went away."""
    workshop.tools = mark_tools(workshop.marks, FOREVER_S)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask(session_key="s"))
        await allow(engine, record)
        await executed(workshop, 1)
    workshop.tools = mark_tools(workshop.marks)
    return record


async def test_an_interrupted_model_call_is_made_again(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, SLOW)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await wait_for(engine, record.id, "model.delta")
    workshop.provider = ScriptedProvider([Script(turns=(says("Here again."),))])
    async with workshop.open() as engine:
        await finished(engine, record)
        assert (await engine.runs.get(OWNER, record.id)).answer == "Here again."


@pytest.mark.parametrize("tool", ["mark.read", "mark.keep"])
async def test_an_effect_that_may_repeat_runs_again_under_its_id(tmp_path: Path, tool: str) -> None:
    workshop = Workshop(tmp_path, [Script(turns=(calls(tool, text="a"), says("Done.")))])
    workshop.tools = mark_tools(workshop.marks, FOREVER_S)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await executed(workshop, 1)
    workshop.tools = mark_tools(workshop.marks)
    async with workshop.open() as engine:
        assert (await finished(engine, record))[-1].type == "run.done"
    marks = workshop.executed()
    assert len(marks) == 2
    assert marks[0] == marks[1]


async def test_a_once_effect_is_not_repeated_and_the_run_goes_on(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, SEND_THEN_ANSWER)
    record = await lose_a_send(workshop)
    async with workshop.open() as engine:
        types = [event.type for event in await finished(engine, record)]
        assert "tool.uncertain" in types
        assert types[-1] == "run.done"
        (card,) = await pending(engine)
        assert card.kind == "uncertain"
    assert len(workshop.executed()) == 1


async def test_an_uncertain_call_is_asked_about_before_it_is_made_again(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, SEND_THEN_ANSWER)
    record = await lose_a_send(workshop)
    async with workshop.open() as engine:
        await finished(engine, record)
        again = await engine.runs.start(OWNER, ask(session_key="s"))
        await wait_for(engine, again.id, "run.waiting")
        tape = await engine.sessions.tape(OWNER, record.session_id, 0, 500)
        rules = [event.data.rule for event in tape if isinstance(event.data, ToolJudged)]
        assert rules[-1] == "uncertain_repeat"


async def test_an_uncertain_effect_is_marked_done_after_its_run_but_not_retried(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, SEND_THEN_ANSWER)
    record = await lose_a_send(workshop)
    async with workshop.open() as engine:
        await finished(engine, record)
        (card,) = await pending(engine)
        with pytest.raises(Conflict, match="run_ended"):
            await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.RETRY))
        answered = await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.DONE))
        assert answered.status == "allowed"
        assert await pending(engine) == []


async def test_a_person_retries_an_uncertain_effect_while_its_run_is_active(tmp_path: Path) -> None:
    scripts = [Script(turns=(calls("mark.send", text="mail"), calls("mark.send", text="other"), says("Sent.")))]
    workshop = Workshop(tmp_path, scripts)
    record = await lose_a_send(workshop)
    async with workshop.open() as engine:
        await wait_for(engine, record.id, "tool.uncertain")

        async def is_tool_asked_for() -> bool:
            return "tool" in {card.kind for card in await pending(engine)}

        await until(is_tool_asked_for)
        cards = {card.kind: card for card in await pending(engine)}
        await engine.approvals.answer(OWNER, cards["uncertain"].id, ApprovalAnswer(decision=Decision.RETRY))
        marks = await executed(workshop, 2)
        assert marks[0] == marks[1]
        await engine.approvals.answer(OWNER, cards["tool"].id, ApprovalAnswer(decision=Decision.DENY))
        assert (await finished(engine, record))[-1].type == "run.done"


async def test_an_approval_that_expired_meanwhile_is_a_no(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, SEND_THEN_ANSWER, EngineSettings(approval_timeout_ms=1))
    engine = workshop.build()
    record = await engine.runs.start(OWNER, ask())
    await wait_for(engine, record.id, "run.waiting")
    await engine.close()
    async with workshop.open() as engine:
        await finished(engine, record)
        (card,) = await engine.approvals.list(OWNER, ApprovalsQuery())
        assert card.status == "expired"
    assert workshop.executed() == []


async def test_an_approval_expires_while_the_daemon_runs(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, SEND_THEN_ANSWER, EngineSettings(approval_timeout_ms=30))
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        assert (await finished(engine, record))[-1].type == "run.done"


async def test_a_cancel_outlives_the_daemon(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, SEND_THEN_ANSWER)
    workshop.tools = mark_tools(workshop.marks, FOREVER_S)
    engine = workshop.build()
    record = await engine.runs.start(OWNER, ask())
    await allow(engine, record)
    await executed(workshop, 1)
    engine._parts.loops._loops[record.session_id]._effects._tasks.clear()  # The tool never comes home.
    await engine.runs.cancel(OWNER, record.id)
    await engine.close()
    async with workshop.open() as engine:
        types = [event.type for event in await finished(engine, record)]
        assert types[-1] == "run.cancelled"
        assert "tool.uncertain" in types
    assert len(workshop.executed()) == 1


async def test_a_queued_run_is_not_forgotten(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, SEND_THEN_ANSWER)
    async with workshop.open() as engine:
        held = await engine.runs.start(OWNER, ask(session_key="s"))
        queued = await engine.runs.start(OWNER, ask(session_key="s"))
        await wait_for(engine, held.id, "run.waiting")
    async with workshop.open() as engine:
        await engine.runs.cancel(OWNER, held.id)
        await wait_for(engine, queued.id, "run.waiting")


async def test_a_run_resumed_three_times_without_progress_fails(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, SLOW)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await wait_for(engine, record.id, "model.requested")
    for restart in (1, 2):
        async with workshop.open() as engine:
            await resumed(engine, record, restart)
    async with workshop.open() as engine:
        await finished(engine, record)
        last = await engine.runs.get(OWNER, record.id)
    assert (last.state, last.reason) == ("failed", "no_progress")
    assert last.error is not None
    assert "3 times" in last.error.message


async def test_nothing_is_resumed_twice(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, READ_THEN_ANSWER)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        before = await finished(engine, record)
    async with workshop.open() as engine:
        after = await finished(engine, record)
    assert before == after
    assert len(workshop.executed()) == 1


async def test_an_answer_about_the_repeat_does_not_lift_the_doubt_about_the_first(tmp_path: Path) -> None:
    """A grant given before the crash must not let the same call run again while nobody knows whether it took effect."""
    workshop = Workshop(tmp_path, SEND_THEN_ANSWER)
    workshop.tools = mark_tools(workshop.marks, FOREVER_S)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask(session_key="s"))
        await wait_for(engine, record.id, "run.waiting")
        (card,) = await pending(engine)
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW, scope=Scope.SESSION))
        await executed(workshop, 1)
    workshop.tools = mark_tools(workshop.marks)
    async with workshop.open() as engine:
        await finished(engine, record)
        for _ in range(2):
            again = await engine.runs.start(OWNER, ask(session_key="s"))
            await wait_for(engine, again.id, "run.waiting")
            cards = {card.kind: card for card in await pending(engine)}
            assert cards["tool"].rule == "uncertain_repeat"
            await engine.approvals.answer(OWNER, cards["tool"].id, ApprovalAnswer(decision=Decision.DENY))
            await finished(engine, again)
    assert len(workshop.executed()) == 1
