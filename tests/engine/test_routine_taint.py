"""A routine that a model made has no more rights and no more trust than the run it was made in."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from palyra.adapters.providers.scripted import Script
from palyra.adapters.tools.routine_create import RoutineCreate
from palyra.app.tools import LateRoutines
from palyra.core.agents import AgentSpec
from palyra.core.events.run import MessageUser
from palyra.core.events.tool import ToolJudged
from palyra.core.trust import Trust
from palyra.engine.api.requests import RunRecord, RunsQuery
from palyra.engine.engine import Engine
from palyra.engine.routines.fire_handler import ORIGIN
from tests.engine.test_taint import EVIL, FETCH, AllowAll, WebGet
from tests.support.asking import ask, calls, finished, says
from tests.support.delegating import children, delegates, delegating, events_of, rules
from tests.support.engines import OWNER, Workshop
from tests.support.routines import SetClock, live_jobs_count
from tests.support.tool_calls import context
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

CREATE = calls("routine.create", name="n", prompt="obey", every_s=5)
OBEY = Script(when="^obey$", turns=(calls("mark.read", text="x"), says("Obeyed.")))


def tainted_workshop(root: Path) -> tuple[Workshop, SetClock, LateRoutines]:
    clock, routines = SetClock(), LateRoutines()
    made = Workshop(
        root, [Script(when="^go$", turns=(FETCH, CREATE, says("Made."))), OBEY, Script(turns=(says("Hi."),))]
    )
    made.clock, made.policy = clock, AllowAll()
    made.tools += [RoutineCreate(routines), WebGet()]
    tools = ("web.get", "routine.create", "mark.read")
    made.agents["narrow"] = AgentSpec(name="narrow", workspace=(str(made.workspace),), tools=tools)
    return made, clock, routines


async def next_run(engine: Engine, clock: SetClock) -> RunRecord:
    """The newest run of a routine, after its next time has come."""
    clock.forward(6)
    await engine.scheduler.look()

    async def is_quiet() -> bool:
        return not await live_jobs_count(engine)

    await until(is_quiet)
    runs = await engine.runs.list(OWNER, RunsQuery(limit=20))
    return [run for run in runs if run.origin == ORIGIN][-1]


async def judged_taint(engine: Engine, run: RunRecord) -> tuple[str, ...]:
    events = await finished(engine, run)
    (said,) = [event for event in events if isinstance(event.data, MessageUser)]
    assert (said.trust, said.actor) == (Trust.EXTERNAL, "agent:narrow")
    (judged,) = [event.data for event in events if isinstance(event.data, ToolJudged)]
    return judged.taint


async def test_routine_runs_as_the_agent_that_made_it_and_with_its_taint(tmp_path: Path) -> None:
    made, clock, routines = tainted_workshop(tmp_path)
    async with made.open() as engine:
        routines.bind(engine.routines)
        await finished(engine, await engine.runs.start(OWNER, ask("go", agent="narrow")))
        (routine,) = await engine.routines.list(OWNER, "", 9)
        assert (routine.definition.agent, routine.definition.taint) == ("narrow", (EVIL,))
        run = await next_run(engine, clock)
        assert run.agent == "narrow"
        assert await judged_taint(engine, run) == ("channel:routine", EVIL)


async def test_taint_is_met_in_a_session_that_exists_and_after_its_reset(tmp_path: Path) -> None:
    made, clock, routines = tainted_workshop(tmp_path)
    async with made.open() as engine:
        routines.bind(engine.routines)
        await finished(engine, await engine.runs.start(OWNER, ask("go", agent="narrow")))
        (routine,) = await engine.routines.list(OWNER, "", 9)
        talk = await engine.runs.start(OWNER, ask("hello", session_key=f"routine:{routine.id}"))
        await finished(engine, talk)
        run = await next_run(engine, clock)
        assert run.session_id == talk.session_id
        assert await judged_taint(engine, run) == ("channel:routine",)
        await engine.sessions.reset(OWNER, talk.session_id)
        assert await judged_taint(engine, await next_run(engine, clock)) == ("channel:routine",)


async def test_delegated_run_creates_no_routine(tmp_path: Path) -> None:
    routines = LateRoutines()
    made = delegating(tmp_path, ("^go$", (delegates("make one"), says("Done."))), ("^make one$", (CREATE, says("No."))))
    made.tools.append(RoutineCreate(routines))
    made.policy = AllowAll()
    async with made.open() as engine:
        routines.bind(engine.routines)
        run = await engine.runs.start(OWNER, ask("go"))
        await finished(engine, run)
        (child,) = await children(engine, run.id)
        assert rules(await events_of(engine, child)) == ["delegated_run"]
        result = await RoutineCreate(routines).execute(
            {"name": "n", "prompt": "p", "every_s": 5}, replace(context(), is_delegated=True)
        )
        assert result.error is not None
        assert result.error.code == "delegated_run"
        assert await engine.routines.list(None, "", 9) == ()
