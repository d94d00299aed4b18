"""Performing effects. Owns: the tasks of one session's model calls and tools, and hearing what each came to.

Not: deciding to perform them. An effect's task either returns its facts, or is cancelled and then asked what it had
come to, or breaks; in every case exactly one report goes back to the desk, unless the daemon itself is stopping.
"""

import asyncio
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import structlog

from palyra.core.agents import AgentSpec
from palyra.core.conversation import render, trust_of
from palyra.core.events import Data, Draft
from palyra.core.events.tool import Outcome, ToolError, ToolFinished
from palyra.core.ids import Principal, RunId, SessionId
from palyra.core.run.effects import CallModel, Effect, Execute, Judge, PlanRoute, Stop
from palyra.core.run.state import Run, find_call
from palyra.core.taint import trust_of_taint
from palyra.core.tools import spec_digest
from palyra.core.trust import Trust, lowest
from palyra.core.writes import Write
from palyra.engine.context import EngineContext
from palyra.engine.session.commands import EffectReport
from palyra.engine.session.model_call import ModelCall
from palyra.engine.session.pending_commit import SessionState
from palyra.engine.session.tool_call import ToolRun, live_output
from palyra.ports.provider import ModelRequest
from palyra.ports.tools import Catalog, ToolCallContext

log = structlog.get_logger()

TOOL_LOOK_S, TOOL_LOOKS_MAX = 0.1, 200  # A call that was under way waits this long for a server that starts again.

ENGINE = Principal("system:engine")
_GONE = ToolError(code="tool_gone", message="The tool is no longer in the catalog.")
_CHANGED = ToolError(
    code="tool_changed", message="The tool is not the one that was judged any more, so it was not run. Ask again."
)

Found = tuple[tuple[Draft, ...], tuple[Write, ...]]


