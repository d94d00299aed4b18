"""Checks signed checkpoints: signatures, their chain, and what they and erasures claim about tapes.

System tapes are read before all others, because they say what the others must hold. Every head of every checkpoint is
kept, in packed form. So a tape rewritten between two checkpoints shows, and so does a tape cut after the last one.
Invariants: only a checkpoint whose signature holds makes a claim. Only a node whose key is available records an
erasure. An event at a seq that no tape has (below 1) does neither.
"""

import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple

from palyra.core.checkpoint import FIRST_PREVIOUS, Anchor, SignedHead, checkpoint_hash, is_signed_by_node, sign_bytes
from palyra.core.errors import Corrupt
from palyra.core.events.codec import decode_data
from palyra.core.events.system import CheckpointSigned, Erased
from palyra.core.ids import NodeId, StreamId, is_system_stream, system_stream
from palyra.core.verification.evidence import Evidence, StoredEvent, VerifyFinding
from palyra.core.verification.tape import ErasedRanges

_HEAD = struct.Struct(">QQI32s")  # seq, seq of the checkpoint, index of its system tape, hash: 52 bytes a head.
_ERASURE_HASH = bytes(32)  # An erasure claims that a seq existed, not what its hash was.


class Claims:
    """What system tapes say about tapes: signed heads and recorded erasures."""

    def __init__(self, node_ids: frozenset[NodeId] | None = None, anchors: Iterable[Anchor] = ()) -> None:
        self._node_ids = node_ids
        self._anchors = {(anchor.checkpoint, type(anchor)): anchor for anchor in anchors}
        self._heads: dict[StreamId, bytearray] = {}
        self._erasures: dict[StreamId, list[_ErasureRecord]] = {}
        self._systems: list[StreamId] = []
        self.problems: dict[tuple[StreamId, int], str] = {}
        self.key_ids: set[str] = set()
        self._signed_nodes: set[NodeId] = set()
        self._attested_after: dict[NodeId, int | None] = {}
        self.checkpoints_count = 0

    def read_system_tape(self, stream: StreamId, evidence: Evidence) -> None:
        self._systems.append(stream)
        chain = _CheckpointChain(stream, evidence.public_key, evidence.is_valid)
        may_erase = self.is_known_node(stream)
        for stored in evidence.events(stream):
            data = _system_data(stored)
            if isinstance(data, Erased):
                if may_erase and stored.seq >= 1:
                    self._note_erasure(_ErasureRecord(stream, stored.seq, data))
            elif isinstance(data, CheckpointSigned):
                self._note_checkpoint(stream, stored.seq, chain, data)

    def is_known_node(self, stream: StreamId) -> bool:
        """Tells whether the name of a system tape derives from an available key."""
        return self._node_ids is None or _node_of(stream) in self._node_ids

    def silent(self, nodes: Iterable[NodeId]) -> Iterable[StreamId]:
        """Returns the system tapes of those nodes none of whose checkpoints holds."""
        return sorted(system_stream(node) for node in nodes if node not in self._signed_nodes)

    def lost_anchors(self) -> Iterable[Anchor]:
        """Returns the anchors and heads whose checkpoint is not in the journal."""
        return sorted(self._anchors.values(), key=lambda anchor: anchor.position)

    def must_be_attested(self, position: int) -> bool:
        """Tells whether an outcome at this position must have an attestation.

        Older releases attested only what they executed. The first checkpoint of a later release says where that ends.
        """
        ends = self._attested_after.values()
        return all(end is not None and position > end for end in ends)

    def streams(self) -> Iterable[StreamId]:
        """Returns the tapes that must exist."""
        return self._heads

    def erased(self, stream: StreamId) -> ErasedRanges:
        return ErasedRanges(record.data for record in self._erasures.get(stream, ()))

    def signed_erasures(self, stream: StreamId) -> ErasedRanges:
        """Returns the erasures whose record a checkpoint covers. Whoever can write the file can add the others."""
        records = self._erasures.get(stream, ())
        signed_seqs = {system: self.heads(system).signed_seq for system in {record.system for record in records}}
        return ErasedRanges(record.data for record in records if record.seq <= signed_seqs[record.system])

    def heads(self, stream: StreamId) -> "HeadCheck":
        return HeadCheck(stream, bytes(self._heads.get(stream, b"")), tuple(self._systems))

    def is_signed_checkpoint(self, stream: StreamId, stored: StoredEvent) -> bool:
        return stored.type == CheckpointSigned.TYPE and (stream, stored.seq) not in self.problems

    def _note_erasure(self, record: "_ErasureRecord") -> None:
        data = record.data
        if is_system_stream(data.stream):
            return  # Nothing excuses a gap in the record of erasures itself.
        self._erasures.setdefault(data.stream, []).append(record)
        last = max((span.last for span in data.ranges), default=0)
        if last:
            self._claim(data.stream, (last, record.seq, len(self._systems) - 1, _ERASURE_HASH))

    def _note_checkpoint(self, stream: StreamId, seq: int, chain: "_CheckpointChain", data: CheckpointSigned) -> None:
        self.checkpoints_count += 1
        problem = chain.check(data)
        if problem is not None:
            self.problems[stream, seq] = problem
            return
        self.key_ids.add(data.key_id)
        self._note_rule(data)
        self._signed_nodes.add(data.node)
        for kind in (Anchor, SignedHead):
            self._anchors.pop((checkpoint_hash(data), kind), None)
        if seq < 1:
            return
        for head in data.heads:
            self._claim(head.stream, (head.seq, seq, len(self._systems) - 1, _hash_bytes(head.hash)))

    def _note_rule(self, data: CheckpointSigned) -> None:
        """Remembers up to which position a node attested less: to no position if it never did."""
        if data.node not in self._signed_nodes:
            self._attested_after[data.node] = 0 if data.attests_all else None
        elif data.attests_all and self._attested_after[data.node] is None:
            self._attested_after[data.node] = data.position

    def _claim(self, stream: StreamId, head: tuple[int, int, int, bytes]) -> None:
        self._heads.setdefault(stream, bytearray()).extend(_HEAD.pack(*head))


