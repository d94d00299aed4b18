"""Calls that a caller executes itself, as the caller sees them (L11).

Owns: showing the calls of a run whose results are owed, and taking those results.
Does not own: what a result does to the run (core.run), the caller's protocol (gateway).
"""

from dataclasses import dataclass

import msgspec

from palyra.core.errors import Conflict, NotFound
from palyra.core.events.base import JsonObject
from palyra.core.events.run import MessageUser
from palyra.core.ids import CallId, Principal, RunId
from palyra.core.projections.rows import RunRow
from palyra.core.run.state import Run, calls_handed_out
from palyra.core.run.states import is_terminal
from palyra.engine.session.commands import CallerResult, ReturnResults
from palyra.engine.session.real_arguments import ArgumentRestorer
from palyra.engine.session.session_loader import SessionLoader
from palyra.engine.session.session_loops import SessionLoops
from palyra.ports.views import RunViews


class OwedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the caller is to execute, with its real arguments: the caller is its executor."""

    call_id: CallId
    index: int
    tool: str
    arguments: JsonObject | str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerToolService:
    views: RunViews
    loops: SessionLoops
    loader: SessionLoader
    restorer: ArgumentRestorer

    async def owed(self, principal: Principal, run_id: RunId) -> tuple[OwedCall, ...]:
        """Returns the calls whose results the run waits for, in their order. A run that is over waits for none."""
        run = await self._active(principal, run_id)
        if run is None:
            return ()
        return tuple([await self._owed(run, index) for index in range(len(calls_handed_out(run)))])

    async def give(
        self, principal: Principal, run_id: RunId, results: tuple[CallerResult, ...], message: MessageUser | None = None
    ) -> None:
        """Gives results to a run, durable when this returns. A result that was given before changes nothing."""
        row = await self._row(principal, run_id)
        command = ReturnResults(run_id=run_id, principal=principal, results=results, message=message)
        try:
            await self.loops.post(row.session_id, command)
        except NotFound as error:
            raise Conflict("run_ended", f"run {run_id} is over; start a new one", is_retryable=False) from error

    async def _active(self, principal: Principal, run_id: RunId) -> Run | None:
        """Returns None for a run that is over, whose tape may be erased by now."""
        row = await self._row(principal, run_id)
        if is_terminal(row.state):
            return None
        known = self.loops.known_state(row.session_id)
        run = known.active if known is not None else None
        # What is recorded shows a moment before the loop has it in memory. Then the tape tells.
        is_current = run is not None and run.run_id == run_id and run.state is row.state
        return run if is_current else await self.loader.fold_run(row)

    async def _row(self, principal: Principal, run_id: RunId) -> RunRow:
        row = await self.views.run(run_id, principal)
        if row is None:
            raise NotFound("run_unknown", f"there is no run {run_id}")
        return row

    async def _owed(self, run: Run, place: int) -> OwedCall:
        call = calls_handed_out(run)[place]
        arguments = call.arguments
        if isinstance(arguments, dict):
            arguments = (await self.restorer.restore(run.run_id, arguments)).arguments
        return OwedCall(call_id=call.call_id, index=call.index, tool=call.tool, arguments=arguments)
