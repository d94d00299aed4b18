"""The hash chain of a tape: which bytes are hashed, in which order.

Does not own: storing them (adapters.store), signing heads (checkpoint).
hash = sha256(previous hash ‖ JCS(header) ‖ d) with d = sha256(salt ‖ JCS(data)). The header is the event on the wire
without data, position and hash. Erasing drops data and salt, and d stays. So the chain stays whole, and nobody can
guess the data back from it. docs/format.md describes the same for other implementers.
"""

import hashlib

import msgspec

from palyra.core.canonical import encode_plain_record
from palyra.core.errors import Invalid
from palyra.core.events import Draft, Event, may_stand
from palyra.core.events.codec import encode_data
from palyra.core.ids import Principal, RunId, StreamId, is_system_stream
from palyra.core.trust import Trust

GENESIS = bytes(32)
SALT_BYTES = 16


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The hashed part of an event, apart from its data."""

    actor: Principal
    at_ms: int
    run_id: RunId | None
    seq: int
    session_id: StreamId
    trust: Trust
    type: str


class Prepared(msgspec.Struct, frozen=True):
    """A draft with its seq and bytes; only the link to the event before it is missing."""

    header: Header
    header_bytes: bytes
    data_bytes: bytes
    salt: bytes
    digest: bytes
    draft: Draft


def prepare(stream: StreamId, seq: int, draft: Draft, salt: bytes) -> Prepared:
    type_name = draft.data.TYPE
    if not may_stand(type_name, is_system=is_system_stream(stream)):
        raise Invalid("event_misplaced", f"a {type_name} event does not belong on tape {stream}")
    header = Header(
        actor=draft.actor,
        at_ms=draft.at_ms,
        run_id=draft.run_id,
        seq=seq,
        session_id=stream,
        trust=draft.trust,
        type=type_name,
    )
    data_bytes = encode_data(draft.data)
    return Prepared(header, encode_plain_record(header), data_bytes, salt, digest_data(salt, data_bytes), draft)


def digest_data(salt: bytes, data_bytes: bytes) -> bytes:
    return hashlib.sha256(salt + data_bytes).digest()


def link(previous: bytes, header_bytes: bytes, digest: bytes) -> bytes:
    """Returns the event's own hash, which is the next event's `previous`."""
    return hashlib.sha256(previous + header_bytes + digest).digest()


def recorded(prepared: Prepared, position: int, event_hash: bytes) -> Event:
    header = prepared.header
    return Event(
        seq=header.seq,
        position=position,
        stream=header.session_id,
        run_id=header.run_id,
        type=header.type,
        at_ms=header.at_ms,
        actor=header.actor,
        trust=header.trust,
        data=prepared.draft.data,
        hash=event_hash.hex(),
        salt=prepared.salt.hex(),
        digest=prepared.digest.hex(),
    )


def to_wire(event: Event) -> dict[str, object]:
    """Returns the event as other people's clients see it (JSON members)."""
    return {
        "seq": event.seq,
        "position": event.position,
        "session_id": event.stream,
        "run_id": event.run_id,
        "type": event.type,
        "at_ms": event.at_ms,
        "actor": event.actor,
        "trust": event.trust.value,
        "data": msgspec.to_builtins(event.data),
        "hash": event.hash,
    }
