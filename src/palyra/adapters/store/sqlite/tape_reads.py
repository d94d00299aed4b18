"""Reads tapes: turns stored events back into records. Does not own: projections (views)."""

from typing import Any

import apsw

from palyra.adapters.store.sqlite.connection import fetch, page_limit
from palyra.adapters.store.sqlite.lookup import load_head
from palyra.core.errors import Corrupt
from palyra.core.events import Event
from palyra.core.events.codec import decode_data
from palyra.core.events.system import Head
from palyra.core.ids import StreamId
from palyra.core.trust import Trust


def read_tape(connection: apsw.Connection, stream: StreamId, after_seq: int, limit: int) -> tuple[Event, ...]:
    sql = """
        SELECT tapes.stream, events.* FROM tapes JOIN events ON events.tape_id = tapes.id
        WHERE tapes.stream = ? AND events.seq > ? ORDER BY events.seq LIMIT ?
    """
    return _events(fetch(connection, sql, (stream, after_seq, page_limit(limit))))


def read_tape_end(connection: apsw.Connection, stream: StreamId, limit: int) -> tuple[Event, ...]:
    sql = """
        SELECT tapes.stream, events.* FROM tapes JOIN events ON events.tape_id = tapes.id
        WHERE tapes.stream = ? ORDER BY events.seq DESC LIMIT ?
    """
    return _events(fetch(connection, sql, (stream, page_limit(limit))))[::-1]


def read_journal(connection: apsw.Connection, after_position: int, limit: int) -> tuple[Event, ...]:
    sql = """
        SELECT tapes.stream, events.* FROM events JOIN tapes ON tapes.id = events.tape_id
        WHERE events.position > ? ORDER BY events.position LIMIT ?
    """
    return _events(fetch(connection, sql, (after_position, page_limit(limit))))


def read_head(connection: apsw.Connection, stream: StreamId) -> Head | None:
    head = load_head(connection, stream)
    return None if head.seq == 0 else Head(stream=stream, seq=head.seq, hash=head.hash.hex())


def read_event(cells: tuple[Any, ...]) -> Event:
    """Returns the record of one stored event, its tape's name first. Raises Corrupt if the bytes are not ours."""
    stream, position, _, seq, run_id, type_name, at_ms, actor, trust, data, salt, digest, event_hash = cells
    try:
        return Event(
            seq=seq,
            position=position,
            stream=stream,
            run_id=run_id,
            type=type_name,
            at_ms=at_ms,
            actor=actor,
            trust=Trust(trust),
            data=decode_data(type_name, data),
            hash=event_hash.hex(),
            salt=None if salt is None else salt.hex(),
            digest=digest.hex(),
        )
    except (Corrupt, ValueError) as cause:
        reason = cause.message if isinstance(cause, Corrupt) else "it holds a value of no known form"
        raise Corrupt(
            "event_unreadable", f"tape {stream} seq {seq} cannot be read: {reason}; run palyra verify"
        ) from cause


def _events(rows: list[tuple[Any, ...]]) -> tuple[Event, ...]:
    return tuple([read_event(cells) for cells in rows])