class EffectRunner:
    def __init__(self, office: EngineContext, session_id: SessionId, report: Callable[[EffectReport], None]) -> None:
        self._office = office
        self._session_id = session_id
        self._report = report
        self._tasks: dict[Effect, asyncio.Task[Any]] = {}

    @property
    def is_busy(self) -> bool:
        return bool(self._tasks)

    def start(self, effects: tuple[Effect, ...], state: SessionState) -> None:
        """After the record that asked for them is durable."""
        for effect in effects:
            match effect:
                case CallModel() if state.active is not None:
                    self._call_model(effect, state.active, state)
                case Execute() if state.active is not None:
                    self._execute(effect, state.active, state)
                case Stop(effect=stopped):
                    self._stop(stopped)
                case CallModel() | Execute() | Judge() | PlanRoute():
                    continue

    def _stop(self, effect: CallModel | Execute) -> None:
        """An effect that is not out here has reported already, or a restart will find that it was lost."""
        task = self._tasks.get(effect)
        if task is not None:
            task.cancel()

    def _call_model(self, effect: CallModel, run: Run, state: SessionState) -> None:
        agent = self._office.agent_of(run.agent)
        call = ModelCall(self._office, self._session_id, effect, self._request(effect, run, agent, state), run.route)
        trust = lowest((run.trust, trust_of(state.window), trust_of_taint(state.taint)))

        def outcome(task: asyncio.Task[list[Data]]) -> Found:
            facts = call.interrupted() if task.cancelled() else _result(task, call.broken)
            return tuple(self._draft(data, run.run_id, agent.name, trust) for data in facts), ()

        self._watch(effect, call.perform(), run.run_id, outcome)

    def _execute(self, effect: Execute, run: Run, state: SessionState) -> None:
        call = find_call(run, effect.call_id)
        tool = self._office.parts.catalog.find(call.tool)
        agent = self._office.agent_of(run.agent)
        if tool is None:
            return self._await_tool(effect, run, state)
        if call.judged is not None and call.judged.tool_sha256 not in (None, spec_digest(tool.spec)):
            # What was judged is no longer what would run.
            return self._not_run(effect, run, Outcome.FAILED, _CHANGED)
        context = ToolCallContext(
            session_id=self._session_id,
            run_id=run.run_id,
            effect_id=effect.effect_id,
            principal=state.owner,
            agent=agent.name,
            workspace=agent.workspace,
            now_ms=self._office.clock.now_ms(),
            emit=_discard,
            has_network=call.judged is not None and call.judged.has_network,
        )
        execution = ToolRun(self._office, tool, call, live_output(self._office, call, context))

        def outcome(task: asyncio.Task[tuple[Draft, tuple[Write, ...]]]) -> Found:
            draft, writes = execution.cancelled() if task.cancelled() else _result(task, execution.broken)
            return (draft,), writes

        self._watch(effect, execution.perform(), run.run_id, outcome)

    def _await_tool(self, effect: Execute, run: Run, state: SessionState) -> None:
        """The catalog changed between verdict and execution. A server that is only starting again is waited for."""
        name = find_call(run, effect.call_id).tool
        task = self._office.tasks.spawn(_appearance(self._office.parts.catalog, name), f"{name} of {run.run_id}")
        self._tasks[effect] = task

        def ended(done: asyncio.Task[bool]) -> None:
            self._tasks.pop(effect, None)
            if self._office.tasks.is_closing:
                return
            if not done.cancelled() and done.exception() is None and done.result():
                self._execute(effect, run, state)
            else:
                self._not_run(effect, run, Outcome.CANCELLED if done.cancelled() else Outcome.FAILED, _GONE)

        task.add_done_callback(ended)

    def _not_run(self, effect: Execute, run: Run, outcome: Outcome, error: ToolError) -> None:
        """Nothing ran, and the tape must say so."""
        data = ToolFinished(
            call_id=effect.call_id, effect_id=effect.effect_id, outcome=outcome, error=error, attestation=None
        )
        now_ms = self._office.clock.now_ms()
        draft = Draft(data=data, actor=ENGINE, trust=Trust.SYSTEM, at_ms=now_ms, run_id=run.run_id)
        self._report(EffectReport(run_id=run.run_id, effect=effect, drafts=(draft,)))

    def _watch(
        self, effect: CallModel | Execute, work: Any, run_id: RunId, outcome: Callable[[asyncio.Task[Any]], Found]
    ) -> None:
        task = self._office.tasks.spawn(work, f"{type(effect).__name__} of {run_id}")
        self._tasks[effect] = task

        def ended(done: asyncio.Task[Any]) -> None:
            self._tasks.pop(effect, None)
            if not self._office.tasks.is_closing:
                drafts, writes = outcome(done)
                self._report(EffectReport(run_id=run_id, effect=effect, drafts=drafts, writes=writes))

        task.add_done_callback(ended)

    def _request(self, effect: CallModel, run: Run, agent: AgentSpec, state: SessionState) -> ModelRequest:
        kit = self._office.kits.of(agent, run.skills)
        return ModelRequest(
            model=effect.model,
            instructions=kit.instructions,
            messages=render(state.window),
            tools=kit.tools,
            answer_schema=run.answer_schema,
            run_id=run.run_id,
            turn=effect.turn,
            calls_before=run.loop.tool_calls_count,
        )

    def _draft(self, data: Data, run_id: RunId, agent: str, trust: Trust) -> Draft:
        now_ms = self._office.clock.now_ms()
        return Draft(data=data, actor=Principal(f"agent:{agent}"), trust=trust, at_ms=now_ms, run_id=run_id)


def _discard(_stream: str, _text: str) -> None:
    """Until a context has its own way out, output goes nowhere."""


def _result(task: asyncio.Task[Any], broken: Callable[[], Any]) -> Any:
    error = task.exception()
    if error is None:
        return task.result()
    log.error("effect_broken", task=task.get_name(), exc_info=error)
    return broken()


async def _appearance(catalog: Catalog, name: str) -> bool:
    """Whether the tool is here, or comes while the catalog knows why it is missing."""
    for _ in range(TOOL_LOOKS_MAX):
        if catalog.find(name) is not None:
            return True
        if not any(fnmatchcase(name, missing.name) for missing in catalog.missing()):
            return False
        await asyncio.sleep(TOOL_LOOK_S)
    return False
