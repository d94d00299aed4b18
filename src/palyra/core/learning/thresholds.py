"""Thresholds: the state in which a candidate begins.

Owns: what is applied at once, what waits for a person, and what is suppressed.
Invariants: what is tainted never applies itself, whatever its confidence. Neither does a compaction or a retirement.
A lower confidence never leads further than a higher one. Applied unasked is only what a person typed as a message of
its own, and only plain words: a host, a path, a command's option, an account or an address has another shape.
"""

import re
from itertools import pairwise

from palyra.core.learning.model import CandidateKind, CandidateStatus
from palyra.core.learning.settings import LearningRuntimeConfig
from palyra.core.trust import Trust, is_tainting

BPS_MAX = 10_000
DIGITS_MAX = 8  # As many as a date has. An account, a card or a telephone number has more.
WORD_CHARS_MAX = 24
_EDGE = ".,;:!?()\"'\u201c\u201d\u201e\u2018\u2019"
# Letters with inner hyphens and apostrophes, or a number as dates and counts have it. All else names something.
_PLAIN = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*|\d{1,4}")
WRITTEN_KINDS = frozenset({CandidateKind.FACT, CandidateKind.DECISION})
APPLIED_KINDS = frozenset({CandidateKind.PREFERENCE, CandidateKind.PROCEDURE})


def is_tainted(trust: Trust, taint: tuple[str, ...]) -> bool:
    return bool(taint) or is_tainting(trust)


def may_apply_unasked(content: str, *, is_told: bool) -> bool:
    """Tells whether a content may be applied without a review, as far as its words go."""
    return is_told and is_plain(content)


def is_plain(content: str) -> bool:
    """Tells whether a text is plain words and a few short numbers. In doubt it is not, and a person looks at it."""
    words = [word.strip(_EDGE) for word in content.split()]
    numbers = [word.isdecimal() for word in words]
    return (
        all(_PLAIN.fullmatch(word) is not None and len(word) <= WORD_CHARS_MAX for word in words if word)
        and sum(letter.isdecimal() for letter in content) <= DIGITS_MAX
        and not any(first and second for first, second in pairwise(numbers))
    )


def first_status(
    kind: CandidateKind, confidence_bps: int, has_to_wait: bool, settings: LearningRuntimeConfig
) -> CandidateStatus:
    """Returns the state of a new candidate. `accepted` means that it is applied at once.

    `has_to_wait` says that it is from outside, or that its words are not to be applied without a review.
    """
    if confidence_bps < settings.review_bps:
        return CandidateStatus.SUPPRESSED
    wanted_bps = auto_bps(kind, settings)
    if has_to_wait or wanted_bps is None or confidence_bps < wanted_bps:
        return CandidateStatus.PENDING_REVIEW
    return CandidateStatus.ACCEPTED


def auto_bps(kind: CandidateKind, settings: LearningRuntimeConfig) -> int | None:
    """Returns the confidence from which this kind is applied without a person; None means never."""
    if kind in WRITTEN_KINDS:
        return settings.auto_write_threshold_bps
    return settings.auto_apply_bps if kind in APPLIED_KINDS else None


def bounded_bps(confidence_bps: int) -> int:
    return max(0, min(BPS_MAX, confidence_bps))
