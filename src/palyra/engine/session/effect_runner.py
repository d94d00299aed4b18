"""Performs the effects that `core.run.decide` asks for.

Owns: judging and planning within a commit; the tasks of one session's model calls and tool calls; their reports.
Does not own: deciding to perform them (core.run), how one call works (gate, route_planner, model_call, tool_call).
Invariant: a task returns its facts, or is cancelled and then asked for its outcome, or fails. In each case exactly one
report goes back to the session's loop, unless the daemon itself is stopping.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import structlog
from msgspec.structs import replace
from structlog.contextvars import bound_contextvars

from palyra.core.caller_tools import spec_of, with_callers
from palyra.core.context.prompt import render
from palyra.core.context.window import trust_of
from palyra.core.events import Data, Draft
from palyra.core.events.tool import Outcome, ToolError, ToolFinished, ToolJudged, Verdict
from palyra.core.ids import RunId, SessionId
from palyra.core.references.model import ResolvedReference, refused
from palyra.core.references.parser import parse_references
from palyra.core.run.call import Call
from palyra.core.run.decide import Record
from palyra.core.run.effects import (
    ApplyDraft,
    Assemble,
    CallModel,
    CheckObjectives,
    DiscardDraft,
    Effect,
    Execute,
    ForgetDraft,
    Judge,
    JudgeDraft,
    PlanRoute,
    ResolveReferences,
    Stop,
)
from palyra.core.run.fold_drafts import is_last_attempt
from palyra.core.run.questions import whole_call
from palyra.core.run.state import Run, find_call
from palyra.core.service_runs import find_service
from palyra.core.taint import labels, trust_of_taint
from palyra.core.tools import spec_digest
from palyra.core.trust import Trust, lowest
from palyra.core.writes import Write
from palyra.engine.agents import AgentDirectory
from palyra.engine.session.caller_results import CallerResults
from palyra.engine.session.commands import EffectReport
from palyra.engine.session.context_assembler import ContextAssembler
from palyra.engine.session.draft_gate import DraftGate
from palyra.engine.session.draft_run import DraftRun
from palyra.engine.session.drafts import agent_draft, engine_draft
from palyra.engine.session.full_previews import FullPreviews, link_full
from palyra.engine.session.gate import Gate, gate_case
from palyra.engine.session.instruction_files import InstructionFiles
from palyra.engine.session.memory_recall import MemoryRecall
from palyra.engine.session.model_call import ModelCall, ModelCaller
from palyra.engine.session.objective_check import ObjectiveCheck, ObjectiveChecker
from palyra.engine.session.pending_commit import PendingCommit, SessionState, add_drafts
from palyra.engine.session.prompt_base import PromptBases, tools_for
from palyra.engine.session.reference_facts import reference_facts
from palyra.engine.session.reference_judge import ReferenceSender
from palyra.engine.session.reference_resolver import ReferenceResolver
from palyra.engine.session.tool_call import ToolExecutor, ToolRun, live_output
from palyra.engine.spend.ledger import spender_of
from palyra.engine.spend.route_planner import RoutePlanner
from palyra.engine.tasks import TaskSupervisor
from palyra.ports.clock import Clock
from palyra.ports.drafts import Drafts
from palyra.ports.provider import ModelRequest
from palyra.ports.tools import Catalog, ToolCallContext

CALL_NAME = "call.txt"

log = structlog.get_logger()

STOP_WAIT_S = 5.0  # An effect that does not stop by then is left behind, and its outcome is reported without it.
# A call that was interrupted by a restart waits this long for its server to start again.
TOOL_LOOK_S, TOOL_LOOKS_MAX = 0.1, 200

_UNREAD = "it could not be read; the daemon's log says why"
_GONE = ToolError(code="tool_gone", message="The tool is no longer in the catalog.")
_CHANGED = ToolError(
    code="tool_changed", message="The tool is not the one that was judged any more, so it was not run. Ask again."
)

Found = tuple[tuple[Draft, ...], tuple[Write, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectParts:
    """What performing effects needs, the same for all sessions."""

    agents: AgentDirectory
    prompts: PromptBases
    catalog: Catalog
    gate: Gate
    draft_gate: DraftGate
    full: FullPreviews
    drafts: Drafts
    assembler: ContextAssembler
    planner: RoutePlanner
    references: ReferenceResolver
    objectives: ObjectiveChecker
    instruction_files: InstructionFiles
    recall: MemoryRecall
    models: ModelCaller
    tools: ToolExecutor
    caller_results: CallerResults
    tasks: TaskSupervisor
    clock: Clock

    async def judge_and_plan(self, pending: PendingCommit, run: Run, effects: Sequence[Record | Effect]) -> Found:
        """Returns the facts of effects that change nothing outside. They join the commit that asked for them."""
        facts: list[Draft] = []
        writes: tuple[Write, ...] = ()
        for effect in effects:
            # A grant that was valid when the question was asked may expire while it is looked up.
            now_ms = self.clock.now_ms()
            match effect:
                case Assemble():
                    agent = self.agents.of_run(run.agent)
                    documents, read = await self.instruction_files.changes(pending.state, run, agent)
                    room_chars = self.assembler.room_chars(run.agent, run.model)
                    recalled, mentions = await self.recall.changes(pending.state, run, agent, room_chars)
                    context = await self.assembler.assemble(add_drafts(pending, (*documents, *recalled)), run)
                    # Descriptions that nobody accepted are content from outside, and the header must say so too.
                    trust = Trust.EXTERNAL if context.tool_sources else Trust.SYSTEM
                    assembled = replace(engine_draft(context, run.run_id, now_ms), trust=trust)
                    facts += [*documents, *recalled, assembled]
                    writes = (*writes, *read, *mentions)
                case PlanRoute():
                    plan = await self.planner.plan(pending, run, effect)
                    facts += [] if plan is None else [engine_draft(plan, run.run_id, self.clock.now_ms())]
                case Judge(call_id=call_id):
                    case = gate_case(pending, run, self.agents.of_run(run.agent))
                    judged = await self._with_full(run, await self.gate.judge(run, find_call(run, call_id), case))
                    facts.append(engine_draft(judged, run.run_id, now_ms))
                    writes = (*writes, *link_full(judged.full, pending.state.session_id, now_ms))
                case JudgeDraft(call_id=call_id):
                    case = gate_case(pending, run, self.agents.of_run(run.agent))
                    judged_draft = await self.draft_gate.judge(run, find_call(run, call_id), case)
                    facts.append(engine_draft(judged_draft, run.run_id, now_ms))
                    writes = (*writes, *link_full(judged_draft.full, pending.state.session_id, now_ms))
                case _:
                    continue
        return tuple(facts), writes

    async def _with_full(self, run: Run, judged: ToolJudged) -> ToolJudged:
        """Keeps the whole call where a channel asks about it, which sends that along if its message is too short."""
        if judged.verdict is not Verdict.ASK or run.reply is None:
            return judged
        call = find_call(run, judged.call_id)
        text = "\n\n".join(filter(None, (judged.preview, whole_call(call.tool, call.arguments))))
        return replace(judged, full=await self.full.keep(run.run_id, CALL_NAME, text))


class EffectRunner:
    """The running effects of one session."""

    def __init__(self, parts: EffectParts, session_id: SessionId, report: Callable[[EffectReport], None]) -> None:
        self._parts = parts
        self._session_id = session_id
        self._report = report
        self._tasks: dict[Effect, asyncio.Task[Any]] = {}
        self._leave_behind: dict[Effect, Callable[[], None]] = {}
        self._given_up: set[Effect] = set()

    @property
    def is_busy(self) -> bool:
        return bool(self._tasks)

    def start(self, effects: tuple[Effect, ...], state: SessionState) -> None:
        """Call it after the record that asked for the effects is durable (L1)."""
        for effect in effects:
            match effect:
                case CallModel() if state.active is not None:
                    self._call_model(effect, state.active, state)
                case Execute() if state.active is not None:
                    self._execute(effect, state.active, state)
                case ResolveReferences() if state.active is not None:
                    self._resolve(effect, state.active, state)
                case CheckObjectives() if state.active is not None:
                    self._check(effect, state.active, state)
                case ApplyDraft() | DiscardDraft() if state.active is not None:
                    self._settle(effect, state.active, state)
                case ForgetDraft(effect_id=effect_id):
                    self._parts.tasks.spawn(self._parts.drafts.forget(effect_id), f"ForgetDraft {effect_id[:12]}")
                case Stop(effect=stopped):
                    self._stop(stopped)
                case _:
                    continue

    def give_up(self) -> int:
        """Stops all effects, because nothing came of them for too long. Returns their number.

        Each is reported, even one that does not stop. So the run goes on, or ends, whatever the effect does.
        """
        for effect, task in self._tasks.items():
            if isinstance(effect, ApplyDraft | DiscardDraft):
                continue  # It ends by itself, and stopping it halfway would say nothing about the files.
            task.cancel()
            leave_behind = self._leave_behind.get(effect)
            if leave_behind is not None:
                self._given_up.add(effect)
                asyncio.get_running_loop().call_later(STOP_WAIT_S, leave_behind)
        return len(self._tasks)

    def _stop(self, effect: CallModel | Execute | ResolveReferences | CheckObjectives) -> None:
        """Stops an effect. One that does not run here has reported already, or a restart will find that it was lost."""
        task = self._tasks.get(effect)
        if task is not None:
            task.cancel()

    def _resolve(self, effect: ResolveReferences, run: Run, state: SessionState) -> None:
        """Reads what a message refers to. If that breaks, each reference says so and the run goes on."""
        references = parse_references(effect.text)
        sender = ReferenceSender(
            principal=run.principal,
            agent=self._parts.agents.of_run(run.agent),
            session_id=self._session_id,
            trust=Trust.OPERATOR,
            taint=labels(state.taint),
            channel=run.origin,
            skills=run.skills,
        )

        def outcome(task: asyncio.Task[tuple[ResolvedReference, ...]]) -> Found:
            unread = tuple(refused(each, "failed", _UNREAD) for each in references)
            resolved = unread if task.cancelled() else _result(task, lambda: unread)
            now_ms = self._parts.clock.now_ms()
            return reference_facts(resolved, run.run_id, self._session_id, self._parts.tools.sealer, now_ms)

        self._watch(effect, self._parts.references.resolve(references, sender), run.run_id, outcome)

    def _check(self, effect: CheckObjectives, run: Run, state: SessionState) -> None:
        check = ObjectiveCheck(self._parts.objectives, run, state)

        def outcome(task: asyncio.Task[Draft]) -> Found:
            return (check.broken() if _is_stopped(task) else _result(task, check.broken),), ()

        self._watch(effect, check.perform(), run.run_id, outcome)

    def _call_model(self, effect: CallModel, run: Run, state: SessionState) -> None:
        models = self._parts.models
        if spender_of(run, self._session_id).is_capped:
            models = dataclasses.replace(models, bounds_output=True)
        call = ModelCall(models, self._session_id, effect, self._request(effect, run, state), run.route)
        trust = lowest((run.trust, trust_of(state.window), trust_of_taint(state.taint)))

        def outcome(task: asyncio.Task[list[Data]]) -> Found:
            facts = call.interrupted() if _is_stopped(task) else _result(task, call.broken)
            now_ms = self._parts.clock.now_ms()
            return tuple(agent_draft(data, run.run_id, run.agent, trust, now_ms) for data in facts), ()

        self._watch(effect, call.perform(), run.run_id, outcome)

    def _request(self, effect: CallModel, run: Run, state: SessionState) -> ModelRequest:
        base = self._parts.prompts.of(self._parts.agents.of_run(run.agent), run.skills, run.lineage)
        service, tools = find_service(run.agent), tools_for(base, state.taint)
        return ModelRequest(
            model=effect.model,
            instructions=with_callers(base.instructions, run),
            messages=render(state.window),
            tools=(*tools, *map(spec_of, run.caller_tools)) if run.caller_tools else tools,
            answer_schema=run.answer_schema,
            run_id=run.run_id,
            turn=effect.turn,
            calls_before=run.loop.tool_calls_count,
            max_output_tokens=service.max_output_tokens if service is not None else run.output_tokens_max,
        )

    def _execute(self, effect: Execute, run: Run, state: SessionState) -> None:
        call = find_call(run, effect.call_id)
        tool = self._parts.catalog.find(call.tool)
        if tool is None:
            return self._await_tool(effect, run, state)
        if call.judged is not None and call.judged.tool_sha256 not in (None, spec_digest(tool.spec)):
            # The tool that would run is no longer the one that was judged.
            return self._not_run(effect, run, Outcome.FAILED, _CHANGED)
        context = self._context(call, run, state)
        execution = ToolRun(self._parts.tools, tool, call, live_output(self._parts.tools, call, context))

        def outcome(task: asyncio.Task[tuple[Draft, tuple[Write, ...]]]) -> Found:
            if not _is_stopped(task):
                draft, writes = _result(task, execution.broken)
            else:
                draft, writes = execution.stuck() if effect in self._given_up else execution.cancelled()
            return (draft,), writes

        self._watch(effect, execution.perform(), run.run_id, outcome)

    def _context(self, call: Call, run: Run, state: SessionState) -> ToolCallContext:
        agent = self._parts.agents.of_run(run.agent)
        return ToolCallContext(
            session_id=self._session_id,
            run_id=run.run_id,
            effect_id=call.effect_id,
            principal=run.principal,
            agent=agent.name,
            workspace=agent.workspace,
            now_ms=self._parts.clock.now_ms(),
            emit=_discard,
            has_network=call.judged is not None and call.judged.has_network,
            taint=call.judged.taint if call.judged is not None else (),
            is_delegated=bool(run.lineage),
            origin=run.origin,
            is_alone=call.conflicts_count > 0 and is_last_attempt(call),
        )

    def _settle(self, effect: ApplyDraft | DiscardDraft, run: Run, state: SessionState) -> None:
        """Applies a draft whose intent is durable, or reports one that may not be applied."""
        call = find_call(run, effect.call_id)
        settled = DraftRun(self._parts.tools, self._parts.drafts, call, self._context(call, run, state))
        work = settled.apply() if isinstance(effect, ApplyDraft) else settled.discard()

        def outcome(task: asyncio.Task[tuple[Draft, tuple[Write, ...]]]) -> Found:
            draft, writes = settled.broken() if _is_stopped(task) else _result(task, settled.broken)
            return (draft,), writes

        self._watch(effect, work, run.run_id, outcome)

    def _await_tool(self, effect: Execute, run: Run, state: SessionState) -> None:
        """Handles a catalog that changed between verdict and execution.

        A server that is starting again is waited for.
        """
        name = find_call(run, effect.call_id).tool
        task = self._parts.tasks.spawn(_wait_for_tool(self._parts.catalog, name), f"{name} of {run.run_id}")
        self._tasks[effect] = task

        def ended(done: asyncio.Task[bool]) -> None:
            self._tasks.pop(effect, None)
            if self._parts.tasks.is_closing:
                return
            if not done.cancelled() and done.exception() is None and done.result():
                self._execute(effect, run, state)
            else:
                self._not_run(effect, run, Outcome.CANCELLED if done.cancelled() else Outcome.FAILED, _GONE)

        task.add_done_callback(ended)

    def _not_run(self, effect: Execute, run: Run, outcome: Outcome, error: ToolError) -> None:
        """Reports that nothing ran, because the tape must say so."""
        data = ToolFinished(
            call_id=effect.call_id, effect_id=effect.effect_id, outcome=outcome, error=error, attestation=None
        )
        draft = engine_draft(data, run.run_id, self._parts.clock.now_ms())
        self._report(EffectReport(run_id=run.run_id, effect=effect, drafts=(draft,)))

    def _watch(
        self,
        effect: CallModel | Execute | ResolveReferences | CheckObjectives | ApplyDraft | DiscardDraft,
        work: Coroutine[Any, Any, Any],
        run_id: RunId,
        outcome: Callable[[asyncio.Task[Any]], Found],
    ) -> None:
        # Whatever the effect logs, in whichever module, names the run it is for.
        with bound_contextvars(run_id=run_id, session_id=self._session_id):
            task = self._parts.tasks.spawn(work, f"{type(effect).__name__} of {run_id}")
        self._tasks[effect] = task

        def ended(done: asyncio.Task[Any]) -> None:
            if self._tasks.get(effect) is not done:
                return  # It was left behind, and is reported already.
            del self._tasks[effect], self._leave_behind[effect]
            if not self._parts.tasks.is_closing:
                drafts, writes = outcome(done)
                self._report(EffectReport(run_id=run_id, effect=effect, drafts=drafts, writes=writes))
            self._given_up.discard(effect)

        self._leave_behind[effect] = lambda: ended(task)
        task.add_done_callback(ended)


def _is_stopped(task: asyncio.Task[Any]) -> bool:
    """An effect that is reported before its task ends was left behind."""
    return not task.done() or task.cancelled()


def _discard(_stream: str, _text: str) -> None:
    """Drops output until a context has its own `emit`."""


def _result(task: asyncio.Task[Any], broken: Callable[[], Any]) -> Any:
    error = task.exception()
    if error is None:
        return task.result()
    log.error("effect_broken", task=task.get_name(), exc_info=error)
    return broken()


async def _wait_for_tool(catalog: Catalog, name: str) -> bool:
    """Tells whether the tool is here, or appears while the catalog knows why it is missing."""
    for _ in range(TOOL_LOOKS_MAX):
        if catalog.find(name) is not None:
            return True
        if not any(fnmatchcase(name, missing.name) for missing in catalog.missing()):
            return False
        await asyncio.sleep(TOOL_LOOK_S)
    return False
