"""Results of calls that the caller executed, as facts of their run.

Owns: turning a result into the same record that a tool of ours leaves: redacted, spilled if large, signed.
Does not own: handing calls out (core.run), asking for results (gateway).
Invariant: a result is below `local`, because nobody here saw how it was made (L8).
"""

from dataclasses import dataclass

from palyra.core.caller_tools import source_of_result, spec_of
from palyra.core.errors import Conflict
from palyra.core.events import Draft
from palyra.core.events.base import JsonObject
from palyra.core.events.run import CallerTool
from palyra.core.events.tool import Outcome, ToolError
from palyra.core.run.call import Call, CallPhase
from palyra.core.run.state import Run, calls_handed_out
from palyra.core.tools import CallNature, ToolResult, ToolSpec
from palyra.core.writes import Write
from palyra.engine.session.commands import CallerResult
from palyra.engine.session.pending_commit import SessionState
from palyra.engine.session.tool_call import ToolExecutor, ToolRun
from palyra.ports.tools import ToolCallContext

FAILED = ToolError(code="caller_failed", message="The caller says that its tool failed.")


@dataclass(frozen=True, slots=True)
class CallerResults:
    executor: ToolExecutor

    async def facts(
        self, run: Run, state: SessionState, results: tuple[CallerResult, ...]
    ) -> tuple[tuple[Draft, ...], tuple[Write, ...]]:
        """Returns the facts of results that are still owed. A result of a call that the run never made is a Conflict."""
        owed = {call.call_id: call for call in calls_handed_out(run)}
        known = {call.call_id for call in run.calls if call.phase is CallPhase.FINISHED}
        facts: list[Draft] = []
        writes: list[Write] = []
        for result in results:
            call = owed.pop(result.call_id, None)
            if call is None and result.call_id not in known:
                message = f"run {run.run_id} does not wait for a result of call {result.call_id}"
                raise Conflict("call_not_waiting", message, is_retryable=False)
            if call is not None:
                draft, extra = await self._fact(run, state, call, result)
                facts.append(draft)
                writes.extend(extra)
        return tuple(facts), tuple(writes)

    async def _fact(
        self, run: Run, state: SessionState, call: Call, result: CallerResult
    ) -> tuple[Draft, tuple[Write, ...]]:
        tool = next(each for each in run.caller_tools if each.name == call.tool)
        context = ToolCallContext(
            session_id=state.session_id,
            run_id=run.run_id,
            effect_id=call.effect_id,
            principal=state.owner,
            agent=run.agent,
            workspace=(),
            now_ms=self.executor.clock.now_ms(),
            emit=_discard,
        )
        return await ToolRun(self.executor, _ToolOfCaller(tool, result), call, context).perform()


class _ToolOfCaller:
    """A tool that has been executed elsewhere: it gives the result that came."""

    def __init__(self, tool: CallerTool, result: CallerResult) -> None:
        self._spec = spec_of(tool)
        self._result = result

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        return CallNature(effect_class=self._spec.effect_class, parallel_class=self._spec.parallel_class)

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        is_error = self._result.is_error
        return ToolResult(
            outcome=Outcome.FAILED if is_error else Outcome.OK,
            output=self._result.output,
            error=FAILED if is_error else None,
            source=source_of_result(self._spec.name),
        )


def _discard(stream: str, text: str) -> None: ...
