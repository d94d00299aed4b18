"""Thresholds: the state in which a candidate begins.

Owns: what is applied at once, what waits for a person, and what is suppressed.
Invariants: what is tainted never applies itself, whatever its confidence. Neither does a compaction or a retirement.
A lower confidence never leads further than a higher one.
"""

from palyra.core.learning.model import CandidateKind, CandidateStatus
from palyra.core.learning.settings import LearningRuntimeConfig
from palyra.core.trust import Trust, is_tainting

BPS_MAX = 10_000
WRITTEN_KINDS = frozenset({CandidateKind.FACT, CandidateKind.DECISION})
APPLIED_KINDS = frozenset({CandidateKind.PREFERENCE, CandidateKind.PROCEDURE})


def is_tainted(trust: Trust, taint: tuple[str, ...]) -> bool:
    return bool(taint) or is_tainting(trust)


def first_status(
    kind: CandidateKind, confidence_bps: int, is_from_outside: bool, settings: LearningRuntimeConfig
) -> CandidateStatus:
    """Returns the state of a new candidate. `accepted` means that it is applied at once."""
    if confidence_bps < settings.review_bps:
        return CandidateStatus.SUPPRESSED
    wanted_bps = auto_bps(kind, settings)
    if is_from_outside or wanted_bps is None or confidence_bps < wanted_bps:
        return CandidateStatus.PENDING_REVIEW
    return CandidateStatus.ACCEPTED


def auto_bps(kind: CandidateKind, settings: LearningRuntimeConfig) -> int | None:
    """Returns the confidence from which this kind is applied without a person; None means never."""
    if kind in WRITTEN_KINDS:
        return settings.auto_write_threshold_bps
    return settings.auto_apply_bps if kind in APPLIED_KINDS else None


def bounded_bps(confidence_bps: int) -> int:
    return max(0, min(BPS_MAX, confidence_bps))
