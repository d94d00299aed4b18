"""What makes two candidates the same. Owns: the normalised form of a content, its hash, and the id of a candidate."""

import hashlib
import re

from palyra.core.ids import CandidateId, Principal, derive_candidate_id
from palyra.core.learning.model import CandidateEvidence, CandidateKind, CandidateOrigin

_SPACE = re.compile(r"\s+")
_EDGE = " \t\r\n.,;:!\"'`*-•>"


def normalise(content: str) -> str:
    """Returns the content without regard to case, spaces and the signs around it."""
    return _SPACE.sub(" ", content).strip(_EDGE).casefold()


def content_hash(content: str) -> str:
    return hashlib.sha256(normalise(content).encode("utf-8", "surrogatepass")).hexdigest()


def candidate_id_of(
    owner: Principal,
    kind: CandidateKind,
    content: str,
    evidence: tuple[CandidateEvidence, ...],
    origin: CandidateOrigin,
) -> CandidateId:
    drawn_from = [f"{each.session_id}:{','.join(map(str, sorted(each.seqs)))}" for each in evidence]
    return derive_candidate_id(owner, f"{origin.value}:{kind.value}", content_hash(content), sorted(drawn_from))
