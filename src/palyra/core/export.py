"""Exported tapes: the line of JSON that an event becomes, and the check of such lines.

Does not own: files, keys.
A line has the members of `chain.to_wire`, a salt and a digest. Its data are the stored bytes themselves: decoding and
encoding them would drop what this release does not write, and then the hash would no longer match.
"""

from collections.abc import Iterable, Iterator

import msgspec

from palyra.core.canonical import canonical_bytes
from palyra.core.errors import Corrupt, Invalid
from palyra.core.events.base import ErasedData
from palyra.core.ids import StreamId
from palyra.core.verification.evidence import FINDINGS_MAX, StoredEvent, Summary, VerifyFinding, VerifyReport
from palyra.core.verification.tape import TapeCheck

LINE_BYTES_MAX = 4 * 1024 * 1024  # An event's data has at most 256 KiB; a longer line is no export of this program.


class ExportLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The members, in the order in which they are written."""

    seq: int
    position: int
    session_id: str
    run_id: str | None
    type: str
    at_ms: int
    actor: str
    trust: str
    data: msgspec.Raw
    hash: str
    salt: str | None
    d: str


_decoder = msgspec.json.Decoder(ExportLine)


def export_line(stream: StreamId, stored: StoredEvent) -> bytes:
    """Returns one line without its line end; raises Corrupt if the stored data is not JSON on one line."""
    line = ExportLine(
        seq=stored.seq,
        position=stored.position,
        session_id=stream,
        run_id=stored.run_id,
        type=stored.type,
        at_ms=stored.at_ms,
        actor=stored.actor,
        trust=stored.trust,
        data=msgspec.Raw(stored.data),
        hash=stored.hash.hex(),
        salt=None if stored.salt is None else stored.salt.hex(),
        d=stored.digest.hex(),
    )
    try:
        msgspec.json.decode(stored.data)
        encoded = msgspec.json.encode(line)
    except ValueError as cause:
        raise _unexportable(stream, stored.seq) from cause
    if b"\n" in encoded:
        raise _unexportable(stream, stored.seq)
    return encoded


def read_line(line: bytes) -> tuple[StreamId, StoredEvent]:
    """Reads the event of one exported line; raises Invalid if it is none."""
    try:
        read = _decoder.decode(line)
        data = canonical_bytes(msgspec.json.decode(bytes(read.data)))
        stored = StoredEvent(
            position=read.position,
            seq=read.seq,
            run_id=read.run_id,
            type=read.type,
            at_ms=read.at_ms,
            actor=read.actor,
            trust=read.trust,
            data=data,
            salt=None if read.salt is None else bytes.fromhex(read.salt),
            digest=bytes.fromhex(read.d),
            hash=bytes.fromhex(read.hash),
        )
    except ValueError as cause:
        raise Invalid("export_line_invalid", "not a line of an export; see docs/format.md for its form") from cause
    return StreamId(read.session_id), stored


def check_export(lines: Iterable[bytes]) -> VerifyReport:
    """Checks the chain of every tape in an export, from each tape's first event on.

    Without keys and projections this proves that each tape's chain is whole, and no more. An erased event passes.
    """
    check = _ExportCheck()
    findings: list[VerifyFinding] = []
    findings_count = 0
    for finding in check.findings(lines):
        findings_count += 1
        if len(findings) < FINDINGS_MAX:
            findings.append(finding)
    return VerifyReport(tuple(findings), check.summary(findings_count))


class _ExportCheck:
    def __init__(self) -> None:
        self._tapes: dict[StreamId, TapeCheck] = {}
        self._events_count = 0
        self._erased_count = 0

    def findings(self, lines: Iterable[bytes]) -> Iterator[VerifyFinding]:
        for number, line in enumerate(lines, start=1):
            try:
                stream, stored = read_line(line)
            except Invalid as cause:
                raise Invalid(cause.code, f"line {number}: {cause.message}") from cause
            self._events_count += 1
            checked = self._tapes.setdefault(stream, TapeCheck(stream, None)).check(stored)
            self._erased_count += checked.event is not None and isinstance(checked.event.data, ErasedData)
            yield from checked.findings

    def summary(self, findings_count: int) -> Summary:
        return Summary(
            tapes_count=len(self._tapes),
            events_count=self._events_count,
            erased_count=self._erased_count,
            unsigned_erased_count=0,
            checkpoints_count=0,
            attestations_count=0,
            unchecked_attestations_count=0,
            unsigned_events_count=self._events_count,
            findings_count=findings_count,
            key_ids=(),
        )


def _unexportable(stream: StreamId, seq: int) -> Corrupt:
    message = f"session {stream} seq {seq}: its data is no JSON; run palyra verify, then restore from a backup"
    return Corrupt("event_data_invalid", message)
