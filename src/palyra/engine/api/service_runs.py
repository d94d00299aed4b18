"""Service runs: runs that the daemon itself starts (core.service_runs).

Owns: starting one on its own tape, following it to its end, and its outcome.
Does not own: what a service asks of a model, or what is done with the answer.
"""

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from palyra.core.events import Event
from palyra.core.events.model import Finish, ModelFailed, ModelOutput, Usage, UsageRecorded
from palyra.core.events.run import MessageUser, RunAccepted, RunCancelled, RunDone, RunFailed
from palyra.core.events.session import SessionCreated
from palyra.core.ids import RunId
from palyra.core.service_runs import ORIGIN, ServiceOutcome, ServiceRequest
from palyra.engine.api.requests import WhenBusy
from palyra.engine.hub import Frame, Frames, Hub
from palyra.engine.new_ids import IdSource
from palyra.engine.session.commands import CancelRun, StartRun
from palyra.engine.session.drafts import ENGINE
from palyra.engine.session.session_loops import SessionLoops
from palyra.ports.views import RunViews

INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class ServiceRuns:
    ids: IdSource
    loops: SessionLoops
    hub: Hub
    runs: RunViews

    async def perform(self, request: ServiceRequest, watch: Callable[[Frame], None] | None = None) -> ServiceOutcome:
        """Starts the run and waits for its end. A request with ids of its own finds the run that it began before.

        Cancelling this cancels the run; `watch` sees each frame as it comes.
        """
        session_id, run_id = request.ids or (self.ids.session_id(), self.ids.run_id())
        is_known = request.ids is not None and await self.runs.run(run_id, None) is not None
        follower = self.hub.attach(session_id)
        is_over = True
        try:
            if not is_known:
                await self.loops.post(session_id, _command(request, run_id))
            is_over = False
            frames = follower.follow(0 if is_known else follower.first_seq() - 1)
            outcome = await _follow(frames, ServiceOutcome(run_id=run_id, session_id=session_id), watch)
            is_over = True
            return outcome
        finally:
            follower.close()
            if not is_over:
                self.loops.post(session_id, CancelRun(run_id=run_id, principal=request.principal))


async def _follow(frames: Frames, outcome: ServiceOutcome, watch: Callable[[Frame], None] | None) -> ServiceOutcome:
    async for frame in frames:
        if watch is not None:
            watch(frame)
        if isinstance(frame, Event):
            outcome, is_over = _fold(outcome, frame)
            if is_over:
                break
    return outcome


def _command(request: ServiceRequest, run_id: RunId) -> StartRun:
    spec = request.spec
    opening = SessionCreated(owner=request.principal, agent=spec.agent, purpose=spec.purpose, serves=request.serves)
    accepted = RunAccepted(
        agent=spec.agent,
        origin=ORIGIN,
        can_ask=False,
        limits=spec.limits,
        model=request.model,
        answer_schema=request.answer_schema,
        serves_agent=request.serves_agent,
        batch_tokens=request.batch_tokens,
    )
    return StartRun(
        run_id=run_id,
        principal=request.principal,
        trust=request.trust,
        accepted=accepted,
        message=MessageUser(text=request.text),
        when_busy=WhenBusy.REJECT,
        opening=opening,
        speaker=ENGINE,  # No person said this, so `@file:` and its like in it refer to nothing.
    )


def _fold(outcome: ServiceOutcome, event: Event) -> tuple[ServiceOutcome, bool]:
    """Returns the outcome after one event, and whether it was the last."""
    match event.data:
        case ModelOutput(text=text, finish=Finish.INTERRUPTED, cause=cause):
            return replace(outcome, text=text, code=INTERRUPTED, message=cause or "The answer broke off."), False
        case ModelOutput(text=text):
            return replace(outcome, text=text, code=None, message=""), False
        case ModelFailed(code=code, message=message):
            return replace(outcome, code=code.value, message=message), False
        case UsageRecorded() as used:
            return replace(outcome, usage=_counted(used), cost_usd=used.cost_usd), False
        case RunDone():
            return replace(outcome, answer=outcome.text, code=None, message=""), True
        case RunCancelled(reason=reason, message=message):
            return replace(outcome, code=reason.value, message=message), True
        case RunFailed(reason=reason, message=message):
            is_told = outcome.code is not None
            return outcome if is_told else replace(outcome, code=reason.value, message=message), True
        case _:
            return outcome, False


def _counted(used: UsageRecorded) -> Usage | None:
    if used.is_estimate:
        return None
    return Usage(
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cached_tokens=used.cached_tokens,
        reasoning_tokens=used.reasoning_tokens,
        cache_write_tokens=used.cache_write_tokens,
    )
