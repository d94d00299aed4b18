"""Incidents as people see them.

Owns: listing and showing them, and passing on a person's wish to act or to resolve.
Does not own: finding them (engine.healing). Only operators are shown incidents, because they name everyone's runs.
"""

from dataclasses import dataclass

import msgspec

from palyra.core.errors import NotFound
from palyra.core.events.system import IncidentActed, IncidentOpened, IncidentResolved
from palyra.core.healing.model import REMEDY_WORDS, HealingDomain, IncidentStatus, Resolution, Severity
from palyra.core.ids import IncidentId, Principal, StreamId
from palyra.core.projections.rows import IncidentRow
from palyra.engine.healing.watchdog import Watchdog, next_remedy
from palyra.ports.incidents import IncidentViews
from palyra.ports.journal import Journal

ERASED = "erased"


class IncidentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`remedy` is what the daemon can do next, and `remedy_words` says it for people; both empty if nothing.

    `last` tells what was recorded last besides the opening: an action and what came of it, or why it resolved.
    """

    id: IncidentId
    domain: HealingDomain
    subject: str
    severity: Severity
    status: IncidentStatus
    resolution: Resolution | None
    evidence: str
    remediation: str
    remedy: str
    remedy_words: str
    first_seen_ms: int
    last_seen_ms: int
    opened_count: int
    actions_count: int
    acted_at_ms: int | None
    resolved_at_ms: int | None
    last: str = ""


class ActedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What an action asked for by hand did, or why it failed."""

    outcome: str
    incident: IncidentRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentService:
    views: IncidentViews
    journal: Journal
    watchdog: Watchdog

    async def list(self, status: IncidentStatus | None, after: str, limit: int) -> tuple[IncidentRecord, ...]:
        rows = await self.views.list_incidents(status, after, limit)
        return tuple([await self._record(row) for row in rows])

    async def get(self, incident_id: IncidentId) -> IncidentRecord:
        row = await self.views.incident(incident_id)
        if row is None:
            message = f"there is no incident {incident_id}; palyra incidents list shows those there are"
            raise NotFound("incident_unknown", message)
        return await self._record(row)

    async def act(self, principal: Principal, incident_id: IncidentId) -> ActedRecord:
        outcome = await self.watchdog.act(principal, incident_id)
        return ActedRecord(outcome=outcome, incident=await self.get(incident_id))

    async def resolve(self, principal: Principal, incident_id: IncidentId, reason: str) -> IncidentRecord:
        await self.watchdog.resolve(principal, incident_id, reason)
        return await self.get(incident_id)

    async def count_open(self) -> int:
        return await self.views.count_open()

    async def _record(self, row: IncidentRow) -> IncidentRecord:
        opening = await self._data_at(row.stream, row.opened_seq)
        last = await self._data_at(row.stream, row.seq) if row.seq != row.opened_seq else None
        is_open = row.status is IncidentStatus.OPEN
        remedy = next_remedy(row) if is_open else None
        return IncidentRecord(
            id=row.id,
            domain=row.domain,
            subject=row.subject,
            severity=row.severity,
            status=row.status,
            resolution=row.resolution,
            evidence=opening.evidence if isinstance(opening, IncidentOpened) else ERASED,
            remediation=opening.remediation if isinstance(opening, IncidentOpened) else ERASED,
            remedy=remedy.value if remedy is not None else "",
            remedy_words=REMEDY_WORDS[remedy] if remedy is not None else "",
            first_seen_ms=row.first_seen_ms,
            last_seen_ms=last.last_seen_ms if isinstance(last, IncidentResolved) else self.watchdog.last_seen_ms(row),
            opened_count=row.opened_count,
            actions_count=row.acted_count,
            acted_at_ms=row.acted_at_ms,
            resolved_at_ms=row.resolved_at_ms,
            last=_words(last),
        )

    async def _data_at(self, stream: StreamId, seq: int) -> object:
        events = await self.journal.read(stream, seq - 1, 1)
        return events[0].data if events else None


def _words(data: object) -> str:
    if isinstance(data, IncidentActed):
        return f"{data.action or 'action'} {data.outcome.value}: {data.reason}"
    return f"{data.resolution.value}: {data.reason}" if isinstance(data, IncidentResolved) else ""
