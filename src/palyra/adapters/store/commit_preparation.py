"""Prepares a commit on the caller's side, before it waits for the writer.

Owns: everything of a commit that needs no head: bytes, salts, digests, plain types, and the limits of size and time.
Does not own: what is checked against the store (core.commit.plan).
Invariant: what is queued has the types that its records declare. Annotations are not checked when a record is made, so
every write and every header is encoded and decoded again, which takes half a microsecond.
"""

import os
from collections import deque
from collections.abc import Sequence

import msgspec

from palyra.core.chain import SALT_BYTES, prepare
from palyra.core.commit.model import Commit, PreparedAppend
from palyra.core.errors import Invalid
from palyra.core.events import Draft
from palyra.core.ids import AT_MS_MAX, StreamId
from palyra.core.writes import Fence, Write
from palyra.ports.journal import Append

COMMIT_EVENTS_MAX = 10_000  # One commit holds up everyone behind it, so even an import goes in pieces.
# Each request to the kernel gives the interpreter to another thread, so many salts are taken at once.
SALTS_DRAWN_COUNT = 256

# What reading or encoding a value of a wrong type raises: the caller's own fault, told to the caller alone.
_WRONG_TYPE = (TypeError, ValueError, AttributeError, OverflowError, RecursionError, msgspec.MsgspecError)

_packer = msgspec.msgpack.Encoder()
_readers: dict[type[msgspec.Struct], msgspec.msgpack.Decoder[msgspec.Struct]] = {}
_salts: deque[bytes] = deque()  # Its pop is atomic, so no two events ever get the same salt, whichever thread asks.


def prepare_commit(appends: Sequence[Append], writes: Sequence[Write], fence: Fence | None) -> Commit:
    try:
        prepared = []
        events_count = 0
        for append in appends:
            events_count += len(append.drafts)
            if events_count > COMMIT_EVENTS_MAX:
                raise Invalid("commit_too_large", f"a commit takes at most {COMMIT_EVENTS_MAX} events; split it")
            prepared.append(prepare_append(append.stream, append.expected_seq, append.drafts))
        for record in writes if fence is None else (*writes, fence):
            _require_plain(record)
        return Commit(tuple(prepared), tuple(writes), fence)
    except _WRONG_TYPE as cause:
        # Its text could hold a value, so only its kind is told; the cause stays for the log.
        message = f"a value of this commit has a wrong type ({type(cause).__name__}), so it cannot be recorded"
        raise Invalid("value_invalid", message) from cause


def _require_plain(record: msgspec.Struct) -> None:
    """Raises one of _WRONG_TYPE unless every member, however deep, has its declared type and can be stored."""
    reader = _readers.get(type(record))
    if reader is None:
        reader = _readers[type(record)] = msgspec.msgpack.Decoder(type(record))
    reader.decode(_packer.encode(record))


def prepare_append(stream: StreamId, expected_seq: int, drafts: Sequence[Draft]) -> PreparedAppend:
    events = []
    seq = expected_seq
    for draft in drafts:
        seq += 1
        if not 0 <= draft.at_ms <= AT_MS_MAX:
            raise Invalid("time_out_of_range", f"{draft.at_ms} ms is no time an event can have")
        event = prepare(stream, seq, draft, _salt())
        _require_plain(event.header)  # The codec does the same for data.
        events.append(event)
    return PreparedAppend(stream, expected_seq, tuple(events))


def _salt() -> bytes:
    while True:
        try:
            return _salts.pop()
        except IndexError:
            drawn = os.urandom(SALT_BYTES * SALTS_DRAWN_COUNT)
            _salts.extend(drawn[start : start + SALT_BYTES] for start in range(0, len(drawn), SALT_BYTES))
