"""Findings and what is known, to steps: opening, acting, telling and resolving, and never in a loop."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palyra.core.healing.model import (
    ActOutcome,
    Finding,
    HealingDomain,
    HealingMode,
    HealingModes,
    IncidentStatus,
    Remedy,
    Resolution,
    Severity,
)
from palyra.core.healing.reconcile import (
    ACTIONS_MAX,
    PAUSES_MS,
    RETELL_MS,
    ActOnIncident,
    HealingStep,
    KnownIncident,
    Looks,
    OpenIncident,
    ResolveIncident,
    TellOutcome,
    choose_remedy,
    missed_counts,
    reconcile,
)
from palyra.core.ids import IncidentId, StreamId
from palyra.core.projections.rows import IncidentRow

NOW = 10_000_000
CYCLE_MS = 30_000
RUN, DISK = HealingDomain.RUN, HealingDomain.DISK
AUTO = HealingModes(mode=HealingMode.AUTO)
OBSERVE = HealingModes()
STUCK = Finding(
    domain=RUN,
    subject="r1",
    severity=Severity.CRITICAL,
    evidence="no heartbeat",
    remediation="Look.",
    remedies=(Remedy.REDRIVE_RUN, Remedy.CANCEL_RUN),
)
LOW = Finding(domain=DISK, subject="home", severity=Severity.WARNING, evidence="low", remediation="Free some.")


def row(finding: Finding = STUCK, **fields: object) -> IncidentRow:
    known = IncidentRow(
        id=IncidentId("i1"),
        stream=StreamId("system:n"),
        domain=finding.domain,
        subject=finding.subject,
        severity=finding.severity,
        status=IncidentStatus.OPEN,
        resolution=None,
        remedies="",
        first_seen_ms=NOW,
        opened_at_ms=NOW,
        opened_count=1,
        acted_count=0,
        told_count=0,
        acted_at_ms=None,
        resolved_at_ms=None,
        opened_seq=1,
        seq=1,
    )
    return replace(known, **fields)


def resolved(resolution: Resolution, **fields: object) -> IncidentRow:
    return replace(row(status=IncidentStatus.RESOLVED, resolution=resolution, resolved_at_ms=NOW - 1), **fields)


def steps(
    known: Sequence[KnownIncident], findings: Sequence[Finding], modes: HealingModes = OBSERVE, now_ms: int = NOW
) -> list[HealingStep]:
    answered = frozenset(domain for domain in HealingDomain if modes.of(domain) is not HealingMode.DISABLED)
    return list(reconcile(known, Looks(tuple(findings), answered), modes, now_ms))


def look(*findings: Finding, answered: HealingDomain = RUN) -> Looks:
    return Looks(findings, frozenset({answered}))


@pytest.mark.parametrize(
    ("modes", "expected"),
    [
        (OBSERVE, [OpenIncident(STUCK)]),
        (AUTO, [OpenIncident(STUCK), ActOnIncident(STUCK, Remedy.REDRIVE_RUN)]),
        (HealingModes(mode=HealingMode.DISABLED), []),
        (
            HealingModes(domains={RUN: HealingMode.AUTO}),
            [OpenIncident(STUCK), ActOnIncident(STUCK, Remedy.REDRIVE_RUN)],
        ),
        (HealingModes(mode=HealingMode.AUTO, domains={RUN: HealingMode.DISABLED}), []),
        (HealingModes(mode=HealingMode.AUTO, domains={RUN: HealingMode.OBSERVE_ONLY}), [OpenIncident(STUCK)]),
    ],
)
def test_the_mode_of_the_domain_decides_what_follows(modes: HealingModes, expected: list[HealingStep]) -> None:
    assert steps([], [STUCK], modes) == expected


def test_an_open_incident_is_opened_once() -> None:
    assert steps([KnownIncident(row())], [STUCK]) == []


def test_an_incident_resolves_when_its_finding_is_gone_for_a_whole_cycle() -> None:
    known = [KnownIncident(row())]
    assert steps(known, []) == []
    assert missed_counts(known, look()) == {"i1": 1}
    (step,) = steps([KnownIncident(row(), missed_count=1)], [])
    assert isinstance(step, ResolveIncident)
    assert step.resolution is Resolution.GONE
    assert missed_counts([KnownIncident(row(), missed_count=1)], look(STUCK)) == {}


def test_a_domain_that_gave_no_answer_resolves_nothing() -> None:
    known = [KnownIncident(row(), missed_count=1)]
    assert reconcile(known, look(answered=DISK), OBSERVE, NOW) == ()
    assert missed_counts(known, look(answered=DISK)) == {"i1": 1}


def test_a_domain_that_is_no_longer_watched_closes_its_incidents() -> None:
    (step,) = steps([KnownIncident(row())], [], HealingModes(mode=HealingMode.DISABLED))
    assert isinstance(step, ResolveIncident)
    assert step.resolution is Resolution.UNWATCHED


def test_the_outcome_is_told_at_the_next_cycle() -> None:
    acted = row(acted_count=1, acted_at_ms=NOW)
    (told,) = steps([KnownIncident(acted)], [STUCK], AUTO, NOW + CYCLE_MS)
    assert isinstance(told, TellOutcome)
    assert told.outcome is ActOutcome.PERSISTS
    (failed,) = steps([KnownIncident(acted, failure="no such run")], [STUCK], AUTO, NOW + CYCLE_MS)
    assert isinstance(failed, TellOutcome)
    assert (failed.outcome, failed.reason) == (ActOutcome.FAILED, "no such run")
    assert steps([KnownIncident(replace(acted, told_count=1))], [STUCK], AUTO, NOW + CYCLE_MS) == []


def test_actions_pause_longer_each_time_and_then_end() -> None:
    for acted_count, pause_ms in enumerate(PAUSES_MS, 1):
        acted = row(acted_count=acted_count, told_count=acted_count, acted_at_ms=NOW)
        assert steps([KnownIncident(acted)], [STUCK], AUTO, NOW + pause_ms - 1) == []
        assert steps([KnownIncident(acted)], [STUCK], AUTO, NOW + pause_ms) == [
            ActOnIncident(STUCK, Remedy.CANCEL_RUN, acted)
        ]
    spent = row(acted_count=ACTIONS_MAX, told_count=ACTIONS_MAX, acted_at_ms=NOW)
    assert steps([KnownIncident(spent)], [STUCK], AUTO, NOW + 10**10) == []


def test_what_comes_back_soon_is_the_same_incident_with_its_count() -> None:
    known = resolved(Resolution.GONE, acted_count=1, told_count=1, acted_at_ms=NOW - 600_000)
    assert steps([KnownIncident(known)], [STUCK], AUTO) == [
        OpenIncident(STUCK, known),
        ActOnIncident(STUCK, Remedy.CANCEL_RUN, known),
    ]


def test_what_a_person_resolved_stays_quiet_for_a_while() -> None:
    assert steps([KnownIncident(resolved(Resolution.BY_HAND))], [STUCK], AUTO) == []


def test_the_quiet_time_after_a_person_ends_when_the_finding_is_gone() -> None:
    known = resolved(Resolution.BY_HAND)
    words = "it is gone since it was resolved by hand"
    assert steps([KnownIncident(known)], []) == [ResolveIncident(known, Resolution.GONE, words)]
    assert list(reconcile([KnownIncident(known)], look(answered=HealingDomain.DISK), OBSERVE, NOW)) == []
    assert steps([KnownIncident(resolved(Resolution.GONE))], []) == []


def test_changed_evidence_is_recorded_again_but_not_too_often_and_not_for_a_measure() -> None:
    said = replace(STUCK, evidence="x.cedar and y.cedar are wrong for 31 s")
    known = KnownIncident(row(said), evidence=said.evidence)
    older = replace(said, evidence="x.cedar and y.cedar are wrong for 1200 s")
    other = replace(said, evidence="y.cedar is wrong for 1200 s")
    assert steps([known], [older], now_ms=NOW + RETELL_MS) == []
    assert steps([known], [other], now_ms=NOW + RETELL_MS - 1) == []
    assert steps([known], [other], now_ms=NOW + RETELL_MS) == [OpenIncident(other, known.row)]
    assert steps([KnownIncident(known.row)], [other], now_ms=NOW + RETELL_MS) == []


def test_a_finding_that_becomes_worse_is_told_again_and_one_that_eases_is_not() -> None:
    worse = replace(LOW, severity=Severity.CRITICAL)
    known = row(LOW)
    assert steps([KnownIncident(known)], [worse]) == [OpenIncident(worse, known)]
    assert steps([KnownIncident(row(worse))], [LOW]) == []


def test_a_model_is_left_alone_before_its_runs_go_on() -> None:
    hanging = replace(STUCK, domain=HealingDomain.PROVIDER, subject="m:call", remedies=(Remedy.OPEN_BREAKER,))
    acts = [step.remedy for step in steps([], [STUCK, hanging], AUTO) if isinstance(step, ActOnIncident)]
    assert acts == [Remedy.OPEN_BREAKER, Remedy.REDRIVE_RUN]


def test_remedies_are_tried_in_order_and_the_last_one_again() -> None:
    chosen = [choose_remedy(STUCK.remedies, count) for count in range(3)]
    assert chosen == [Remedy.REDRIVE_RUN, Remedy.CANCEL_RUN, Remedy.CANCEL_RUN]
    assert choose_remedy((), 0) is None


@given(st.lists(st.booleans(), min_size=1, max_size=120))
def test_no_pattern_of_findings_acts_more_often_than_allowed(pattern: list[bool]) -> None:
    """Within an hour the finding may come and go in any way: it is one incident, and its actions are counted."""
    known: KnownIncident | None = None
    acts: list[int] = []
    for cycle, is_found in enumerate(pattern):
        now_ms = NOW + cycle * CYCLE_MS
        present = [known] if known is not None else []
        found = [STUCK] if is_found else []
        taken = steps(present, found, AUTO, now_ms)
        counts = missed_counts(present, look(*found))
        current = known.row if known is not None else row()
        for step in taken:
            current = _after(current, step, now_ms)
            if isinstance(step, ActOnIncident):
                acts.append(now_ms)
        if taken or known is not None:
            known = KnownIncident(current, counts.get("i1", 0))
    assert len(acts) <= ACTIONS_MAX
    pauses = [later - earlier for earlier, later in pairwise(acts)]
    assert all(pause >= least for pause, least in zip(pauses, PAUSES_MS, strict=False))


def _after(current: IncidentRow, step: HealingStep, now_ms: int) -> IncidentRow:
    match step:
        case OpenIncident():
            return replace(current, status=IncidentStatus.OPEN, resolution=None)
        case ActOnIncident():
            return replace(current, acted_count=current.acted_count + 1, acted_at_ms=now_ms)
        case TellOutcome():
            return replace(current, told_count=current.acted_count)
        case ResolveIncident(resolution=resolution):
            return replace(current, status=IncidentStatus.RESOLVED, resolution=resolution, resolved_at_ms=now_ms)
