"""Compares what is known with what one cycle found, and decides the next steps.

Owns: when an incident opens, comes back, is acted on, is told of and resolves; and how often it may be acted on.
Does not own: looking (engine.healing.probes), recording and doing (engine.healing.watchdog).
Invariants: one incident is open for a subject of a domain. An incident is acted on at most ACTIONS_MAX times, with
growing pauses, and keeps that count when its finding comes back. Nothing is decided about a domain that gave no answer.
"""

import re
from collections.abc import Iterable

import msgspec

from palyra.core.healing.model import (
    EVIDENCE_LENGTH_MAX,
    SEVERITY_ORDER,
    ActOutcome,
    Finding,
    HealingDomain,
    HealingMode,
    HealingModes,
    IncidentStatus,
    Remedy,
    Resolution,
)
from palyra.core.projections.rows import IncidentRow

ACTIONS_MAX = 3  # What three actions did not mend needs a person.
PAUSES_MS = (60_000, 300_000)  # Before the second action, and before the third.
MISSED_MAX = 2  # Two looks in a row without the finding: it is gone for at least one whole cycle.
REOPEN_MS = 3_600_000  # Within this time a finding that comes back is the same incident.
RETELL_MS = 60_000  # A finding whose evidence changes all the time is recorded no more often than this.

_MEASURE = re.compile(r"\b\d+(?:\.\d+)? (?:s|MiB)\b")  # What grows by itself is no news.


class Looks(msgspec.Struct, frozen=True):
    """What one cycle found, and the domains that gave an answer. Only in those can a finding be missing."""

    findings: tuple[Finding, ...]
    answered: frozenset[HealingDomain]


class KnownIncident(msgspec.Struct, frozen=True):
    """An incident that is open, or was resolved within REOPEN_MS. `missed_count` counts looks without its finding.

    `failure` says why its last action failed; empty if the action was done. `evidence` is what is recorded; None if that
    is not known.
    """

    row: IncidentRow
    missed_count: int = 0
    failure: str = ""
    evidence: str | None = None


class OpenIncident(msgspec.Struct, frozen=True):
    """`known` is the incident that comes back, becomes worse or has new evidence; None for a new one."""

    finding: Finding
    known: IncidentRow | None = None


class ActOnIncident(msgspec.Struct, frozen=True):
    """`known` is None if this same cycle opens the incident."""

    finding: Finding
    remedy: Remedy
    known: IncidentRow | None = None


class TellOutcome(msgspec.Struct, frozen=True):
    known: IncidentRow
    outcome: ActOutcome
    reason: str


class ResolveIncident(msgspec.Struct, frozen=True):
    known: IncidentRow
    resolution: Resolution
    reason: str


HealingStep = OpenIncident | ActOnIncident | TellOutcome | ResolveIncident


def reconcile(
    known: Iterable[KnownIncident], looks: Looks, modes: HealingModes, now_ms: int
) -> tuple[HealingStep, ...]:
    """Returns the steps in the order of domains."""
    found = {_key(finding): finding for finding in looks.findings}
    newest: dict[tuple[HealingDomain, str], KnownIncident] = {}
    for incident in sorted(known, key=lambda one: one.row.id):
        newest[incident.row.domain, incident.row.subject] = incident
    steps: list[HealingStep] = []
    for key, incident in newest.items():
        if key not in found:
            steps += _missing(incident, looks, modes)
    for key, finding in found.items():
        if modes.of(finding.domain) is not HealingMode.DISABLED:
            steps += _present(finding, newest.get(key), modes.of(finding.domain), now_ms)
    order = list(HealingDomain)
    return tuple(sorted(steps, key=lambda step: order.index(_domain(step))))


def missed_counts(known: Iterable[KnownIncident], looks: Looks) -> dict[str, int]:
    """Counts for each open incident how often in a row its finding was not there. No answer counts for nothing."""
    found = {_key(finding) for finding in looks.findings}
    counts: dict[str, int] = {}
    for incident in known:
        row = incident.row
        if row.status is not IncidentStatus.OPEN or (row.domain, row.subject) in found:
            continue
        counts[row.id] = incident.missed_count + (row.domain in looks.answered)
    return counts


