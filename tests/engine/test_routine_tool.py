"""The tool routine.create: it always asks a person, shows what would run, and creates one routine for one call."""

from pathlib import Path

import pytest

from palyra.adapters.policy.cedar import CedarPolicy
from palyra.adapters.policy.folder import PolicyFolder
from palyra.adapters.providers.scripted import Script
from palyra.adapters.tools.routine_create import RoutineCreate
from palyra.app.tools import LateRoutines
from palyra.core.events.tool import ApprovalStatus, Decision, Outcome, ToolFinished
from palyra.engine.api.requests import ApprovalAnswer, ApprovalRecord, ApprovalsQuery
from palyra.engine.engine import Engine
from tests.support.asking import ask, calls, finished, says, wait_for
from tests.support.engines import OWNER, Workshop
from tests.support.routines import START_MS, SetClock, local_ms, routine_events

pytestmark = pytest.mark.anyio

MONDAY: dict[str, object] = {
    "name": "monday", "prompt": "Remind me of the bins.", "cron": "0 9 * * 1", "timezone": "Europe/Prague",
}  # fmt: skip


class AgentWithTool:
    """A workshop whose agent creates a routine in its first turn."""

    def __init__(self, root: Path, arguments: dict[str, object]) -> None:
        self.routines = LateRoutines()
        self.workshop = Workshop(root, [Script(turns=(calls("routine.create", **arguments), says("Done.")))])
        self.workshop.clock = SetClock()
        self.workshop.tools.append(RoutineCreate(self.routines))


async def card_of(engine: Engine) -> ApprovalRecord:
    (card,) = await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
    return card


async def outcome(engine: Engine, answer: Decision | None, **fields: object) -> ToolFinished:
    """Runs the agent to its end, with an answer to its question if there is one."""
    run = await engine.runs.start(OWNER, ask(**fields))  # type: ignore[arg-type]
    if answer is not None:
        await wait_for(engine, run.id, "approval.requested")
        await engine.approvals.answer(OWNER, (await card_of(engine)).id, ApprovalAnswer(decision=answer))
    events = await finished(engine, run)
    return next(event.data for event in events if isinstance(event.data, ToolFinished))


async def test_a_person_sees_when_it_would_run_and_allows_it(tmp_path: Path) -> None:
    agent = AgentWithTool(tmp_path, MONDAY)
    async with agent.workshop.open() as engine:
        agent.routines.bind(engine.routines)
        run = await engine.runs.start(OWNER, ask())
        await wait_for(engine, run.id, "approval.requested")
        card = await card_of(engine)
        assert card.risk == "critical"
        assert card.preview is not None
        assert "0 9 * * 1 in Europe/Prague, first at 2027-01-18T09:00:00+01:00" in card.preview
        assert "Remind me of the bins." in card.preview
        assert card.preview.startswith("As the agent main.")
        assert await engine.routines.list(None, "", 9) == ()
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW))
        await finished(engine, run)
        (routine,) = await engine.routines.list(OWNER, "", 9)
        assert (routine.principal, routine.next_at_ms) == (OWNER, local_ms("2027-01-18T09:00", "Europe/Prague"))
        (event,) = await routine_events(engine)
        assert (event.type, event.actor, event.data.source) == ("routine.created", OWNER, "tool")  # type: ignore[union-attr]


async def test_a_refusal_creates_nothing(tmp_path: Path) -> None:
    agent = AgentWithTool(tmp_path, MONDAY)
    async with agent.workshop.open() as engine:
        agent.routines.bind(engine.routines)
        assert (await outcome(engine, Decision.DENY)).outcome is Outcome.DENIED
        assert await engine.routines.list(None, "", 9) == ()


async def test_no_policy_lets_it_pass_without_asking(tmp_path: Path) -> None:
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "all.cedar").write_text('@id("all") permit (principal, action == Action::"call", resource);')
    agent = AgentWithTool(tmp_path, MONDAY)
    agent.workshop.policy = CedarPolicy(PolicyFolder(policies))
    async with agent.workshop.open() as engine:
        agent.routines.bind(engine.routines)
        run = await engine.runs.start(OWNER, ask())
        await wait_for(engine, run.id, "approval.requested")
        assert (await card_of(engine)).tool == "routine.create"


async def test_a_run_that_cannot_ask_cannot_create_one(tmp_path: Path) -> None:
    agent = AgentWithTool(tmp_path, MONDAY)
    async with agent.workshop.open() as engine:
        agent.routines.bind(engine.routines)
        assert (await outcome(engine, None, can_ask=False)).outcome is Outcome.DENIED
        assert await engine.routines.list(None, "", 9) == ()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cron": "99 9 * * 1"}, "cron_invalid"),
        ({"timezone": "Mars/Olympus"}, "timezone_unknown"),
        ({"every_s": 60}, "routine_schedule"),
        ({"cron": None, "at": "2020-01-01T00:00:00"}, "time_past"),
        ({"cron": None, "at": "9999-12-31T23:59:59+00:00", "timezone": "Pacific/Auckland"}, "time_invalid"),
    ],
)
async def test_a_wish_that_cannot_be_met_is_told_to_the_model(
    tmp_path: Path, changes: dict[str, object], code: str
) -> None:
    arguments = {name: value for name, value in {**MONDAY, **changes}.items() if value is not None}
    agent = AgentWithTool(tmp_path, arguments)
    async with agent.workshop.open() as engine:
        agent.routines.bind(engine.routines)
        done = await outcome(engine, Decision.ALLOW)
        assert done.error is not None
        assert (done.outcome, done.error.code) == (Outcome.FAILED, code)
        assert await engine.routines.list(None, "", 9) == ()


async def test_the_same_effect_creates_one_routine(tmp_path: Path) -> None:
    from tests.support.tool_calls import context

    agent = AgentWithTool(tmp_path, MONDAY)
    tool = RoutineCreate(agent.routines)
    async with agent.workshop.open() as engine:
        agent.routines.bind(engine.routines)
        first = await tool.execute({"name": "a", "prompt": "b", "every_s": 60}, context())
        again = await tool.execute({"name": "a", "prompt": "b", "every_s": 60}, context())
        other = await tool.execute({"name": "a", "prompt": "b", "every_s": 60}, context(effect="f" * 64))
        assert first.output == again.output
        assert other.error is not None
        assert other.error.code == "routine_name_taken"
        (routine,) = await engine.routines.list(None, "", 9)
        assert (routine.principal, routine.next_at_ms) == ("user:alice", START_MS + 60_000)
