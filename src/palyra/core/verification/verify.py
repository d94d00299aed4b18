"""The verifier: the order of the checks, and the report.

Does not own: each check (the modules beside it), reading files (adapters.store).
One tape is checked at a time, so memory does not grow with the number of events. A few bytes are kept for each tape and
for each head that a checkpoint named.
"""

from collections.abc import Callable, Iterable, Iterator

from palyra.core.checkpoint import SignedHead, head_bytes
from palyra.core.errors import PalyraError
from palyra.core.events import Event
from palyra.core.events.base import ErasedData
from palyra.core.events.session import SessionBranched, SessionRestored
from palyra.core.ids import StreamId, derive_node_id, is_system_stream, system_stream
from palyra.core.verification.attestations import AttestationCheck
from palyra.core.verification.checkpoints import Claims, HeadCheck, hex_bytes
from palyra.core.verification.evidence import FINDINGS_MAX, Evidence, StoredEvent, Summary, VerifyFinding, VerifyReport
from palyra.core.verification.projections import TapeFold, misindexed_text, stray_row
from palyra.core.verification.tape import TapeCheck

PROGRESS_EVERY_COUNT = 1000  # Often enough for a moving bar, seldom enough to cost nothing.


def verify(evidence: Evidence, on_progress: Callable[[int], None] | None = None) -> VerifyReport:
    """Checks everything there is. `on_progress` is told from time to time how many events were checked."""
    verification = _Verification(evidence, on_progress or _in_silence)
    findings: list[VerifyFinding] = []
    findings_count = 0
    tape_damage: VerifyFinding | None = None
    for finding in verification.findings():
        findings_count += 1
        if len(findings) < FINDINGS_MAX:
            findings.append(finding)
        if tape_damage is None and not finding.is_of_row:
            tape_damage = finding
    return VerifyReport(tuple(findings), verification.summary(findings_count), tape_damage)


class _Verification:
    """One run of the verifier: its evidence and its counts so far."""

    def __init__(self, evidence: Evidence, on_progress: Callable[[int], None]) -> None:
        self._evidence = evidence
        self._on_progress = on_progress
        node_ids = None if evidence.node_ids is None else evidence.node_ids()
        self._forged_heads = tuple(head for head in evidence.heads if self._is_forged(head))
        heads = (head for head in evidence.heads if head not in self._forged_heads)
        self._claims = Claims(node_ids, (*evidence.anchors, *heads))
        self._tapes_count = 0
        self._events_count = 0
        self._erased_count = 0
        self._unsigned_erased_count = 0
        self._attested_count = 0
        self._unchecked_count = 0
        self._unsigned_count = 0
        self._is_damaged = False
        self._attested_by: dict[str, tuple[StreamId, int]] = {}

    def findings(self) -> Iterator[VerifyFinding]:
        streams = sorted(self._evidence.streams(), key=lambda stream: (not is_system_stream(stream), stream))
        for stream in streams:
            if is_system_stream(stream):
                self._claims.read_system_tape(stream, self._evidence)
        for stream in streams:
            self._tapes_count += 1
            yield from self._tape(stream)
        yield from self._lost_tapes(frozenset(streams))
        yield from self._unsigned_nodes()
        yield from self._anchored()
        yield from map(stray_row, self._evidence.stray_rows())
        for stray in self._evidence.stray_events():
            what = f"{stray.events_count} events lie on a tape whose name is gone"
            self._is_damaged = True
            yield VerifyFinding(StreamId(f"tape:{stray.tape_id}"), stray.first_seq, what)
        if not self._is_damaged:
            yield from map(misindexed_text, self._evidence.misindexed())

    def summary(self, findings_count: int) -> Summary:
        return Summary(
            tapes_count=self._tapes_count,
            events_count=self._events_count,
            erased_count=self._erased_count,
            unsigned_erased_count=self._unsigned_erased_count,
            checkpoints_count=self._claims.checkpoints_count,
            attestations_count=self._attested_count,
            unchecked_attestations_count=self._unchecked_count,
            unsigned_events_count=self._unsigned_count,
            findings_count=findings_count,
            key_ids=tuple(sorted(self._claims.key_ids)),
        )

    def _tape(self, stream: StreamId) -> Iterator[VerifyFinding]:
        """Compares rows only where the chain is whole: a damaged tape is no measure for them."""
        walk = _TapeWalk(stream, self._evidence, self._claims)
        is_whole = True
        if is_system_stream(stream) and not self._claims.is_known_node(stream):
            yield VerifyFinding(stream, 1, "no key of this node lies beside the journal")
        for stored in self._evidence.events(stream):
            self._count(stored, stream, walk.heads)
            for finding in walk.check(stored):
                is_whole = False
                yield finding
        self._erased_count += walk.erased_count
        self._unsigned_erased_count += walk.unsigned_erased_count
        self._attested_count += walk.attestations.checked_count
        self._unchecked_count += walk.attestations.unchecked_count
        self._attested_by = {**walk.attestations.first_by_key, **self._attested_by}
        ending = walk.ending()
        self._is_damaged |= ending is not None or not is_whole
        if ending is not None:
            yield ending
        elif is_whole:
            yield from walk.fold.differences(stream, self._evidence.rows(stream))

    def _count(self, stored: StoredEvent, stream: StreamId, heads: HeadCheck) -> None:
        self._events_count += 1
        if self._events_count % PROGRESS_EVERY_COUNT == 0:
            self._on_progress(self._events_count)
        if stored.seq > heads.signed_seq and not self._claims.is_signed_checkpoint(stream, stored):
            self._unsigned_count += 1

    def _unsigned_nodes(self) -> Iterator[VerifyFinding]:
        """A node signs its first checkpoint before anything else, so a key that signed and has none is damage."""
        for stream in self._claims.silent(self._evidence.begun_ids()):
            self._is_damaged = True
            yield VerifyFinding(stream, 1, "the key of this node has signed before, and no checkpoint by it is here")
        for key, place in sorted(self._attested_by.items()):
            if key not in self._claims.key_ids:
                self._is_damaged = True
                yield VerifyFinding(*place, "the attestation's key has signed no checkpoint of this journal")

    def _anchored(self) -> Iterator[VerifyFinding]:
        for anchor in self._claims.lost_anchors():
            self._is_damaged = True
            source = (
                "the newest that its key has signed"
                if isinstance(anchor, SignedHead)
                else "which was anchored elsewhere"
            )
            what = f"the checkpoint at position {anchor.position}, {source}, is not here"
            yield VerifyFinding(system_stream(anchor.node), 1, what)
        for head in self._forged_heads:
            key = self._evidence.public_key(head.key_id) or b""
            what = f"the newest checkpoint that keys/{head.key_id}.begun names was not signed by that key"
            yield VerifyFinding(system_stream(derive_node_id(key)), 1, what)

    def _is_forged(self, head: SignedHead) -> bool:
        """A key that is not here says nothing about its file; what that key signed is a finding of its own."""
        key = self._evidence.public_key(head.key_id)
        return key is not None and not (
            head.node == derive_node_id(key)
            and self._evidence.is_valid(key, head_bytes(head), hex_bytes(head.signature))
        )

    def _lost_tapes(self, present: frozenset[StreamId]) -> Iterator[VerifyFinding]:
        for stream in sorted(stream for stream in self._claims.streams() if stream not in present):
            finding = self._claims.heads(stream).missing_after(0)
            if finding is not None:
                yield finding