class _ErasureRecord(NamedTuple):
    """A recorded erasure, and where its record lies."""

    system: StreamId
    seq: int
    data: Erased


class HeadCheck:
    """The claims about one tape, compared with its events in order."""

    def __init__(self, stream: StreamId, packed: bytes, systems: tuple[StreamId, ...]) -> None:
        self._stream = stream
        self._systems = systems
        self._claims = sorted(_HEAD.iter_unpack(packed))
        self._next = 0
        signed = [claim[0] for claim in self._claims if claim[3] != _ERASURE_HASH]
        self.signed_seq = max(signed, default=0)

    def check(self, stored: StoredEvent) -> VerifyFinding | None:
        finding: VerifyFinding | None = None
        while self._next < len(self._claims) and self._claims[self._next][0] <= stored.seq:
            seq, by_seq, system, claimed = self._claims[self._next]
            self._next += 1
            is_other = seq == stored.seq and claimed not in (stored.hash, _ERASURE_HASH)
            if is_other and finding is None:
                finding = VerifyFinding(self._stream, seq, f"not the event that {self._named(by_seq, system)} signed")
        return finding

    def missing_after(self, last_seq: int) -> VerifyFinding | None:
        """Returns a finding if the tape does not reach the last seq that a claim names."""
        if self._next >= len(self._claims):
            return None
        seq, by_seq, system, _ = self._claims[-1]
        lost = "the tape is missing" if last_seq == 0 else "the tape was cut here"
        return VerifyFinding(self._stream, last_seq + 1, f"{lost}: {self._named(by_seq, system)} names its seq {seq}")

    def _named(self, seq: int, system: int) -> str:
        return f"{self._systems[system]} seq {seq}"


class _CheckpointChain:
    """The checkpoints of one system tape, each after the one before it."""

    def __init__(
        self,
        stream: StreamId,
        public_key: Callable[[str], bytes | None],
        is_valid: Callable[[bytes, bytes, bytes], bool],
    ) -> None:
        self._node = _node_of(stream)
        self._public_key = public_key
        self._is_valid = is_valid
        self._previous: str | None = FIRST_PREVIOUS
        self._position = 0

    def check(self, checkpoint: CheckpointSigned) -> str | None:
        problem = self._problem(checkpoint)
        # After a bad checkpoint, the previous hash that the next one names proves nothing.
        self._previous = checkpoint_hash(checkpoint) if problem is None else None
        self._position = max(self._position, checkpoint.position)
        return problem

    def _problem(self, checkpoint: CheckpointSigned) -> str | None:
        key = self._public_key(checkpoint.key_id)
        if key is None:
            return "the checkpoint is signed with a key that does not lie beside the journal"
        if not is_signed_by_node(checkpoint, key, self._node):
            return "the checkpoint is signed with a key that is not this node's"
        if not self._is_valid(key, sign_bytes(checkpoint), hex_bytes(checkpoint.signature)):
            return "the checkpoint's signature does not hold"
        if self._previous is not None and checkpoint.previous != self._previous:
            return "the checkpoint does not follow the one before it"
        if checkpoint.position < self._position:
            return "the checkpoint's position goes back"
        return None


def _node_of(stream: StreamId) -> NodeId:
    return NodeId(stream.partition(":")[2])


def _system_data(stored: StoredEvent) -> CheckpointSigned | Erased | None:
    """Returns None if the bytes cannot be read; the check of the chain reports that."""
    if stored.type not in (CheckpointSigned.TYPE, Erased.TYPE):
        return None
    try:
        data = decode_data(stored.type, stored.data)
    except (Corrupt, ValueError):
        return None
    return data if isinstance(data, CheckpointSigned | Erased) else None


def _hash_bytes(text: str) -> bytes:
    """Returns the bytes of a hash. A hash of another form can equal no event's."""
    found = hex_bytes(text)
    return found if len(found) == 32 else b"\xff" * 32


def hex_bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""
