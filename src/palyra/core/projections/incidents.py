"""The incidents projection: one row for each thing that the watchdog found stuck or degraded.

Does not own: when an incident is opened, acted on or resolved (core.healing.reconcile).
"""

from msgspec.structs import replace

from palyra.core.errors import Invalid
from palyra.core.events import Event
from palyra.core.events.system import IncidentActed, IncidentOpened, IncidentResolved
from palyra.core.healing.model import ActOutcome, IncidentStatus, Resolution
from palyra.core.projections.rows import IncidentRow


def project_incident(
    event: Event, data: IncidentOpened | IncidentActed | IncidentResolved, row: IncidentRow | None
) -> tuple[IncidentRow, ...]:
    """Returns the row after the event. If the opening was erased, there is no row, and none comes back."""
    if row is not None and row.stream != event.stream:
        raise Invalid("incident_unknown", f"incident {row.id} was opened on another tape than {event.stream}")
    if isinstance(data, IncidentOpened):
        return (_opened(event, data, row),)
    if row is None:
        return ()
    if isinstance(data, IncidentActed):
        return (_acted(event, data, row),)
    if row.status is IncidentStatus.RESOLVED and not _is_gone_after_all(data, row):
        raise Invalid("incident_resolved", f"incident {row.id} is resolved already")
    return (
        replace(
            row,
            status=IncidentStatus.RESOLVED,
            resolution=data.resolution,
            told_count=row.acted_count,
            resolved_at_ms=event.at_ms,
            seq=event.seq,
        ),
    )


def _is_gone_after_all(data: IncidentResolved, row: IncidentRow) -> bool:
    """What a person resolved may go away by itself later: only then it counts as news if it comes back."""
    return row.resolution is Resolution.BY_HAND and data.resolution is Resolution.GONE


def _opened(event: Event, data: IncidentOpened, row: IncidentRow | None) -> IncidentRow:
    if row is not None:
        is_update = row.status is IncidentStatus.OPEN and row.severity is data.severity
        return replace(
            row,
            severity=data.severity,
            status=IncidentStatus.OPEN,
            resolution=None,
            remedies=" ".join(data.remedies),
            opened_at_ms=event.at_ms,
            opened_count=row.opened_count if is_update else row.opened_count + 1,
            resolved_at_ms=None,
            opened_seq=event.seq,
            seq=event.seq,
        )
    return IncidentRow(
        id=data.incident_id,
        stream=event.stream,
        domain=data.domain,
        subject=data.subject,
        severity=data.severity,
        status=IncidentStatus.OPEN,
        resolution=None,
        remedies=" ".join(data.remedies),
        first_seen_ms=data.first_seen_ms,
        opened_at_ms=event.at_ms,
        opened_count=1,
        acted_count=0,
        told_count=0,
        acted_at_ms=None,
        resolved_at_ms=None,
        opened_seq=event.seq,
        seq=event.seq,
    )


def _acted(event: Event, data: IncidentActed, row: IncidentRow) -> IncidentRow:
    if data.outcome is ActOutcome.BEGUN:
        return replace(row, acted_count=row.acted_count + 1, acted_at_ms=event.at_ms, seq=event.seq)
    return replace(row, told_count=row.acted_count, seq=event.seq)
