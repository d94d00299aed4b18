"""Lift: whether what was learned helps.

Owns: what came of a run, counting, which items should be retired, and the report.
Does not own: reading events (observed_run), retiring an item (a person, by accepting the candidate).
"""

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from palyra.core.learning.model import Candidate, CandidateStatus, ItemUse, Reflection, UsedKind, UseOutcome
from palyra.core.learning.observed_run import ObservedRun

USES_MIN = 5  # An item that never helped in so many runs should go.
CORRECTIONS_MIN = 3
CORRECTED_SHARE = 0.5
WEEK_MS = 7 * 86_400_000
WEEKS_COUNT = 8
RETIREMENT_BPS = 8_000

_CORRECTION = re.compile(
    r"^(no\b|nope\b|wrong\b|incorrect\b|stop\b|not (that|like|what)\b|that('s| is| was) (not|wrong|incorrect)\b|that isn't\b"
    r"|i (said|told you|meant|asked)\b|i didn't (say|ask|mean)\b|you (forgot|misunderstood|got it wrong)\b"
    r"|actually,? (no|it|i|the)\b"
    r"|undo\b|again,? (no|wrong)\b|nein\b|falsch\b|ne,|špatně\b)",
    re.IGNORECASE,
)


class ItemLift(msgspec.Struct, frozen=True, kw_only=True):
    """How an item did. `target` is its kind and id, as in `memory:<id>`."""

    target: str
    uses_count: int = 0
    helped_count: int = 0
    corrected_count: int = 0
    failed_count: int = 0


class LearningWeek(msgspec.Struct, frozen=True, kw_only=True):
    """One week. `junk_count` counts finds that were dropped; `found_count` those that became candidates."""

    starts_at_ms: int
    found_count: int = 0
    junk_count: int = 0
    accepted_count: int = 0
    rejected_count: int = 0
    uses_count: int = 0
    helped_count: int = 0


class LearningReport(msgspec.Struct, frozen=True, kw_only=True):
    """How learning does. Rates are in basis points; None where there is nothing to count.

    `junk_bps` is the share of finds that were dropped as junk. `kept_junk_bps` is the share of reviewed or applied
    candidates that a person rejected or undid. `use_bps` is the share of accepted items that a run was given.
    """

    counts: dict[str, int]
    junk_bps: int | None
    kept_junk_bps: int | None
    use_bps: int | None
    helped_bps: int | None
    weeks: tuple[LearningWeek, ...]
    items: tuple[ItemLift, ...]


def is_correction(text: str) -> bool:
    """Tells whether a message corrects the answer before it."""
    return _CORRECTION.search(text.strip()) is not None


def begins_with_correction(run: ObservedRun) -> bool:
    """Tells whether a run began with a correction of the answer before it."""
    return bool(run.said) and is_correction(run.said[0].text)


def uses_of(run: ObservedRun) -> tuple[ItemUse, ...]:
    """Returns what a run was given, and what came of it. A later correction changes that."""
    steered = any(is_correction(said.text) for said in run.said[1:])
    outcome = UseOutcome.CORRECTED if steered else UseOutcome.HELPED if run.is_done else UseOutcome.FAILED
    named = [(UsedKind.MEMORY, each) for each in run.memories] + [(UsedKind.SKILL, each) for each in run.skills]
    return tuple(
        ItemUse(
            owner=run.owner,
            kind=kind,
            item_id=item_id,
            run_id=run.run_id,
            session_id=run.session_id,
            outcome=outcome,
            at_ms=run.ended_at_ms,
        )
        for kind, item_id in named
    )


def tally(uses: Iterable[ItemUse]) -> Mapping[str, ItemLift]:
    found: dict[str, ItemLift] = {}
    for use in uses:
        target = target_of(use)
        lift = found.get(target, ItemLift(target=target))
        found[target] = msgspec.structs.replace(
            lift,
            uses_count=lift.uses_count + 1,
            helped_count=lift.helped_count + (use.outcome is UseOutcome.HELPED),
            corrected_count=lift.corrected_count + (use.outcome is UseOutcome.CORRECTED),
            failed_count=lift.failed_count + (use.outcome is UseOutcome.FAILED),
        )
    return found


def target_of(use: ItemUse) -> str:
    return f"{use.kind.value}:{use.item_id}"


def why_retire(lift: ItemLift) -> str:
    """Returns why an item should go, in words for a person, or nothing if it may stay."""
    if lift.uses_count >= USES_MIN and lift.helped_count == 0:
        return f"It was given to {lift.uses_count} runs and helped in none."
    often = lift.corrected_count >= CORRECTIONS_MIN and lift.corrected_count >= CORRECTED_SHARE * lift.uses_count
    return f"{lift.corrected_count} of {lift.uses_count} runs that were given it had to be corrected." if often else ""


def report_of(
    candidates: Sequence[Candidate], uses: Sequence[ItemUse], reflections: Sequence[Reflection], now_ms: int
) -> LearningReport:
    counts: dict[str, int] = {status.value: 0 for status in CandidateStatus}
    for candidate in candidates:
        counts[candidate.status.value] += 1
    lifts = tally(uses)
    applied = {each.applied_to for each in candidates if each.status is CandidateStatus.ACCEPTED and each.applied_to}
    used = applied & set(lifts)
    found = sum(each.found_count for each in reflections)
    junk = sum(each.junk_count for each in reflections)
    bad = counts["rejected"] + counts["undone"]
    return LearningReport(
        counts=counts,
        junk_bps=_share(junk, found + junk),
        kept_junk_bps=_share(bad, bad + counts["accepted"]),
        use_bps=_share(len(used), len(applied)),
        helped_bps=_share(sum(lift.helped_count for lift in lifts.values()), len(uses)),
        weeks=_weeks(candidates, uses, reflections, now_ms),
        items=tuple(sorted(lifts.values(), key=lambda lift: (-lift.uses_count, lift.target))[:50]),
    )


def _weeks(
    candidates: Sequence[Candidate], uses: Sequence[ItemUse], reflections: Sequence[Reflection], now_ms: int
) -> tuple[LearningWeek, ...]:
    weeks = []
    for number in reversed(range(WEEKS_COUNT)):
        start_ms, stop_ms = now_ms - (number + 1) * WEEK_MS, now_ms - number * WEEK_MS
        decided = [each for each in candidates if start_ms < each.updated_at_ms <= stop_ms]
        given = [each for each in uses if start_ms < each.at_ms <= stop_ms]
        reflected = [each for each in reflections if start_ms < each.at_ms <= stop_ms]
        weeks.append(
            LearningWeek(
                starts_at_ms=start_ms,
                found_count=sum(each.found_count for each in reflected),
                junk_count=sum(each.junk_count for each in reflected),
                accepted_count=sum(each.status is CandidateStatus.ACCEPTED for each in decided),
                rejected_count=sum(
                    each.status in (CandidateStatus.REJECTED, CandidateStatus.UNDONE) for each in decided
                ),
                uses_count=len(given),
                helped_count=sum(each.outcome is UseOutcome.HELPED for each in given),
            )
        )
    return tuple(weeks)


def _share(part: int, whole: int) -> int | None:
    return None if whole == 0 else part * 10_000 // whole
