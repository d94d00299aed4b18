"""The RunProgressController notices that a run goes in circles.

Does not own: ending the run (due_end).
It trips on 3 equal failures in a row (same tool, same normalised error) or 3 denials in a row. It also trips on the
same read with the same result 3 times, and on 6 calls in a row that add nothing new. It is pure: it sees only what
`tool.finished` recorded.
"""

import hashlib
import re

import msgspec
from msgspec.structs import replace

from palyra.core.events.tool import EffectClass, Outcome, ToolError

EQUAL_FAILURES_MAX = 3
DENIALS_MAX = 3
EQUAL_READS_MAX = 3
STALE_CALLS_MAX = 6
TRIPS_MAX = 2  # The first trip gives guidance, the second ends the run.

GUIDANCE = {
    "equal_failures": "The same tool failed three times in the same way. Do not repeat that call: find out "
    "why it fails, use another way, or say plainly what stands in the way.",
    "denials": "Three calls in a row were refused. Do not ask for the same again: go on without it, or tell the person "
    "what you would need and why.",
    "equal_reads": "The same read gave the same result three times. You already have this information: use it, or "
    "look somewhere else.",
    "nothing_new": "The last six calls brought nothing new. Stop gathering: answer with what you have, or change the "
    "approach.",
}

_VARIABLE_PARTS = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{8,}\b|\d+")
_WHITE_SPACE = re.compile(r"\s+")


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about one settled call that the controller sees."""

    tool: str
    digest: str
    effect_class: EffectClass
    outcome: Outcome
    error: ToolError | None
    result: str


class RunProgressController(msgspec.Struct, frozen=True, kw_only=True):
    failure: str = ""
    failures_count: int = 0
    denials_count: int = 0
    stale_count: int = 0
    seen: frozenset[str] = frozenset()
    reads: tuple[tuple[str, int], ...] = ()
    trips_count: int = 0
    tripped: str | None = None


def observe(progress: RunProgressController, call: Observed) -> RunProgressController:
    """Returns the controller after one more settled call."""
    counted = _count_failures(_count_denials(progress, call), call)
    counted = _count_reads(_count_stale(counted, call), call)
    return counted if counted.tripped else replace(counted, tripped=_tripped_guard(counted))


def acknowledge(progress: RunProgressController) -> RunProgressController:
    """Starts the counts again after guidance was given; results that were seen stay seen."""
    return RunProgressController(seen=progress.seen, trips_count=progress.trips_count + 1)


def normalise_error(message: str) -> str:
    """Makes two errors equal if they differ only in numbers, addresses, case and spacing."""
    return _WHITE_SPACE.sub(" ", _VARIABLE_PARTS.sub("#", message.lower())).strip()


def _tripped_guard(progress: RunProgressController) -> str | None:
    if progress.failures_count >= EQUAL_FAILURES_MAX:
        return "equal_failures"
    if progress.denials_count >= DENIALS_MAX:
        return "denials"
    if any(count >= EQUAL_READS_MAX for _, count in progress.reads):
        return "equal_reads"
    if progress.stale_count >= STALE_CALLS_MAX:
        return "nothing_new"
    return None


def _count_denials(progress: RunProgressController, call: Observed) -> RunProgressController:
    count = progress.denials_count + 1 if call.outcome is Outcome.DENIED else 0
    return replace(progress, denials_count=count)


def _count_failures(progress: RunProgressController, call: Observed) -> RunProgressController:
    if call.outcome not in (Outcome.FAILED, Outcome.TIMEOUT):
        return replace(progress, failure="", failures_count=0)
    failure = f"{call.tool}\n{_error_text(call)}"
    count = progress.failures_count + 1 if failure == progress.failure else 1
    return replace(progress, failure=failure, failures_count=count)


def _count_stale(progress: RunProgressController, call: Observed) -> RunProgressController:
    """Counts calls without news. News is a result never seen in this run, or a change made in the world."""
    is_change = call.outcome is Outcome.OK and call.effect_class is not EffectClass.READ_ONLY
    mark = _mark(call.tool, call.result if call.outcome is Outcome.OK else _error_text(call))
    is_stale = not is_change and mark in progress.seen
    return replace(progress, stale_count=progress.stale_count + 1 if is_stale else 0, seen=progress.seen | {mark})


def _count_reads(progress: RunProgressController, call: Observed) -> RunProgressController:
    if call.outcome is not Outcome.OK:
        return progress
    if call.effect_class is not EffectClass.READ_ONLY:
        # The world changed, so reading the same again is sensible.
        return replace(progress, reads=())
    mark = _mark(call.digest, call.result)
    counts = dict(progress.reads)
    counts[mark] = counts.get(mark, 0) + 1
    return replace(progress, reads=tuple(counts.items()))


def _error_text(call: Observed) -> str:
    return normalise_error(f"{call.error.code}: {call.error.message}") if call.error else call.outcome.value


def _mark(*parts: str) -> str:
    return hashlib.sha256("\x00".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]
