"""Checks one tape's chain: seqs without gaps, bytes that hash to what is stored, erasures on record.

Invariants: there is at most one finding an event. Damage at one event is not reported again at the next. After a
finding, the next event may link to the stored hash or to the correct one.
"""

from collections.abc import Iterable
from heapq import heappop, heappush

import msgspec

from palyra.core.canonical import canonical_bytes, encode_plain_record
from palyra.core.chain import GENESIS, SALT_BYTES, Header, digest_data, link
from palyra.core.errors import Corrupt, Invalid
from palyra.core.events import DATA_TYPES, Data, Event, may_stand
from palyra.core.events.base import ErasedData
from palyra.core.events.codec import decode_data
from palyra.core.events.system import Erased
from palyra.core.ids import Principal, RunId, StreamId, is_system_stream
from palyra.core.trust import Trust
from palyra.core.verification.evidence import StoredEvent, VerifyFinding

DATA_MISMATCH = "its data does not have the digest that is stored"


class ErasedRanges:
    """The recorded erasures of one tape, looked up in order of seq.

    Where two name the same event, the one recorded first counts: a later record cannot change the reason.
    """

    def __init__(self, erasures: Iterable[Erased] = ()) -> None:
        self._spans = sorted(
            (span.first, order, span.last, erasure.reason)
            for order, erasure in enumerate(erasures)
            for span in erasure.ranges
        )
        self._next = 0
        self._begun: list[tuple[int, int, str]] = []  # A heap of order, last seq and reason.

    def reason_at(self, seq: int) -> str | None:
        """Returns why the event was erased; None if no record names it."""
        while self._next < len(self._spans) and self._spans[self._next][0] <= seq:
            _, order, last, reason = self._spans[self._next]
            heappush(self._begun, (order, last, reason))
            self._next += 1
        while self._begun and self._begun[0][1] < seq:
            heappop(self._begun)
        return self._begun[0][2] if self._begun else None


class Checked(msgspec.Struct, frozen=True):
    """One stored event after its check; `event` is None if its bytes cannot be believed or read."""

    findings: tuple[VerifyFinding, ...]
    event: Event | None


