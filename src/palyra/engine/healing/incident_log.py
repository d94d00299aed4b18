"""Records incidents on the node's system tape.

Owns: their events. Does not own: when one is due (watchdog), the rows (core.projections.incidents).
Invariant: every text is redacted before it is stored (L5).
"""

from collections.abc import Callable
from dataclasses import dataclass

from palyra.core.events import Draft
from palyra.core.events.system import IncidentActed, IncidentOpened, IncidentResolved
from palyra.core.healing.model import EVIDENCE_LENGTH_MAX, ActOutcome, Finding, Remedy, Resolution
from palyra.core.ids import IncidentId, Principal
from palyra.core.projections.rows import IncidentRow
from palyra.core.trust import Trust
from palyra.engine.new_ids import IdSource
from palyra.engine.system_tape import SystemTape
from palyra.ports.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentLog:
    """`clean` removes secrets from the texts of a draft."""

    system: SystemTape
    clock: Clock
    ids: IdSource
    clean: Callable[[Draft], Draft]

    async def opened(self, by: Principal, finding: Finding, known: IncidentRow | None) -> IncidentId:
        incident_id = known.id if known is not None else self.ids.incident_id()
        now_ms = self.clock.now_ms()
        data = IncidentOpened(
            incident_id=incident_id,
            domain=finding.domain,
            subject=finding.subject,
            severity=finding.severity,
            evidence=finding.evidence[:EVIDENCE_LENGTH_MAX],
            remediation=finding.remediation,
            first_seen_ms=known.first_seen_ms if known is not None else now_ms,
            remedies=tuple(remedy.value for remedy in finding.remedies),
        )
        await self._record(by, data)
        return incident_id

    async def evidence_of(self, row: IncidentRow) -> str | None:
        """Returns the evidence that is recorded; None if it was erased."""
        events = await self.system.journal.read(row.stream, row.opened_seq - 1, 1)
        data = events[0].data if events else None
        return data.evidence if isinstance(data, IncidentOpened) else None

    async def begun(self, by: Principal, incident_id: IncidentId, remedy: Remedy, number: int, reason: str) -> None:
        """Records that an action begins. Nothing may be done before this returns."""
        await self._record(
            by, IncidentActed(incident_id=incident_id, action=remedy.value, number=number, reason=reason)
        )

    async def told(self, by: Principal, row: IncidentRow, action: str, outcome: ActOutcome, reason: str) -> None:
        cut = reason[:EVIDENCE_LENGTH_MAX]
        data = IncidentActed(incident_id=row.id, action=action, number=row.acted_count, reason=cut, outcome=outcome)
        await self._record(by, data)

    async def resolved(
        self, by: Principal, row: IncidentRow, resolution: Resolution, last_seen_ms: int, reason: str
    ) -> None:
        data = IncidentResolved(
            incident_id=row.id,
            resolution=resolution,
            first_seen_ms=row.first_seen_ms,
            last_seen_ms=last_seen_ms,
            actions_count=row.acted_count,
            reason=reason,
        )
        await self._record(by, data)

    async def _record(self, by: Principal, data: IncidentOpened | IncidentActed | IncidentResolved) -> None:
        draft = self.clean(Draft(data=data, actor=by, trust=Trust.SYSTEM, at_ms=self.clock.now_ms()))
        await self.system.append((draft,))