class _TapeWalk:
    """All checks of one tape, event by event."""

    def __init__(self, stream: StreamId, evidence: Evidence, claims: Claims) -> None:
        self._stream = stream
        self._claims = claims
        self._hash_at = evidence.hash_at
        self._chain = TapeCheck(stream, claims.erased(stream))
        self._signed_erasures = claims.signed_erasures(stream)
        self.heads = claims.heads(stream)
        self.attestations = AttestationCheck(evidence.public_key, evidence.is_valid, claims.must_be_attested)
        self.fold = TapeFold()
        self._is_folding = True
        self.erased_count = 0
        self.unsigned_erased_count = 0

    def check(self, stored: StoredEvent) -> Iterable[VerifyFinding]:
        checked = self._chain.check(stored)
        findings = list(checked.findings)
        if findings:
            # Later events are not to blame for what is missing before them.
            self._is_folding = False
            self.attestations.forgive_unknown_calls()
        head = self.heads.check(stored)
        if checked.event is None:
            return findings
        if isinstance(checked.event.data, ErasedData):
            self._count_erased(stored.seq)
        findings.extend(self._content(checked.event))
        if head is not None:
            findings.append(head)
        return findings

    def _count_erased(self, seq: int) -> None:
        """Counts also what a checkpoint signed and a record erased that no checkpoint has signed."""
        self.erased_count += 1
        if seq <= self.heads.signed_seq and self._signed_erasures.reason_at(seq) is None:
            self.unsigned_erased_count += 1

    def ending(self) -> VerifyFinding | None:
        """Returns what is wrong with the tape's end."""
        missing = self.heads.missing_after(self._chain.last_seq)
        if missing is None and self._chain.last_seq == 0:
            return VerifyFinding(self._stream, 1, "the tape holds no event")
        return missing

    def _content(self, event: Event) -> Iterator[VerifyFinding]:
        problem = self._claims.problems.get((self._stream, event.seq))
        if problem is not None:
            yield VerifyFinding(self._stream, event.seq, problem)
        attested = self.attestations.check(event)
        if attested is not None:
            yield attested
        yield from self._parent(event)
        if not self._is_folding:
            return
        try:
            self.fold.add(event)
        except PalyraError as illegal:
            self._is_folding = False
            yield VerifyFinding(self._stream, event.seq, f"an event that the rules forbid here ({illegal.code})")

    def _parent(self, event: Event) -> Iterator[VerifyFinding]:
        """Checks that a branch is bound to the history it claims."""
        if not isinstance(event.data, SessionBranched | SessionRestored):
            return
        parent = event.data.parent
        found = self._hash_at(parent.session_id, parent.seq)
        if found is None or found.hex() != parent.hash:
            origin = f"{parent.session_id} seq {parent.seq}"
            what = "is missing" if found is None else "is another event"
            yield VerifyFinding(self._stream, event.seq, f"it branches from {origin}, which {what}")


def _in_silence(_: int) -> None:
    """Reports progress to nobody."""