class TapeCheck:
    """Follows one tape from its first event. `erased` is None if no system tape is available."""

    def __init__(self, stream: StreamId, erased: ErasedRanges | None) -> None:
        self._stream = stream
        self._erased = erased
        self._seq = 0
        self._position = 0
        self._previous: tuple[bytes, ...] = (GENESIS,)

    @property
    def last_seq(self) -> int:
        return self._seq

    def check(self, stored: StoredEvent) -> Checked:
        findings = self._gap_before(stored)
        has_gap = bool(findings)
        header = header_bytes(self._stream, stored)
        following = () if header is None else tuple(link(each, header, stored.digest) for each in self._previous)
        is_linked = header is not None and (has_gap or stored.hash in following)
        event: Event | None = None
        try:
            if not is_linked:
                raise Corrupt("chain_broken", "its fields do not have the hash that is stored")
            self._require_place(stored)
            event = _as_event(self._stream, stored, self._read_data(stored))
        except (Corrupt, Invalid) as problem:
            findings.append(VerifyFinding(self._stream, stored.seq, problem.message))
        # Accepted links: the stored hash, the hash computed from it, and the one computed from the last good event.
        self._previous = (stored.hash,) if is_linked else (stored.hash, *following[:1], *following[1:][-1:])
        self._seq = max(self._seq, stored.seq)  # The next event is not to blame for a seq that went back.
        self._position = max(self._position, stored.position)
        return Checked(tuple(findings), event)

    def _gap_before(self, stored: StoredEvent) -> list[VerifyFinding]:
        expected = self._seq + 1
        if stored.seq == expected:
            return []
        if stored.seq < expected:
            return [VerifyFinding(self._stream, stored.seq, f"a tape has no such seq here; {expected} was due")]
        last = stored.seq - 1
        lost = "this event is missing" if last == expected else f"the events from here to {last} are missing"
        return [VerifyFinding(self._stream, expected, lost)]

    def _require_place(self, stored: StoredEvent) -> None:
        if stored.position <= self._position:
            raise Corrupt("position_order", f"its position {stored.position} is not after that of the event before it")
        if not may_stand(stored.type, is_system=is_system_stream(self._stream)) and stored.type in DATA_TYPES:
            raise Corrupt("event_misplaced", "an event of this type does not belong on this tape")

    def _read_data(self, stored: StoredEvent) -> Data | ErasedData:
        if stored.salt is not None and len(stored.salt) != SALT_BYTES:
            raise Corrupt("salt_invalid", f"its salt has {len(stored.salt)} bytes, not {SALT_BYTES}")
        if stored.salt is not None and digest_data(stored.salt, stored.data) != stored.digest:
            raise Corrupt("digest_mismatch", self._why_mismatched(stored))
        data = _decoded(stored)
        is_erased = isinstance(data, ErasedData)
        if stored.salt is None and not is_erased:
            raise Corrupt("salt_missing", "its salt is gone while its data is not, so the data cannot be checked")
        if is_erased and stored.salt is not None:
            raise Corrupt("salt_kept", "its data says it was erased, but its salt and digest say it was written so")
        self._require_recorded(stored.seq, data)
        return data

    def _why_mismatched(self, stored: StoredEvent) -> str:
        """Explains a mismatch.

        Erased data beside a salt is a half-done erasure, which tells more than a flipped byte.
        """
        try:
            is_erased = isinstance(decode_data(stored.type, stored.data), ErasedData)
        except (Corrupt, ValueError):
            return DATA_MISMATCH
        return "its data was erased, but its salt was kept" if is_erased else DATA_MISMATCH

    def _require_recorded(self, seq: int, data: Data | ErasedData) -> None:
        if self._erased is None:
            return
        recorded = self._erased.reason_at(seq)
        if isinstance(data, ErasedData):
            if recorded is None:
                raise Corrupt("erasure_unrecorded", "its data was erased, and no event on a system tape records that")
            if recorded != data.erased:
                raise Corrupt("erasure_reason", "its data gives another reason than the record of its erasure")
        elif recorded is not None:
            raise Corrupt("erasure_undone", "a system tape records its erasure, but its data is still there")


def header_bytes(stream: StreamId, stored: StoredEvent) -> bytes | None:
    """Returns the hashed bytes of the header columns; None if they could never have been hashed."""
    try:
        header = Header(
            actor=Principal(stored.actor),
            at_ms=stored.at_ms,
            run_id=None if stored.run_id is None else RunId(stored.run_id),
            seq=stored.seq,
            session_id=stream,
            trust=Trust(stored.trust),
            type=stored.type,
        )
        return encode_plain_record(header)
    except (ValueError, Invalid):
        return None


def _decoded(stored: StoredEvent) -> Data | ErasedData:
    """Decodes the data. The codec's message may quote stored text, so only its code is passed on."""
    try:
        data = decode_data(stored.type, stored.data)
    except Corrupt as problem:
        raise Corrupt(problem.code, f"its data cannot be read ({problem.code})") from problem
    except ValueError as problem:  # Bytes that are not UTF-8.
        raise Corrupt("event_data_invalid", "its data cannot be read (not UTF-8)") from problem
    if not _is_canonical(data, stored.data):
        raise Corrupt("not_canonical", "its data is not canonical JSON")
    return data


def _is_canonical(data: Data | ErasedData, encoded: bytes) -> bool:
    # Encoding the record again is the quick proof; other versions and spelled-out defaults need the long one.
    if data.IS_PLAIN and encode_plain_record(data) == encoded:
        return True
    try:
        return canonical_bytes(msgspec.json.decode(encoded)) == encoded
    except Invalid:
        return False


def _as_event(stream: StreamId, stored: StoredEvent, data: Data | ErasedData) -> Event:
    return Event(
        seq=stored.seq,
        position=stored.position,
        stream=stream,
        run_id=None if stored.run_id is None else RunId(stored.run_id),
        type=stored.type,
        at_ms=stored.at_ms,
        actor=Principal(stored.actor),
        trust=Trust(stored.trust),
        data=data,
        hash=stored.hash.hex(),
        salt=None if stored.salt is None else stored.salt.hex(),
        digest=stored.digest.hex(),
    )
