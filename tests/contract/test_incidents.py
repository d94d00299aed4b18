"""What every store promises of incidents and of heartbeats that stalled."""

import pytest

from palyra.core.errors import Conflict, Invalid
from palyra.core.events import Data, Draft
from palyra.core.events.system import IncidentActed, IncidentOpened, IncidentResolved
from palyra.core.healing.model import HealingDomain, IncidentStatus, Resolution, Severity
from palyra.core.ids import ULID_RANDOM_BYTES, IncidentId, NodeId, Principal, derive_node_id, make_ulid, system_stream
from palyra.core.trust import Trust
from palyra.core.writes import RenewHeartbeat, SetHeartbeat
from palyra.ports.journal import Append
from tests.contract.conftest import Opened, Store
from tests.support.journals import START_MS, FixedSigner, Ids

pytestmark = pytest.mark.anyio

TAPE = system_stream(derive_node_id(FixedSigner().public_key))
HEALER = Principal("system:healing")


def incident_id(number: int) -> IncidentId:
    return IncidentId(make_ulid(START_MS + number, bytes(ULID_RANDOM_BYTES)))


def opening(number: int, severity: Severity = Severity.WARNING) -> IncidentOpened:
    return IncidentOpened(
        incident_id=incident_id(number),
        domain=HealingDomain.DISK,
        subject=f"disk{number}",
        severity=severity,
        evidence="little space",
        remediation="Free some.",
        first_seen_ms=START_MS,
        remedies=("sweep_artifacts",),
    )


def acted(number: int) -> IncidentActed:
    return IncidentActed(incident_id=incident_id(number), action="sweep_artifacts", number=1, reason="low")


def resolved(number: int) -> IncidentResolved:
    return IncidentResolved(
        incident_id=incident_id(number), resolution=Resolution.GONE, first_seen_ms=START_MS, last_seen_ms=START_MS
    )


async def record(opened: Opened, *data: Data, at_ms: int = START_MS) -> None:
    head = await opened.journal.head(TAPE)
    drafts = tuple(Draft(data=one, actor=HEALER, trust=Trust.SYSTEM, at_ms=at_ms) for one in data)
    await opened.journal.commit([Append(TAPE, head.seq if head is not None else 0, drafts)])


async def test_a_row_follows_the_events_of_its_incident(store: Store) -> None:
    opened = await store.open()
    await record(opened, opening(1), acted(1), at_ms=START_MS + 5)
    row = await opened.incidents.incident(incident_id(1))
    assert row is not None
    assert (row.status, row.acted_count, row.told_count, row.acted_at_ms) == (IncidentStatus.OPEN, 1, 0, START_MS + 5)
    await record(opened, resolved(1), at_ms=START_MS + 9)
    opened = await store.reopen()
    row = await opened.incidents.incident(incident_id(1))
    assert row is not None
    assert (row.status, row.resolution, row.resolved_at_ms) == (IncidentStatus.RESOLVED, Resolution.GONE, START_MS + 9)
    await record(opened, opening(1, Severity.CRITICAL))
    row = await opened.incidents.incident(incident_id(1))
    assert row is not None
    assert (row.status, row.severity, row.opened_count, row.acted_count) == (
        IncidentStatus.OPEN,
        Severity.CRITICAL,
        2,
        1,
    )


async def test_lists_come_from_the_newest_and_current_ones_from_the_open(opened: Opened) -> None:
    await record(opened, *(opening(number) for number in range(4)))
    await record(opened, resolved(0), at_ms=START_MS + 10)
    await record(opened, resolved(1), at_ms=START_MS + 90)
    views = opened.incidents
    newest = await views.list_incidents(None, "", 2)
    assert [row.id for row in newest] == [incident_id(3), incident_id(2)]
    assert [row.id for row in await views.list_incidents(None, newest[-1].id, 10)] == [incident_id(1), incident_id(0)]
    still_open = await views.list_incidents(IncidentStatus.OPEN, "", 10)
    assert [row.id for row in still_open] == [incident_id(3), incident_id(2)]
    current = await views.current_incidents(START_MS + 50, 10)
    assert [row.id for row in current] == [incident_id(2), incident_id(3), incident_id(1)]
    assert await views.count_open() == 2


async def test_an_incident_resolves_once_and_one_that_was_never_opened_has_no_row(opened: Opened) -> None:
    await record(opened, opening(1), resolved(1), acted(2))
    assert await opened.incidents.incident(incident_id(2)) is None
    with pytest.raises((Conflict, Invalid), match="incident_resolved"):
        await record(opened, resolved(1))


async def test_a_heartbeat_stalls_without_renewal_or_without_progress(opened: Opened, ids: Ids) -> None:
    silent, idle, fine = (ids.run() for _ in range(3))
    node = NodeId("n")
    beats = [SetHeartbeat(run, node, START_MS) for run in (silent, idle, fine)]
    later = START_MS + 200
    renewals = [RenewHeartbeat(idle, later, START_MS + 1), RenewHeartbeat(fine, later, later)]
    await opened.journal.commit((), (*beats, *renewals))
    stalled = await opened.state.stalled_heartbeats(START_MS + 100, 10)
    assert [beat.run_id for beat in stalled] == [silent, idle]
    assert [beat.run_id for beat in await opened.state.stalled_heartbeats(START_MS + 100, 1)] == [silent]
