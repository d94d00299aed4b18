"""Deadlines of a run: when the passing of time becomes a fact for it.

Does not own: timers (engine.session.deadlines).
"""

from palyra.core.events import Draft
from palyra.core.events.run import CancelRequested, EndReason
from palyra.core.events.tool import ApprovalResolved, ApprovalStatus, Decision
from palyra.core.ids import Principal
from palyra.core.run.loop import wall_clock_deadline_ms
from palyra.core.run.state import Run, is_expired
from palyra.core.run.states import is_terminal
from palyra.core.trust import Trust

CLOCK = Principal("system:clock")


def next_deadline_ms(run: Run) -> int | None:
    """Returns when to check again, or None if time changes nothing for this run."""
    if is_terminal(run.state):
        return None
    deadlines = [question.expires_at_ms for question in run.questions if question.expires_at_ms is not None]
    wall_clock = wall_clock_deadline_ms(run.loop, run.limits) if run.ending is None else None
    if wall_clock is not None:
        deadlines.append(wall_clock)
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
    return tuple(Draft(data=data, actor=CLOCK, trust=Trust.SYSTEM, at_ms=now_ms, run_id=run.run_id) for data in facts)
