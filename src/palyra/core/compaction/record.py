"""The event of a compaction, and the whole record of it.

Owns: turning a compaction into its event, and into the record that is stored beside it.
Does not own: when it is recorded (engine.session.commit_builder).
"""

import hashlib

import msgspec

from palyra.core.compaction.model import STRATEGY, Compaction, DroppedMessage, KeptItem, ProbeResult, RetiredItem
from palyra.core.events.session import KeptSentence, RetiredSentence, SessionCompacted
from palyra.core.fences import FENCE_ID_LENGTH
from palyra.core.ids import SessionId, derive_mark_id


class CompactionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All that a compaction did. `proposed` is a model's summary, also if it was refused. Places are those of the tape."""

    by: str
    cause: str
    from_place: int
    to_place: int
    summary: str
    kept: tuple[KeptItem, ...]
    dropped: tuple[DroppedMessage, ...]
    retired: tuple[RetiredItem, ...]
    proposed: str
    refusals: tuple[str, ...]
    probes: tuple[ProbeResult, ...]


def record_of(compaction: Compaction, event: SessionCompacted) -> CompactionRecord:
    return CompactionRecord(
        by=event.by,
        cause=event.cause,
        from_place=compaction.from_place,
        to_place=compaction.to_place,
        summary=compaction.summary,
        kept=compaction.items,
        dropped=compaction.dropped,
        retired=compaction.retired,
        proposed=compaction.proposed,
        refusals=compaction.refusals,
        probes=compaction.probes,
    )


def event_of(compaction: Compaction, session_id: SessionId, base: int, cause: str) -> SessionCompacted:
    """Ids are derived from what is compacted, so that the same compaction has the same event again."""
    checkpoint_id = derive_mark_id(session_id, "compaction", compaction.to_place)
    return SessionCompacted(
        checkpoint_id=checkpoint_id,
        from_seq=max(0, compaction.from_place - base),
        to_seq=max(0, compaction.to_place - base),
        summary=compaction.summary,
        strategy=STRATEGY,
        tokens_before=compaction.tokens_before,
        tokens_after=compaction.tokens_after,
        probes_passed=compaction.probes_passed,
        from_place=compaction.from_place,
        to_place=compaction.to_place,
        items=tuple(
            KeptSentence(kind=item.kind.value, text=item.text, place=item.place, trust=item.trust, is_told=item.is_told)
            for item in compaction.items
        ),
        by="model" if compaction.is_by_model else "rules",
        refusals=compaction.refusals,
        retired=tuple(
            RetiredSentence(kind=each.kind.value, text=each.text, place=each.place, by=each.by, by_place=each.by_place)
            for each in compaction.retired
        ),
        fence_id=hashlib.sha256(checkpoint_id.encode()).hexdigest()[:FENCE_ID_LENGTH],
        cause=cause,
    )