def choose_remedy(remedies: tuple[Remedy, ...], acted_count: int) -> Remedy | None:
    """Returns the next action: each remedy once in order, then the last one again."""
    return remedies[min(acted_count, len(remedies) - 1)] if remedies else None


def may_act(acted_count: int, acted_at_ms: int | None, now_ms: int) -> bool:
    if acted_count >= ACTIONS_MAX:
        return False
    return acted_at_ms is None or acted_count == 0 or now_ms - acted_at_ms >= PAUSES_MS[acted_count - 1]


def _missing(incident: KnownIncident, looks: Looks, modes: HealingModes) -> list[HealingStep]:
    row = incident.row
    if row.status is IncidentStatus.RESOLVED:
        return _gone_after_all(row, looks)
    if modes.of(row.domain) is HealingMode.DISABLED:
        return [ResolveIncident(row, Resolution.UNWATCHED, f"the domain {row.domain.value} is not watched any more")]
    if row.domain not in looks.answered or incident.missed_count + 1 < MISSED_MAX:
        return []
    words = f"after {row.acted_count} actions" if row.acted_count else "by itself"
    return [ResolveIncident(row, Resolution.GONE, f"it is gone {words}")]


def _gone_after_all(row: IncidentRow, looks: Looks) -> list[HealingStep]:
    """Ends the quiet time of what a person resolved: if the finding comes back now, it is news."""
    if row.resolution is not Resolution.BY_HAND or row.domain not in looks.answered:
        return []
    return [ResolveIncident(row, Resolution.GONE, "it is gone since it was resolved by hand")]


def _present(finding: Finding, incident: KnownIncident | None, mode: HealingMode, now_ms: int) -> list[HealingStep]:
    row = incident.row if incident is not None else None
    steps: list[HealingStep] = []
    if row is None or row.status is IncidentStatus.RESOLVED:
        if row is not None and row.resolution is Resolution.BY_HAND:
            return []  # A person knows of it. It is told of again if it lasts longer than REOPEN_MS.
        steps.append(OpenIncident(finding, row))
    elif incident is not None and (_is_worse(finding, row) or _is_news(finding, incident, now_ms)):
        steps.append(OpenIncident(finding, row))
    if incident is not None and row is not None and row.told_count < row.acted_count:
        steps.append(_outcome(incident))
    acted_count, acted_at_ms = (row.acted_count, row.acted_at_ms) if row is not None else (0, None)
    remedy = choose_remedy(finding.remedies, acted_count)
    if mode is HealingMode.AUTO and remedy is not None and may_act(acted_count, acted_at_ms, now_ms):
        steps.append(ActOnIncident(finding, remedy, row))
    return steps


def _is_worse(finding: Finding, row: IncidentRow) -> bool:
    return SEVERITY_ORDER.index(finding.severity) > SEVERITY_ORDER.index(row.severity)


def _is_news(finding: Finding, incident: KnownIncident, now_ms: int) -> bool:
    """Tells whether the evidence says something else than what is recorded, apart from times and sizes."""
    if incident.evidence is None or now_ms - incident.row.opened_at_ms < RETELL_MS:
        return False
    now = finding.evidence[:EVIDENCE_LENGTH_MAX]
    return _MEASURE.sub("", now) != _MEASURE.sub("", incident.evidence)


def _outcome(incident: KnownIncident) -> TellOutcome:
    if incident.failure:
        return TellOutcome(incident.row, ActOutcome.FAILED, incident.failure)
    return TellOutcome(incident.row, ActOutcome.PERSISTS, "the finding is still there")


def _key(finding: Finding) -> tuple[HealingDomain, str]:
    return finding.domain, finding.subject


def _domain(step: HealingStep) -> HealingDomain:
    return step.finding.domain if isinstance(step, OpenIncident | ActOnIncident) else step.known.domain
