"""Parallel dispatch: which cleared calls may start now.

Does not own: starting them (engine.session.effect_runner).
Calls run in groups, in the order proposed. A refused call, a `Never` call, or one whose paths touch another's closes a
group. An undecided call holds back every later call, because those may rely on it.
"""

from collections.abc import Sequence

from palyra.core.events.tool import Outcome, ParallelClass
from palyra.core.run.call import SETTLED, UNDECIDED, Call, CallPhase, is_callers


def next_to_start(calls: Sequence[Call], parallel_max: int) -> Call | None:
    """Returns the first cleared call of the open group, if there is room for it."""
    group: list[Call] = []
    for call in calls:
        if call.phase in UNDECIDED:
            return None
        if call.phase is CallPhase.REFUSED or call.outcome is Outcome.DENIED:
            if group:
                return None
            continue
        if call.phase in SETTLED:
            continue
        if not _may_join(call, group):
            return None
        if call.phase is CallPhase.CLEARED:
            return call if _has_room(call, group, parallel_max) else None
        group.append(call)
    return None


def _has_room(call: Call, group: Sequence[Call], parallel_max: int) -> bool:
    """A call that the caller executes takes no room here."""
    return is_callers(call) or sum(not is_callers(other) for other in group) < parallel_max


def _may_join(call: Call, group: Sequence[Call]) -> bool:
    return not group or (_is_parallel(call) and all(_is_parallel(other) for other in group) and _is_apart(call, group))


def _is_parallel(call: Call) -> bool:
    return call.judged is not None and call.judged.parallel_class is not ParallelClass.NEVER


def _is_apart(call: Call, group: Sequence[Call]) -> bool:
    """Two reads never conflict. A call that works on paths conflicts with any other on the same or a nested path."""
    return not any(_conflicts(call, other) for other in group)


def _conflicts(left: Call, right: Call) -> bool:
    if left.judged is None or right.judged is None:
        return True
    classes = {left.judged.parallel_class, right.judged.parallel_class}
    if ParallelClass.PATH_SCOPED not in classes:
        return False
    return any(_is_nested(a, b) for a in left.judged.paths for b in right.judged.paths)


def _is_nested(left: str, right: str) -> bool:
    """`.` is the whole workspace."""
    if "." in (left, right):
        return True
    shorter, longer = sorted((left.rstrip("/") + "/", right.rstrip("/") + "/"), key=len)
    return longer.startswith(shorter)
