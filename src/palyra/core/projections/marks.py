"""The marks projection: one row for each checkpoint and each pin of a session.

Does not own: their texts, which are in the events.
A branch shares its parent's pins without a row of its own. If it removes one, it gets a row that says only that.
"""

from msgspec.structs import replace

from palyra.core.errors import Invalid
from palyra.core.events import Event
from palyra.core.events.session import PinAdded, PinRemoved, SessionCheckpointed
from palyra.core.ids import SessionId, StreamId
from palyra.core.projections.rows import MarkKind, MarkRow

MarkData = SessionCheckpointed | PinAdded | PinRemoved


def mark_row_id(stream: StreamId, name: str) -> str:
    """Returns the id of the row: a branch and its parent may both have a row about the same pin."""
    return f"{stream}/{name}"


def mark_name(row: MarkRow) -> str:
    """Returns the id of the checkpoint or pin itself."""
    return row.id.partition("/")[2]


def name_in(data: MarkData) -> str:
    return data.checkpoint_id if isinstance(data, SessionCheckpointed) else data.pin_id


def project_mark(event: Event, data: MarkData, row: MarkRow | None) -> MarkRow:
    if isinstance(data, PinRemoved) and row is not None:
        if row.kind is not MarkKind.PIN or row.removed_seq is not None:
            raise Invalid("pin_removed", f"there is no pin {data.pin_id} to remove at seq {event.seq}")
        return replace(row, removed_seq=event.seq, seq=event.seq)
    if row is not None:
        raise Invalid("mark_exists", f"{event.type} at seq {event.seq} names an id that the session has already")
    return _made(event, data)


def _made(event: Event, data: MarkData) -> MarkRow:
    made = MarkRow(
        id=mark_row_id(event.stream, name_in(data)),
        session_id=SessionId(event.stream),
        kind=MarkKind.PIN,
        made_seq=event.seq,
        at_seq=event.seq,
        removed_seq=None,
        created_at_ms=event.at_ms,
        seq=event.seq,
    )
    match data:
        case SessionCheckpointed(at_seq=at_seq):
            return replace(made, kind=MarkKind.CHECKPOINT, at_seq=at_seq)
        case PinAdded(source_seq=source_seq):
            return made if source_seq is None else replace(made, at_seq=source_seq)
        case PinRemoved():
            return replace(made, made_seq=0, at_seq=0, removed_seq=event.seq)
