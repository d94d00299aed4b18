"""Prepared commits, and the records a store and a plan exchange.

Owns: the forms of a commit, of a tape's head, of a unique key and of an event's row.
Does not own: the rules over them (plan), nor salts and limits (the store's commit_preparation).
"""

from typing import NamedTuple

import msgspec

from palyra.core.chain import GENESIS, Prepared
from palyra.core.events import Event
from palyra.core.events.run import RunAccepted
from palyra.core.events.session import SessionBranched, SessionCreated, SessionRestored
from palyra.core.ids import Principal, SessionId, StreamId
from palyra.core.projections.rows import RunRow, SessionRow
from palyra.core.writes import Fence, Write

# One event as it is stored: position, tape_id, seq, run_id, type, at_ms, actor, trust, data, salt, digest, hash.
# A plain tuple goes to a database as it is; a named one was measured slower, and there is one for each event.
EventRow = tuple[int, int, int, str | None, str, int, str, str, bytes, bytes, bytes, bytes]


class PreparedAppend(msgspec.Struct, frozen=True, gc=False):
    stream: StreamId
    expected_seq: int
    events: tuple[Prepared, ...]


class Commit(msgspec.Struct, frozen=True, gc=False):
    """A commit as a store's writer takes it."""

    appends: tuple[PreparedAppend, ...]
    writes: tuple[Write, ...] = ()
    fence: Fence | None = None


class TapeHead(NamedTuple):
    """The last event of a tape. A tape without events has seq 0, the genesis hash and the tape_id 0."""

    tape_id: int
    seq: int
    hash: bytes


NO_HEAD = TapeHead(0, 0, GENESIS)


class LastNumbers(NamedTuple):
    """The highest position and tape id given out; 0 before the first."""

    position: int
    tape_id: int


class UniqueKey(NamedTuple):
    """A key that at most one row of its type may have for each owner."""

    row_type: type[SessionRow] | type[RunRow]
    owner: Principal
    key: str


KEYED_TYPES = frozenset({RunAccepted.TYPE, SessionCreated.TYPE, SessionBranched.TYPE})


def unique_key_of(event: Event) -> UniqueKey | None:
    """The unique key that the row made by this event has. A key never changes, so only the first event has one."""
    match event.data:
        case RunAccepted(idempotency_key=str(key)):
            return UniqueKey(RunRow, event.actor, key)
        case SessionCreated(owner=owner, key=str(key)) | SessionBranched(owner=owner, key=str(key)):
            return UniqueKey(SessionRow, owner, key)
        case _:
            return None


def parent_of(event: Event) -> SessionId | None:
    """The session that the event's session branches off."""
    match event.data:
        case SessionBranched(parent=parent) | SessionRestored(parent=parent):
            return parent.session_id
        case _:
            return None
