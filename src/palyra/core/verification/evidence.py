"""What a verifier is given and what it reports: raw stored values, findings and the summary.

Does not own: any check.
Stored values are raw on purpose: a verifier must see the bytes as stored, before any reader has interpreted them.
Invariant: a finding names a tape and a seq, and never holds a person's or a model's text.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from palyra.core.checkpoint import Anchor, SignedHead
from palyra.core.ids import NodeId, StreamId

FINDINGS_MAX = 100  # As many as a person can read in a report; the count goes on.


class StoredEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One row of the events table, undecoded. Text that was not UTF-8 holds lone surrogates."""

    position: int
    seq: int
    run_id: str | None
    type: str
    at_ms: int
    actor: str
    trust: str
    data: bytes
    salt: bytes | None
    digest: bytes
    hash: bytes


class StoredRow(msgspec.Struct, frozen=True):
    """One row of a projection table: column names to integers, text or null."""

    table: str
    values: dict[str, int | str | None]


class StrayEvents(msgspec.Struct, frozen=True):
    """Events whose stream has no name any more."""

    tape_id: int
    first_seq: int
    events_count: int


class Misindexed(msgspec.Struct, frozen=True):
    """A text that the index of words lacks. If it `is_stray`, the index has it although the text no longer exists."""

    stream: str
    seq: int
    is_stray: bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where a verifier reads: one snapshot of a journal, and the public keys beside it.

    `node_ids` returns the nodes those keys belong to. None means that the keys cannot be listed; then any name is
    believed. `begun_ids` returns the nodes of which is known that they have signed a journal.
    `heads` are their newest checkpoints, read before the snapshot was taken.
    """

    streams: Callable[[], Iterable[StreamId]]
    events: Callable[[StreamId], Iterable[StoredEvent]]
    rows: Callable[[StreamId], Iterable[StoredRow]]
    stray_rows: Callable[[], Iterable[StoredRow]]
    stray_events: Callable[[], Iterable[StrayEvents]]
    hash_at: Callable[[StreamId, int], bytes | None]
    public_key: Callable[[str], bytes | None]
    is_valid: Callable[[bytes, bytes, bytes], bool]
    node_ids: Callable[[], frozenset[NodeId]] | None = None
    misindexed: Callable[[], Iterable[Misindexed]] = tuple
    begun_ids: Callable[[], frozenset[NodeId]] = frozenset
    anchors: tuple[Anchor, ...] = ()
    heads: tuple[SignedHead, ...] = ()


class VerifyFinding(msgspec.Struct, frozen=True):
    """One value that differs from what was written. `is_of_row` marks a table's row, which can be computed again."""

    stream: StreamId
    seq: int
    what: str
    is_of_row: bool = False

    def __str__(self) -> str:
        return f"session {self.stream} seq {self.seq}: {self.what}"

    def to_wire(self) -> dict[str, object]:
        return {"session_id": self.stream, "seq": self.seq, "what": self.what}


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What was checked. `unsigned_events_count` is no damage: no checkpoint has signed those events yet.

    `unsigned_erased_count` counts signed texts that are gone by the word of such an event alone.
    """

    tapes_count: int
    events_count: int
    erased_count: int
    unsigned_erased_count: int
    checkpoints_count: int
    attestations_count: int
    unchecked_attestations_count: int
    unsigned_events_count: int
    findings_count: int
    key_ids: tuple[str, ...]


class VerifyReport(msgspec.Struct, frozen=True):
    """The first findings in order, and the summary, which counts them all.

    `tape_damage` is the first finding that is not of a row, however many came before it.
    """

    findings: tuple[VerifyFinding, ...]
    summary: Summary
    tape_damage: VerifyFinding | None = None

    @property
    def is_whole(self) -> bool:
        return self.summary.findings_count == 0

    def to_wire(self) -> dict[str, object]:
        findings = [finding.to_wire() for finding in self.findings]
        summary = msgspec.to_builtins(self.summary)
        return {
            "ok": self.is_whole,
            "first_bad": findings[0] if findings else None,
            "findings": findings,
            "summary": summary,
        }
