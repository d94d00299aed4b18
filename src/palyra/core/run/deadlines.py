"""Deadlines of a run: when the passing of time becomes a fact for it.

Does not own: timers (engine.session.deadlines).
"""

from palyra.core.events import Draft
from palyra.core.events.run import CancelRequested, EndReason
from palyra.core.events.tool import ApprovalResolved, ApprovalStatus, Decision
from palyra.core.ids import Principal
from palyra.core.run.loop import wall_clock_deadline_ms
from palyra.core.run.state import Run, calls_handed_out, is_expired
from palyra.core.run.states import is_terminal
from palyra.core.trust import Trust

CLOCK = Principal("system:clock")
CALLER_GONE = "The caller did not send the result of its own tool in time."


def next_deadline_ms(run: Run) -> int | None:
    """Returns when to check again, or None if time changes nothing for this run."""
    if is_terminal(run.state):
        return None
    deadlines = [question.expires_at_ms for question in run.questions if question.expires_at_ms is not None]
    if run.ending is None:
        wall_clock = wall_clock_deadline_ms(run.loop, run.limits)
        deadlines += [] if wall_clock is None else [wall_clock]
        deadlines += [call.expires_at_ms for call in calls_handed_out(run) if call.expires_at_ms is not None]
    return min(deadlines, default=None)


def overdue(run: Run, now_ms: int) -> tuple[Draft, ...]:
    """Returns the facts that the passing of time has made true. A question without an answer in time is denied (L7)."""
    if is_terminal(run.state):
        return ()
    facts: list[ApprovalResolved | CancelRequested] = [
        ApprovalResolved(
            approval_id=question.approval_id,
            status=ApprovalStatus.EXPIRED,
            decision=Decision.DENY,
            decided_by=CLOCK,
            digest=question.digest,
            reason="expired",
        )
        for question in run.questions
        if is_expired(question, now_ms)
    ]
    wall_clock = wall_clock_deadline_ms(run.loop, run.limits) if run.ending is None else None
    if wall_clock is not None and wall_clock <= now_ms:
        limit_s = run.limits.wall_clock_ms // 1000
        facts.append(
            CancelRequested(reason=EndReason.WALL_CLOCK, message=f"The run was active for {limit_s} s, its limit.")
        )
    if run.ending is None and _is_caller_gone(run, now_ms):
        # Going on would spend on an answer that nobody is there to take.
        facts.append(CancelRequested(reason=EndReason.CANCELLED, message=CALLER_GONE))
    return tuple(Draft(data=data, actor=CLOCK, trust=Trust.SYSTEM, at_ms=now_ms, run_id=run.run_id) for data in facts)


def _is_caller_gone(run: Run, now_ms: int) -> bool:
    return any(call.expires_at_ms is not None and call.expires_at_ms <= now_ms for call in calls_handed_out(run))
