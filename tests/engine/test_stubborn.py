"""What would leave a run stuck, a caller misled or a place unused: many callers at once, outcomes too large, things gone."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from palyra.adapters.providers.prepared_turns import PreparedCall, Turn
from palyra.adapters.providers.scripted import Script
from palyra.core.agents import AgentSpec
from palyra.core.errors import Conflict, Invalid, NotFound, PalyraError, Unavailable
from palyra.core.events import ErasedData, Event
from palyra.core.events.tool import ApprovalStatus, Decision, Scope
from palyra.core.tools import ToolResult
from palyra.engine.api.requests import ApprovalAnswer, ApprovalsQuery, RunsQuery, WhenBusy
from palyra.engine.engine import Engine
from palyra.engine.session import earlier_answers
from palyra.engine.setup import EngineSettings
from palyra.ports.journal import Append
from tests.support.asking import READ_THEN_ANSWER, SEND_THEN_ANSWER, SLOW, ask, calls, finished, first, says, wait_for
from tests.support.engines import OWNER, Workshop, mark_tools
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.anyio

LARGE = "x" * 300_000


async def test_an_output_too_large_for_the_tape_is_cut_and_the_run_goes_on(tmp_path: Path) -> None:
    turn = Turn(calls=tuple(PreparedCall("fs.write", {"path": f"{n}.txt", "content": LARGE}) for n in range(3)))
    async with Workshop(tmp_path, [Script(turns=(turn, says("Too much.")))]).open() as engine:
        record = await engine.runs.start(OWNER, ask())
        events = await finished(engine, record)
    assert events[-1].type == "run.done"
    assert [event.type for event in events].count("tool.proposed") == 3


async def test_a_large_call_that_asks_is_asked_about(tmp_path: Path) -> None:
    turn = calls("fs.write", path=".githooks/pre-commit", content="y" * 100_000)
    async with Workshop(tmp_path, [Script(turns=(turn, says("Done.")))]).open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await wait_for(engine, record.id, "run.waiting")
        (card,) = await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
        offset: int | None = 0
        while offset is not None:
            offset = (await engine.approvals.full(OWNER, card.id, offset)).next_offset
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW, scope=Scope.SESSION))
        assert (await finished(engine, record))[-1].type == "run.done"


async def test_an_outcome_that_cannot_be_recorded_is_told_as_such(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, READ_THEN_ANSWER)
    async with workshop.open() as engine:
        tool = engine._setup.ports.catalog.find("mark.read")
        assert tool is not None

        async def boast(*_: object) -> ToolResult:
            return ToolResult(outcome="nonsense", output="")  # type: ignore[arg-type]

        tool.execute = boast  # type: ignore[method-assign, assignment]
        record = await engine.runs.start(OWNER, ask())
        assert (await finished(engine, record))[-1].type == "run.done"


async def test_the_same_key_sent_at_once_in_one_session_is_one_run(tmp_path: Path) -> None:
    async with Workshop(tmp_path, READ_THEN_ANSWER).open() as engine:
        await engine.runs.start(OWNER, ask(session_key="s"))
        requests = [ask(session_key="s", idempotency_key="k") for _ in range(10)]
        records = await asyncio.gather(*[engine.runs.start(OWNER, request) for request in requests])
        assert len({record.id for record in records}) == 1


async def test_one_refused_order_harms_no_other_of_its_batch(tmp_path: Path) -> None:
    async with Workshop(tmp_path, READ_THEN_ANSWER).open() as engine:
        await engine.runs.start(OWNER, ask(session_key="a", idempotency_key="taken"))
        await engine.runs.start(OWNER, ask(session_key="s"))
        requests = [ask(session_key="s", idempotency_key=key) for key in (None, "taken", None, "free")]
        records = await asyncio.gather(*[engine.runs.start(OWNER, request) for request in requests])
        for record in records:
            assert (await finished(engine, record))[-1].type == "run.done"
        assert len({record.id for record in records}) == 4


async def test_streams_that_begin_one_new_session_together_all_end(tmp_path: Path) -> None:
    async with Workshop(tmp_path, READ_THEN_ANSWER).open() as engine:

        async def stream() -> tuple[str, str]:
            started, frames = await engine.runs.start_and_follow(OWNER, ask(session_key="new"))
            return started.session_id, [frame.type async for frame in frames if isinstance(frame, Event)][-1]

        async with asyncio.timeout(WAIT_S):
            ended = await asyncio.gather(*[stream() for _ in range(5)])
    assert {type_name for _, type_name in ended} == {"run.done"}
    assert len({session for session, _ in ended}) == 1


async def test_a_place_nobody_wants_any_more_goes_to_the_next(tmp_path: Path) -> None:
    async with Workshop(tmp_path, SLOW, EngineSettings(runs_active_max=1)).open() as engine:
        active, unwanted, patient = [await engine.runs.start(OWNER, ask(session_key=key)) for key in "abc"]
        assert await states(engine) == ["in_progress", "accepted", "accepted"]
        await engine.runs.cancel(OWNER, unwanted.id)
        await engine.runs.cancel(OWNER, active.id)
        await wait_for(engine, patient.id, "model.delta")
        await engine.runs.cancel(OWNER, patient.id)


async def states(engine: Engine) -> list[str]:
    return [record.state for record in await engine.runs.list(OWNER, RunsQuery())]


async def test_a_run_of_a_removed_agent_comes_to_an_end(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, READ_THEN_ANSWER)
    workshop.tools = mark_tools(workshop.marks, 600.0)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await wait_for(engine, record.id, "tool.started")
    workshop.tools = mark_tools(workshop.marks)
    workshop.agents = {"another": AgentSpec(name="another")}
    async with workshop.open() as engine:
        assert (await finished(engine, record))[-1].type in ("run.done", "run.failed")


async def test_an_erased_session_takes_nothing_more(tmp_path: Path) -> None:
    async with Workshop(tmp_path, READ_THEN_ANSWER).open() as engine:
        for _ in range(10):
            record = await engine.runs.start(OWNER, ask())
            events = await finished(engine, record)
            outcomes = await asyncio.gather(
                engine.sessions.delete(OWNER, record.session_id),
                engine.runs.start(OWNER, ask(session_id=record.session_id)),
                engine.sessions.branch(OWNER, record.session_id, events[-1].seq, None),
                return_exceptions=True,
            )
            assert all(
                outcome is None or not isinstance(outcome, BaseException) or isinstance(outcome, PalyraError)
                for outcome in outcomes
            )
            if not isinstance(outcomes[0], BaseException):
                with pytest.raises(NotFound):
                    await engine.sessions.get(OWNER, record.session_id)
                tape = await engine._setup.journal.read(record.session_id, 0, 500)
                assert all(isinstance(event.data, ErasedData) for event in tape)


async def test_a_grant_is_found_behind_more_of_other_sessions_than_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(earlier_answers, "PAGE_ROWS", 3)
    async with Workshop(tmp_path, SEND_THEN_ANSWER).open() as engine:
        for number in range(12):
            record = await engine.runs.start(OWNER, ask(session_key=f"s{number}"))
            await wait_for(engine, record.id, "run.waiting")
            (card,) = await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
            answer = ApprovalAnswer(decision=Decision.ALLOW, scope=Scope.SESSION)
            await engine.approvals.answer(OWNER, card.id, answer)
            await finished(engine, record)
        for number in range(12):
            record = await engine.runs.start(OWNER, ask(session_key=f"s{number}"))
            assert "run.waiting" not in [event.type for event in await finished(engine, record)]


async def test_steering_twice_under_one_key_says_it_once(tmp_path: Path) -> None:
    async with Workshop(tmp_path, SLOW).open() as engine:
        record = await engine.runs.start(OWNER, ask(session_key="s"))
        await wait_for(engine, record.id, "model.delta")
        for _ in range(2):
            steer = ask("and this", session_key="s", when_busy=WhenBusy.STEER, idempotency_key="once")
            assert (await engine.runs.start(OWNER, steer)).id == record.id
        await engine.runs.cancel(OWNER, record.id)
        events = await finished(engine, record)
    assert [event.type for event in events].count("message.user") == 2


async def test_a_drain_begins_nothing_new(tmp_path: Path) -> None:
    async with Workshop(tmp_path, SLOW).open() as engine:
        active = await engine.runs.start(OWNER, ask(session_key="s"))
        await engine.runs.start(OWNER, ask(session_key="s"))
        draining = asyncio.create_task(engine.drain(20.0))
        await asyncio.sleep(0)
        await engine.runs.cancel(OWNER, active.id)
        assert await draining
        assert await states(engine) == ["cancelled", "accepted"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"answer_schema": {"type": "nonsense"}}, "answer_schema_invalid"),
        ({"must_call": ("no.tool",)}, "must_call_unknown"),
        ({"text": " "}, "text_empty"),
    ],
)
async def test_demands_nothing_could_meet_are_refused_at_once(
    tmp_path: Path, fields: dict[str, object], code: str
) -> None:
    async with Workshop(tmp_path, READ_THEN_ANSWER).open() as engine:
        with pytest.raises(Invalid) as refusal:
            await engine.runs.start(OWNER, ask(**{"text": "go", **fields}))  # type: ignore[arg-type]
        assert refusal.value.code == code


async def test_a_cursor_beyond_the_end_is_refused(tmp_path: Path) -> None:
    async with Workshop(tmp_path, SEND_THEN_ANSWER).open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await wait_for(engine, record.id, "run.waiting")
        with pytest.raises(Invalid, match="cursor_invalid"):
            await engine.runs.follow(OWNER, record.id, 9_999)


async def test_a_decided_question_is_not_worth_asking_again(tmp_path: Path) -> None:
    async with Workshop(tmp_path, SEND_THEN_ANSWER).open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await wait_for(engine, record.id, "run.waiting")
        (card,) = await engine.approvals.list(OWNER, ApprovalsQuery())
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.DENY))
        with pytest.raises(Conflict) as refusal:
            await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.DENY))
        assert not refusal.value.is_retryable


async def test_a_feed_that_begins_in_the_middle_hears_all_text_so_far(tmp_path: Path) -> None:
    async with Workshop(tmp_path, SLOW).open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await wait_for(engine, record.id, "model.delta")
        frame = await first(await engine.feed.all(OWNER, None), "model.delta")
        assert frame.data["offset"] == 0  # type: ignore[index]
        await engine.runs.cancel(OWNER, record.id)


@pytest.mark.parametrize("failures_count", [1, 2])
async def test_what_time_made_due_is_not_lost_on_a_full_disk(tmp_path: Path, failures_count: int) -> None:
    workshop = Workshop(tmp_path, SEND_THEN_ANSWER, EngineSettings(approval_timeout_ms=50))
    async with workshop.open() as engine:
        journal = engine._setup.journal
        refused: list[list[str]] = []
        commit = journal.commit

        async def commit_later(appends: Sequence[Append], *rest: object) -> tuple[Event, ...]:
            types = [draft.data.TYPE for append in appends for draft in append.drafts]
            if "approval.resolved" in types and len(refused) < failures_count:
                refused.append(types)
                raise Unavailable("disk_full", "no room")
            return await commit(appends, *rest)  # type: ignore[arg-type]

        journal.commit = commit_later  # type: ignore[method-assign, assignment]
        record = await engine.runs.start(OWNER, ask())
        async with asyncio.timeout(WAIT_S):
            assert (await finished(engine, record))[-1].type == "run.done"
    assert len(refused) == failures_count


async def test_a_fault_of_ours_is_told_to_who_waits_for_it(tmp_path: Path) -> None:
    async with Workshop(tmp_path, READ_THEN_ANSWER).open() as engine:

        async def stumble(*_: object) -> tuple[Event, ...]:
            raise ZeroDivisionError

        engine._setup.journal.commit = stumble  # type: ignore[method-assign, assignment]
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(Unavailable, match="session_loop_failed"):
                await engine.runs.start(OWNER, ask())
