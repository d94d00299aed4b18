"""Decides which rows an event touches and what becomes of them.

Does not own: loading or storing rows (adapters.store).
`keys_of(event)` names the rows, the store loads them, and `project(event, rows)` returns the changed ones. Both are
pure, so that live tables, a rebuild and the verifier agree by construction.
Invariant: an illegal event raises and changes nothing.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, assert_never

from palyra.core.errors import Invalid
from palyra.core.events import Event
from palyra.core.events.model import UsageRecorded
from palyra.core.events.run import MessageAssistant
from palyra.core.events.session import (
    PinAdded,
    PinRemoved,
    SessionCheckpointed,
    SessionCompacted,
    SessionLabelled,
    SessionReset,
)
from palyra.core.events.system import IncidentActed, IncidentOpened, IncidentResolved
from palyra.core.events.tool import ApprovalRequested, ApprovalResolved, GrantRevoked
from palyra.core.ids import ApprovalId, GrantId, IncidentId, derive_grant_id
from palyra.core.projections.approvals import project_grant, project_request, project_resolution, project_revocation
from palyra.core.projections.incidents import project_incident
from palyra.core.projections.marks import MarkData, mark_row_id, name_in, project_mark
from palyra.core.projections.provenance import FILE_TYPES, file_ids, project_files, project_taint
from palyra.core.projections.rows import (
    ApprovalRow,
    FileRow,
    GrantRow,
    IncidentRow,
    MarkRow,
    Row,
    RunRow,
    SessionRow,
    TaintRow,
    UsageRow,
)
from palyra.core.projections.runs import project_answer, project_lifecycle, project_usage, require_run
from palyra.core.projections.sessions import FIRST_TYPES, project_run_change, project_session
from palyra.core.projections.usage import project_spend, usage_id
from palyra.core.run.states import LIFECYCLE_TYPES
from palyra.core.taint import ACT_TYPES, MEETING_TYPES, touches_taint


class RowKey(NamedTuple):
    row_type: type[Row]
    id: str


Rows = Mapping[RowKey, Row]

SESSION_TYPES = FIRST_TYPES | {SessionReset.TYPE, SessionLabelled.TYPE, SessionCompacted.TYPE}
_IncidentData = IncidentOpened | IncidentActed | IncidentResolved
_ApprovalData = ApprovalRequested | ApprovalResolved | GrantRevoked
_OtherListed = UsageRecorded | MessageAssistant | _ApprovalData | _IncidentData | MarkData
_LISTED_TYPES = SESSION_TYPES | LIFECYCLE_TYPES | {data_type.TYPE for data_type in _OtherListed.__args__}
PROJECTED_TYPES = _LISTED_TYPES | MEETING_TYPES | ACT_TYPES | FILE_TYPES


def keys_of(event: Event) -> tuple[RowKey, ...]:
    """Names the rows that `project` needs to see and may change."""
    if event.type not in PROJECTED_TYPES:
        return ()
    keys = _listed_keys(event) if event.type in _LISTED_TYPES else ()
    if touches_taint(event):
        # The session's row says whether the session still accepts events.
        keys = (*(keys or (RowKey(SessionRow, event.stream),)), RowKey(TaintRow, event.stream))
    if event.type in FILE_TYPES:
        keys = (*keys, *(RowKey(FileRow, file_id) for file_id in file_ids(event)))
    return keys


def _listed_keys(event: Event) -> tuple[RowKey, ...]:
    if event.type in SESSION_TYPES:
        return (RowKey(SessionRow, event.stream),)
    if event.type in LIFECYCLE_TYPES:
        return (RowKey(SessionRow, event.stream), RowKey(RunRow, event.run_id or ""))
    data = event.data
    if not isinstance(data, _OtherListed):
        return ()  # It was erased.
    match data:
        case UsageRecorded():
            run_id = event.run_id
            if run_id is None:
                return ()
            return (RowKey(RunRow, run_id), RowKey(UsageRow, usage_id(run_id, data, event.at_ms)))
        case MessageAssistant():
            return (RowKey(RunRow, event.run_id or ""),)
        case ApprovalRequested(approval_id=approval_id):
            return (RowKey(ApprovalRow, approval_id),)
        case ApprovalResolved(approval_id=approval_id):
            return (RowKey(ApprovalRow, approval_id), RowKey(GrantRow, derive_grant_id(approval_id)))
        case GrantRevoked(grant_id=grant_id):
            return (RowKey(GrantRow, grant_id),)
        case IncidentOpened() | IncidentActed() | IncidentResolved():
            return (RowKey(IncidentRow, data.incident_id),)
        case SessionCheckpointed() | PinAdded() | PinRemoved():
            return (RowKey(MarkRow, mark_row_id(event.stream, name_in(data))),)
        case _:
            assert_never(data)


def project(event: Event, rows: Rows) -> tuple[Row, ...]:
    """Returns the changed rows, given those that `keys_of` named and that exist."""
    changed = _project_listed(event, rows) if event.type in _LISTED_TYPES else ()
    if touches_taint(event):
        changed = (*changed, *project_taint(event, _taint_row(event, rows)))
    if event.type in FILE_TYPES:
        known = [file_id for file_id in file_ids(event) if RowKey(FileRow, file_id) in rows]
        changed = (*changed, *project_files(event, known))
    return changed


def fold_rows(events: Iterable[Event]) -> dict[RowKey, Row]:
    """The rows that all events of one tape, in order, leave."""
    rows: dict[RowKey, Row] = {}
    for event in events:
        for row in project(event, rows):
            rows[RowKey(type(row), row.id)] = row
    return rows


def _project_listed(event: Event, rows: Rows) -> tuple[Row, ...]:
    if event.type in SESSION_TYPES:
        return (project_session(event, _session_row(event, rows)),)
    if event.type in LIFECYCLE_TYPES:
        return _project_lifecycle(event, rows)
    data = event.data
    if not isinstance(data, _OtherListed):
        return ()  # It was erased.
    match data:
        case UsageRecorded():
            return _project_usage(event, data, rows)
        case MessageAssistant():
            return (project_answer(event, require_run(event, _run_row(event, rows))),)
        case ApprovalRequested():
            return (project_request(event, data, _approval_row(data.approval_id, rows)),)
        case ApprovalResolved():
            return _project_resolution(event, data, rows)
        case GrantRevoked():
            grant = _grant_row(data.grant_id, rows)
            return (project_revocation(event, data, grant),) if grant is not None else ()
        case IncidentOpened() | IncidentActed() | IncidentResolved():
            return project_incident(event, data, _incident_row(data.incident_id, rows))
        case SessionCheckpointed() | PinAdded() | PinRemoved():
            return (project_mark(event, data, _mark_row(event, data, rows)),)
        case _:
            assert_never(data)


def _project_lifecycle(event: Event, rows: Rows) -> tuple[Row, ...]:
    before = _run_row(event, rows)
    run = project_lifecycle(event, before)
    if before is not None:
        require_run(event, before)
    session = _session_row(event, rows)
    if session is None:
        raise Invalid("session_unknown", f"{event.type} on tape {event.stream}, which has no session yet")
    changed = project_run_change(event, session, run.state)
    return (run,) if changed is session else (run, changed)


def _project_usage(event: Event, data: UsageRecorded, rows: Rows) -> tuple[Row, ...]:
    if event.run_id is None:
        return ()
    run = require_run(event, _run_row(event, rows))
    before = rows.get(RowKey(UsageRow, usage_id(event.run_id, data, event.at_ms)))
    spend = project_spend(event, event.run_id, data, before if isinstance(before, UsageRow) else None)
    return (project_usage(event, run), spend)


def _project_resolution(event: Event, data: ApprovalResolved, rows: Rows) -> tuple[Row, ...]:
    """Projects an answer. If its request was erased, it leaves no row, and the grant it gave is void too."""
    before = _approval_row(data.approval_id, rows)
    if before is None:
        return ()
    approval = project_resolution(event, data, before)
    grant = project_grant(event, data)
    return (approval,) if grant is None else (approval, grant)


def _taint_row(event: Event, rows: Rows) -> TaintRow | None:
    row = rows.get(RowKey(TaintRow, event.stream))
    return row if isinstance(row, TaintRow) else None


def _session_row(event: Event, rows: Rows) -> SessionRow | None:
    row = rows.get(RowKey(SessionRow, event.stream))
    return row if isinstance(row, SessionRow) else None


def _run_row(event: Event, rows: Rows) -> RunRow | None:
    row = rows.get(RowKey(RunRow, event.run_id or ""))
    return row if isinstance(row, RunRow) else None


def _approval_row(approval_id: ApprovalId, rows: Rows) -> ApprovalRow | None:
    row = rows.get(RowKey(ApprovalRow, approval_id))
    return row if isinstance(row, ApprovalRow) else None


def _grant_row(grant_id: GrantId, rows: Rows) -> GrantRow | None:
    row = rows.get(RowKey(GrantRow, grant_id))
    return row if isinstance(row, GrantRow) else None


def _incident_row(incident_id: IncidentId, rows: Rows) -> IncidentRow | None:
    row = rows.get(RowKey(IncidentRow, incident_id))
    return row if isinstance(row, IncidentRow) else None


def _mark_row(event: Event, data: MarkData, rows: Rows) -> MarkRow | None:
    row = rows.get(RowKey(MarkRow, mark_row_id(event.stream, name_in(data))))
    return row if isinstance(row, MarkRow) else None
