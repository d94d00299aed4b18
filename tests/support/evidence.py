"""Journals in memory for the verifier: tapes made by the pure core, kept as rows that a test can damage."""

from collections.abc import Iterable, Sequence

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from palyra.core.chain import GENESIS, link, prepare, recorded
from palyra.core.checkpoint import FIRST_PREVIOUS, checkpoint_hash, draft_checkpoint, key_id, sign_bytes
from palyra.core.erasure import as_ranges
from palyra.core.events import Draft, Event
from palyra.core.events.codec import encode_erased
from palyra.core.events.system import CheckpointSigned, Erased, Head
from palyra.core.ids import StreamId, derive_node_id, system_stream
from palyra.core.projections.project import RowKey, project
from palyra.core.projections.rows import Row, tape_field
from palyra.core.verification import Evidence, StoredEvent, StoredRow, VerifyReport, verify
from palyra.core.verification.projections import TABLES
from palyra.core.verification.tape import TapeCheck, header_bytes
from palyra.ports.signer import Signer
from tests.support.journals import FixedSigner, attested, draft

TABLE_OF = {row_type: table for table, row_type in TABLES.items()}


class Scene:
    """A journal that grows by appends and checkpoints. A test may change `tapes` and `rows` before `verify`."""

    def __init__(self, signer: Signer | None = None) -> None:
        self.signer = signer or FixedSigner()
        self.system = system_stream(derive_node_id(self.signer.public_key))
        self.tapes: dict[StreamId, list[StoredEvent]] = {}
        self.rows: dict[RowKey, Row] = {}
        self.keys = {key_id(self.signer.public_key): self.signer.public_key}
        self._position = 0
        self._previous = FIRST_PREVIOUS
        self._signed: dict[StreamId, int] = {}

    def append(self, stream: StreamId, drafts: Iterable[Draft]) -> list[Event]:
        if not self.tapes:
            # A node signs its first checkpoint before anything else is recorded.
            first = draft_checkpoint(self.signer.public_key, self._previous, 0, ())
            self.tapes[self.system] = []
            self.append_signed(first, self.signer)
        return [self._append(stream, each) for each in attested(drafts, self.signer)]

    def checkpoint(self) -> CheckpointSigned:
        heads = [
            Head(stream=stream, seq=tape[-1].seq, hash=tape[-1].hash.hex())
            for stream, tape in self.tapes.items()
            if tape[-1].seq > self._signed.get(stream, 0)
        ]
        self._signed |= {head.stream: head.seq for head in heads}
        unsigned = draft_checkpoint(self.signer.public_key, self._previous, self._position, tuple(heads))
        return self.append_signed(unsigned, self.signer)

    def append_signed(self, unsigned: CheckpointSigned, signer: Signer) -> CheckpointSigned:
        signature = signer.sign(sign_bytes(unsigned)).hex()
        signed = msgspec.structs.replace(unsigned, signature=signature)
        self._previous = checkpoint_hash(signed)
        self.append(self.system, [draft(signed)])
        return signed

    def erase(self, stream: StreamId, seqs: Sequence[int], reason: str = "retention") -> None:
        self.append(self.system, [draft(Erased(stream=stream, ranges=as_ranges(seqs), reason=reason))])
        for seq in seqs:
            self.spoil(stream, seq, data=encode_erased(reason), salt=None)
        self.refold(stream)

    def refold(self, stream: StreamId) -> None:
        self.rows = {key: row for key, row in self.rows.items() if tape_of(row) != stream}
        for event in self.events(stream):
            self._project(event)

    def events(self, stream: StreamId) -> list[Event]:
        check = TapeCheck(stream, None)
        return [event for stored in self.tapes[stream] if (event := check.check(stored).event) is not None]

    def spoil(self, stream: StreamId, seq: int, **changes: object) -> None:
        tape = self.tapes[stream]
        index = next(index for index, stored in enumerate(tape) if stored.seq == seq)
        tape[index] = msgspec.structs.replace(tape[index], **changes)

    def rechain(self, stream: StreamId) -> None:
        """Makes every hash fit again, as a forger would."""
        previous, tape = GENESIS, self.tapes[stream]
        for index, stored in enumerate(tape):
            header = header_bytes(stream, stored)
            assert header is not None
            previous = link(previous, header, stored.digest)
            tape[index] = msgspec.structs.replace(stored, hash=previous)

    def evidence(self) -> Evidence:
        return Evidence(
            streams=lambda: list(self.tapes),
            events=lambda stream: iter(self.tapes[stream]),
            rows=lambda stream: [self.stored(row) for row in self.rows.values() if tape_of(row) == stream],
            stray_rows=lambda: [self.stored(row) for row in self.rows.values() if tape_of(row) not in self.tapes],
            stray_events=lambda: (),
            hash_at=self._hash_at,
            public_key=self.keys.get,
            is_valid=is_valid,
        )

    def verify(self) -> VerifyReport:
        return verify(self.evidence())

    def stored(self, row: Row) -> StoredRow:
        values = {name: int(value) if value is True or value is False else value for name, value in _plain(row).items()}
        return StoredRow(TABLE_OF[type(row)], values)

    def _append(self, stream: StreamId, each: Draft) -> Event:
        tape = self.tapes.setdefault(stream, [])
        self._position += 1
        salt = self._position.to_bytes(16, "big")
        prepared = prepare(stream, len(tape) + 1, each, salt)
        event_hash = link(tape[-1].hash if tape else GENESIS, prepared.header_bytes, prepared.digest)
        event = recorded(prepared, self._position, event_hash)
        tape.append(
            StoredEvent(
                position=event.position,
                seq=event.seq,
                run_id=event.run_id,
                type=event.type,
                at_ms=event.at_ms,
                actor=event.actor,
                trust=event.trust.value,
                data=prepared.data_bytes,
                salt=salt,
                digest=prepared.digest,
                hash=event_hash,
            )
        )
        self._project(event)
        return event

    def _project(self, event: Event) -> None:
        for row in project(event, self.rows):
            self.rows[RowKey(type(row), row.id)] = row

    def _hash_at(self, stream: StreamId, seq: int) -> bytes | None:
        return next((stored.hash for stored in self.tapes.get(stream, ()) if stored.seq == seq), None)


def is_valid(public_key: bytes, message: bytes, signature: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def _plain(row: Row) -> dict[str, int | str | None]:
    plain: dict[str, int | str | None] = msgspec.to_builtins(row)
    return plain


def tape_of(row: Row) -> StreamId:
    stream: StreamId = getattr(row, tape_field(type(row)))
    return stream
