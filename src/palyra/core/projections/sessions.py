"""The sessions projection: a session's row from its session.* and run.* events."""

from msgspec.structs import replace

from palyra.core.errors import Invalid
from palyra.core.events import Event
from palyra.core.events.base import ErasedData
from palyra.core.events.run import RunStarted
from palyra.core.events.session import (
    SessionBranched,
    SessionCompacted,
    SessionCreated,
    SessionLabelled,
    SessionReset,
    SessionRestored,
)
from palyra.core.ids import Principal, SessionId
from palyra.core.projections.rows import SessionRow
from palyra.core.run.states import RunState, is_terminal

FIRST_TYPES = frozenset({SessionCreated.TYPE, SessionBranched.TYPE, SessionRestored.TYPE})


def project_session(event: Event, row: SessionRow | None) -> SessionRow:
    """Returns the row after one of its own events."""
    if event.type in FIRST_TYPES:
        return _created(event, row)
    if row is None:
        raise Invalid("session_unknown", f"{event.type} on tape {event.stream}, which has no session yet")
    changed = replace(row, updated_at_ms=event.at_ms, seq=event.seq)
    match event.data:
        case SessionLabelled(label=label):
            return replace(changed, label=label)
        case SessionReset():
            return replace(changed, reset_seq=event.seq)
        case SessionCompacted():
            return replace(changed, compacted_seq=event.seq)
        case _:
            return _despite_erasure(event, changed)


def project_run_change(event: Event, row: SessionRow, state: RunState) -> SessionRow:
    """Updates the active run and when one last began or ended; events in between leave the row alone."""
    if event.type == RunStarted.TYPE:
        if row.active_run_id is not None:
            raise Invalid("session_busy", f"session {row.id} already runs {row.active_run_id}")
        return replace(row, updated_at_ms=event.at_ms, seq=event.seq, active_run_id=event.run_id)
    if not is_terminal(state):
        return row
    active_run_id = None if row.active_run_id == event.run_id else row.active_run_id
    return replace(row, updated_at_ms=event.at_ms, seq=event.seq, active_run_id=active_run_id)


def _despite_erasure(event: Event, row: SessionRow) -> SessionRow:
    """Returns what the type alone still says when the data is gone."""
    if event.type == SessionReset.TYPE:
        return replace(row, reset_seq=event.seq)
    if event.type == SessionCompacted.TYPE:
        return replace(row, compacted_seq=event.seq)
    return row


def _created(event: Event, row: SessionRow | None) -> SessionRow:
    if row is not None or event.seq != 1:
        raise Invalid("session_exists", f"{event.type} is only possible as the first event of tape {event.stream}")
    blank = SessionRow(
        id=SessionId(event.stream),
        owner=Principal(""),
        agent="",
        key=None,
        label=None,
        parent_id=None,
        parent_seq=None,
        reset_seq=0,
        compacted_seq=0,
        active_run_id=None,
        is_erased=False,
        created_at_ms=event.at_ms,
        updated_at_ms=event.at_ms,
        seq=event.seq,
    )
    match event.data:
        case SessionCreated() as made:
            named = replace(blank, owner=made.owner, agent=made.agent, key=made.key, label=made.label)
            return replace(named, purpose=made.purpose, serves=made.serves)
        case SessionBranched(owner=owner, agent=agent, key=key, label=label, parent=parent):
            branch = replace(blank, owner=owner, agent=agent, key=key, label=label)
            return replace(branch, parent_id=parent.session_id, parent_seq=parent.seq)
        case SessionRestored(owner=owner, agent=agent, label=label, parent=parent):
            branch = replace(blank, owner=owner, agent=agent, label=label)
            return replace(branch, parent_id=parent.session_id, parent_seq=parent.seq)
        case ErasedData():
            # Erased data belongs to the empty principal, which nobody can be (L11).
            return replace(blank, is_erased=True)
        case _:
            raise Invalid("session_invalid", f"{event.type} carries other data")
