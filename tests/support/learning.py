"""Short helpers for tests of learning: candidates, and a memory writer that keeps its items in a real journal."""

import msgspec

from palyra.core.ids import Principal, RunId, SessionId, StreamId
from palyra.core.learning.identity import candidate_id_of
from palyra.core.learning.model import (
    Candidate,
    CandidateEvidence,
    CandidateKind,
    CandidateOrigin,
    CandidateStatus,
    ItemUse,
    Reflection,
    UsedKind,
    UseOutcome,
)
from palyra.core.trust import Trust

START_MS = 1_800_000_000_000
SESSION = SessionId(StreamId("0" * 25 + "1"))
RUN = RunId("0" * 25 + "2")


def candidate_of(content: str, owner: Principal, **fields: object) -> Candidate:
    kind = fields.get("kind", CandidateKind.FACT)
    assert isinstance(kind, CandidateKind)
    evidence = (CandidateEvidence(session_id=SESSION, seqs=(1,)),)
    base: dict[str, object] = {
        "id": candidate_id_of(owner, kind, content, evidence, CandidateOrigin.REFLECTION),
        "owner": owner,
        "kind": kind,
        "origin": CandidateOrigin.REFLECTION,
        "content": content,
        "confidence_bps": 8_000,
        "trust": Trust.OPERATOR,
        "evidence": evidence,
        "session_id": SESSION,
        "run_id": RUN,
        "status": CandidateStatus.PENDING_REVIEW,
        "created_at_ms": START_MS,
        "updated_at_ms": START_MS,
    }
    return msgspec.convert({**base, **fields}, Candidate, from_attributes=True)


def use_of(owner: Principal, number: int, **fields: object) -> ItemUse:
    base: dict[str, object] = {
        "owner": owner,
        "kind": UsedKind.MEMORY,
        "item_id": "item",
        "run_id": RunId(f"{number:026}"),
        "session_id": SESSION,
        "outcome": UseOutcome.HELPED,
        "at_ms": START_MS + number,
    }
    return ItemUse(**{**base, **fields})  # type: ignore[arg-type]


def reflection_of(owner: Principal, number: int, **fields: object) -> Reflection:
    base: dict[str, object] = {
        "run_id": RunId(f"{number:026}"),
        "session_id": SESSION,
        "owner": owner,
        "by": "model",
        "found_count": 1,
        "junk_count": 0,
        "at_ms": START_MS + number,
    }
    return Reflection(**{**base, **fields})  # type: ignore[arg-type]
