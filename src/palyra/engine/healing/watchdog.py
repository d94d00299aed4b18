"""The watchdog: looks at every domain each half minute, records incidents, and acts where the mode says so.

Owns: the cycle, the time limits of looks and actions, and what is remembered between two cycles.
Does not own: what is a finding (core.healing.rules), what follows (core.healing.reconcile), the remedies themselves.
Invariants: a look or an action that hangs stops no other. An action is recorded before it is done. The tape alone says
how often an incident was acted on, so a restart forgets nothing of that.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog

from palyra.core.errors import Conflict, NotFound, PalyraError
from palyra.core.healing.model import (
    EVIDENCE_LENGTH_MAX,
    REMEDY_WORDS,
    Finding,
    HealingDomain,
    HealingMode,
    HealingModes,
    IncidentStatus,
    Remedy,
    Resolution,
)
from palyra.core.healing.reconcile import (
    REOPEN_MS,
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
from palyra.core.healing.rules import CLOCK_JUMP_MS, Moment, unanswered_finding
from palyra.core.ids import IncidentId, Principal
from palyra.core.projections.rows import IncidentRow
from palyra.engine.healing.incident_log import IncidentLog
from palyra.engine.healing.probes import TIMED_DOMAINS, Probe
from palyra.engine.healing.remedies import HEALER, Remedies
from palyra.engine.tasks import TaskSupervisor
from palyra.ports.clock import Clock
from palyra.ports.incidents import IncidentViews
from palyra.ports.machine import HostMachine

CYCLE_S = 30.0
PROBE_TIMEOUT_S = 5.0
ACTION_TIMEOUT_S = 15.0
ACTIONS_A_CYCLE_MAX = 20  # The others wait for the next cycle, so that a cycle ends.
KNOWN_MAX = 2_000  # More open incidents than all probes together can find.

Answer = TypeVar("Answer")

log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class Watchdog:
    clock: Clock
    tasks: TaskSupervisor
    views: IncidentViews
    record: IncidentLog
    probes: Mapping[HealingDomain, Probe]
    remedies: Remedies
    modes: HealingModes
    machine: HostMachine | None = None
    open_count: int = 0
    _looking: dict[HealingDomain, "asyncio.Task[tuple[Finding, ...]]"] = field(default_factory=dict)
    _missed: dict[str, int] = field(default_factory=dict)
    _last_seen: dict[str, int] = field(default_factory=dict)
    _failures: dict[str, str] = field(default_factory=dict)
    _actions: dict[str, Remedy] = field(default_factory=dict)
    _evidence: dict[str, str] = field(default_factory=dict)
    _clocks: tuple[int, int] | None = None
    _jumped_at_ms: int = 0
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def keep(self) -> None:
        """Watches until it is cancelled. A cycle that fails is logged, and the next one comes as usual."""
        while True:
            await asyncio.sleep(CYCLE_S)
            await asyncio.wait({self.tasks.spawn(self._logged_cycle(), "watchdog cycle")})

    async def cycle(self) -> None:
        """Looks once, and takes the steps that follow."""
        moment = self._moment()
        looks = await self._look(moment)
        async with self._turn:
            rows = await self.views.current_incidents(moment.now_ms - REOPEN_MS, KNOWN_MAX)
            known = [await self._known(row, looks) for row in rows]
            steps = reconcile(known, looks, self.modes, moment.now_ms)
            self._remember(known, looks, moment.now_ms)
            await self._take(steps)
            self.open_count = await self.views.count_open()

    def last_seen_ms(self, row: IncidentRow) -> int:
        """Returns when a cycle last found it; after a restart, when its last event was recorded."""
        return self._last_seen.get(row.id, max(row.opened_at_ms, row.acted_at_ms or 0))

    async def act(self, principal: Principal, incident_id: IncidentId) -> str:
        """Does the remedy on offer because a person wants it. Returns what was done."""
        async with self._turn:
            row = await self._open_row(incident_id)
            remedy = next_remedy(row)
            if remedy is None:
                message = f"incident {row.id} has no remedy that the daemon can apply; its remediation says what helps"
                raise Conflict("incident_without_remedy", message, is_retryable=False)
            reason = f"{principal} asked for it: {REMEDY_WORDS[remedy]}"
            await self.record.begun(principal, row.id, remedy, row.acted_count + 1, reason)
            return await self._apply(row.id, remedy, row.subject)

    async def resolve(self, principal: Principal, incident_id: IncidentId, reason: str) -> None:
        async with self._turn:
            row = await self._open_row(incident_id)
            seen_ms = self.last_seen_ms(row)
            await self.record.resolved(principal, row, Resolution.BY_HAND, seen_ms, reason or "resolved by hand")
            self._forget(row.id)

    async def _logged_cycle(self) -> None:
        try:
            await self.cycle()
        except PalyraError as error:
            log.warning("watchdog_cycle_failed", code=error.code, message=error.message)

    def _moment(self) -> Moment:
        """Compares how far both clocks went since the last cycle."""
        now_ms = self.clock.now_ms()
        if self.machine is None:
            return Moment(now_ms)
        steady_ms, before = self.machine.monotonic_ms(), self._clocks
        self._clocks = (now_ms, steady_ms)
        jump_ms = 0 if before is None else (now_ms - before[0]) - (steady_ms - before[1])
        if abs(jump_ms) > CLOCK_JUMP_MS:
            self._jumped_at_ms = now_ms
        return Moment(now_ms, self._jumped_at_ms, jump_ms)

    async def _look(self, moment: Moment) -> Looks:
        """Looks at all domains at once. Of a domain without an answer only that is found."""
        is_jump = abs(moment.jump_ms) > CLOCK_JUMP_MS
        wanted = [
            domain
            for domain in self.probes
            if self.modes.of(domain) is not HealingMode.DISABLED and not (is_jump and domain in TIMED_DOMAINS)
        ]
        for domain in wanted:
            if domain not in self._looking:  # One that still hangs is not started a second time.
                self._looking[domain] = self.tasks.spawn(
                    _answer(self.probes[domain](moment)), f"look at {domain.value}"
                )
        if wanted:
            await asyncio.wait([self._looking[domain] for domain in wanted], timeout=PROBE_TIMEOUT_S)
        findings: list[Finding] = []
        answered: set[HealingDomain] = set()
        for domain in wanted:
            answer = self._answer_of(domain)
            if isinstance(answer, str):
                findings.append(unanswered_finding(domain, answer))
            else:
                answered.add(domain)
                findings += answer
        return Looks(tuple(findings), frozenset(answered))

    def _answer_of(self, domain: HealingDomain) -> tuple[Finding, ...] | str:
        task = self._looking[domain]
        if not task.done():
            task.cancel()
            return f"did not answer within {PROBE_TIMEOUT_S:.0f} s"
        del self._looking[domain]
        if task.cancelled():
            return "did not answer in time"
        error = task.exception()
        if isinstance(error, PalyraError):
            return f"failed ({error.code}): {error.message}"
        return task.result() if error is None else f"failed ({type(error).__name__})"

    async def _known(self, row: IncidentRow, looks: Looks) -> KnownIncident:
        """Adds what is remembered. After a restart the evidence of what is found again is read from the tape."""
        is_found = any((found.domain, found.subject) == (row.domain, row.subject) for found in looks.findings)
        evidence = self._evidence.get(row.id)
        if evidence is None and is_found and row.status is IncidentStatus.OPEN:
            evidence = await self.record.evidence_of(row)
        return KnownIncident(row, self._missed.get(row.id, 0), self._failures.get(row.id, ""), evidence)

    def _remember(self, known: list[KnownIncident], looks: Looks, now_ms: int) -> None:
        self._missed = missed_counts(known, looks)
        found = {(finding.domain, finding.subject) for finding in looks.findings}
        self._last_seen |= {one.row.id: now_ms for one in known if (one.row.domain, one.row.subject) in found}

    async def _take(self, steps: tuple[HealingStep, ...]) -> None:
        opened: dict[tuple[HealingDomain, str], IncidentId] = {}
        acts_count = 0
        for step in steps:
            match step:
                case OpenIncident(finding=finding, known=known):
                    key = (finding.domain, finding.subject)
                    opened[key] = await self.record.opened(HEALER, finding, known)
                    self._last_seen[opened[key]] = self.clock.now_ms()
                    self._evidence[opened[key]] = finding.evidence[:EVIDENCE_LENGTH_MAX]
                    log.warning("incident_opened", domain=finding.domain.value, subject=finding.subject)
                case TellOutcome(known=row, outcome=outcome, reason=reason):
                    action = self._actions.get(row.id)
                    await self.record.told(HEALER, row, action.value if action else "", outcome, reason)
                    self._failures.pop(row.id, None)
                case ResolveIncident(known=row, resolution=resolution, reason=reason):
                    await self.record.resolved(HEALER, row, resolution, self.last_seen_ms(row), reason)
                    self._forget(row.id)
                case ActOnIncident() if acts_count < ACTIONS_A_CYCLE_MAX:
                    acts_count += 1
                    await self._act_on(step, opened)
                case ActOnIncident():
                    continue

    async def _act_on(self, step: ActOnIncident, opened: Mapping[tuple[HealingDomain, str], IncidentId]) -> None:
        finding, row = step.finding, step.known
        incident_id = row.id if row is not None else opened[finding.domain, finding.subject]
        number = row.acted_count + 1 if row is not None else 1
        reason = f"{REMEDY_WORDS[step.remedy]}, because {finding.evidence}"
        await self.record.begun(HEALER, incident_id, step.remedy, number, reason)
        await self._apply(incident_id, step.remedy, finding.subject)

    async def _apply(self, incident_id: IncidentId, remedy: Remedy, subject: str) -> str:
        """Does it within its time. A failure is remembered, and told at the next cycle."""
        self._actions[incident_id] = remedy
        task = self.tasks.spawn(_answer(self.remedies.apply(remedy, subject)), f"{remedy.value} {subject}")
        await asyncio.wait({task}, timeout=ACTION_TIMEOUT_S)
        failure = _failure_of(task)
        if failure:
            self._failures[incident_id] = failure
            log.warning("remedy_failed", remedy=remedy.value, subject=subject, failure=failure)
            return failure
        log.info("remedy_applied", remedy=remedy.value, subject=subject, outcome=task.result())
        words: str = task.result()
        return words

    async def _open_row(self, incident_id: IncidentId) -> IncidentRow:
        row = await self.views.incident(incident_id)
        if row is None:
            message = f"there is no incident {incident_id}; palyra incidents list shows those there are"
            raise NotFound("incident_unknown", message)
        if row.status is IncidentStatus.RESOLVED:
            raise Conflict("incident_resolved", f"incident {incident_id} is resolved already", is_retryable=False)
        return row

    def _forget(self, incident_id: IncidentId) -> None:
        self._missed.pop(incident_id, None)
        self._last_seen.pop(incident_id, None)
        self._failures.pop(incident_id, None)
        self._actions.pop(incident_id, None)
        self._evidence.pop(incident_id, None)


def next_remedy(row: IncidentRow) -> Remedy | None:
    known = {remedy.value for remedy in Remedy}
    return choose_remedy(tuple(Remedy(word) for word in row.remedies.split() if word in known), row.acted_count)


async def _answer(work: Awaitable[Answer]) -> Answer:
    return await work


def _failure_of(task: "asyncio.Task[Any]") -> str:
    if not task.done():
        task.cancel()
        return f"it did not end within {ACTION_TIMEOUT_S:.0f} s"
    if task.cancelled():
        return "it was stopped"
    error = task.exception()
    if isinstance(error, PalyraError):
        return f"{error.code}: {error.message}"
    return "" if error is None else f"{type(error).__name__}; the daemon's log says more"
