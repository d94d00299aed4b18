"""The order of what a question found: scores of words and of vectors, neighbours in a conversation, and a few rules.

Owns: how the parts add up. Does not own: finding candidates and measuring them (adapters.store), questions (question).
Every part lies between 0 and 1 and means the same for every question, so scores of two questions can be compared.
The age of an item is no part of it: old and new items are found alike.
"""

import math
from collections.abc import Mapping, Sequence

import msgspec

from palyra.core.memory.model import HitReason
from palyra.core.memory.question import MemoryQuestion
from palyra.core.memory.time_words import Period, has_time_words, nearness

# Tuned on chats made up for it (bench.recall), and checked on two sets of others. docs/memory-search.md has the table.
VECTOR_WEIGHT = 0.8
MEANING_WEIGHT = 1.0
ANSWER_WEIGHT = 0.7  # What the turn before says of the subject, if it is a question: then this turn is its answer.
NEAR_WEIGHT = 0.15
FAR_WEIGHT = 0.05
SPEAKER_BONUS = 0.3  # More of it hides what others said of a person, and the answer to a question that mixes two up.
PERIOD_BONUS = 0.25
TIME_BONUS = 0.12
QUESTION_MALUS = 0.08
LENGTH_BONUS = 0.07
LENGTH_FULL_WORDS = 25  # A turn as long as this usually says something; shorter ones are mostly reactions.
SHORT_WORDS = 30  # A text longer than this says itself what it is about, so its neighbours count less.
SUPPORT_MIN = 0.02  # Less than this is the chance likeness of two vectors, and supports no hit.
TEXT_SATURATION = 1.4  # About what FTS5 gives for a short text that holds every word, by their rarity.
COSINE_FULL = 0.8  # Vectors this close mean the same for every embedder we measured.
_SUPPORTING = ("context", "speaker", "period", "time")
_WHOLE = 1 + VECTOR_WEIGHT + MEANING_WEIGHT
_WITHOUT_VECTOR = 1 + MEANING_WEIGHT


class MemoryCandidate(msgspec.Struct, kw_only=True):
    """One item that a branch found, as measured. `before` and `after` are its neighbours, the nearest first.

    `text` is BM25, `vector` a cosine; None where the branch did not find it. `meaning` is the share of the question's
    words, weighted by rarity, that the item has by meaning (a word of the same meaning counts in part).
    """

    row: int
    content: str
    word_count: int
    text: float | None = None
    vector: float | None = None
    meaning: float = 0.0
    speaker: str = ""
    in_conversation: bool = False
    said: Period | None = None
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


class RankedItem(msgspec.Struct, frozen=True):
    row: int
    score: float
    why: HitReason


def rarity(document_count: int, holding_count: int) -> float:
    """Returns how much a word tells: the fewer items hold it, the more."""
    held = min(holding_count, document_count)
    return math.log((document_count - held + 0.5) / (held + 0.5) + 1)


def rank(
    question: MemoryQuestion,
    rarity_sum: float,
    candidates: Sequence[MemoryCandidate],
    limit: int,
    *,
    has_vector: bool = True,
) -> list[RankedItem]:
    """Returns the best candidates that anything supports, the best first.

    `rarity_sum` is the rarity of all the question's words. Without a vector of the question, words alone make up the whole score.
    """
    whole = _WHOLE if has_vector else _WITHOUT_VECTOR
    bases = {candidate.row: _measured(candidate, rarity_sum, whole) for candidate in candidates}
    is_question = {one.row: one.in_conversation and one.content.rstrip().endswith("?") for one in candidates}
    scored = []
    for candidate in candidates:
        rules = _rules(question, candidate, bases, is_question)
        if _is_supported(bases[candidate.row], rules):
            scored.append((bases[candidate.row] + sum(rules.values()), candidate, rules))
    scored.sort(key=lambda one: (-one[0], one[1].row))
    offered = _offered(question)
    return [
        RankedItem(candidate.row, min(1.0, max(0.0, score - offered)), _why(candidate, rules, whole))
        for score, candidate, rules in scored[:limit]
    ]


def _is_supported(base: float, rules: Mapping[str, float]) -> bool:
    """Tells whether the item fits the question at all. Its form alone, such as its length, is no reason to show it."""
    return base + sum(rules.get(name, 0.0) for name in _SUPPORTING) >= SUPPORT_MIN


def _offered(question: MemoryQuestion) -> float:
    """Returns what the question's own wishes add to an item that meets them all.

    It is taken off every score: whoever is asked about said much that does not answer, and a threshold has to hold.
    """
    wishes = (
        (bool(question.speakers), SPEAKER_BONUS),
        (question.period is not None, PERIOD_BONUS),
        (question.asks_for_time, TIME_BONUS),
    )
    return sum(bonus for is_wished, bonus in wishes if is_wished)


def _measured(candidate: MemoryCandidate, rarity_sum: float, whole: float) -> float:
    text = _text_share(candidate, rarity_sum)
    return (text + VECTOR_WEIGHT * _vector_share(candidate) + MEANING_WEIGHT * candidate.meaning) / whole


def _text_share(candidate: MemoryCandidate, rarity_sum: float) -> float:
    return (candidate.text or 0.0) / (rarity_sum * TEXT_SATURATION) if rarity_sum > 0 else 0.0


def _vector_share(candidate: MemoryCandidate) -> float:
    return min(1.0, max(0.0, (candidate.vector or 0.0) / COSINE_FULL))


def _rules(
    question: MemoryQuestion, candidate: MemoryCandidate, bases: Mapping[int, float], is_question: Mapping[int, bool]
) -> dict[str, float]:
    rules: dict[str, float] = {}
    if candidate.in_conversation:
        rules["context"] = _context(candidate, bases, is_question)
        rules["length"] = LENGTH_BONUS * min(1.0, candidate.word_count / LENGTH_FULL_WORDS)
        if is_question[candidate.row]:
            rules["question"] = -QUESTION_MALUS
    if candidate.speaker and candidate.speaker in question.speakers:
        rules["speaker"] = SPEAKER_BONUS
    if question.period is not None and candidate.said is not None:
        rules["period"] = PERIOD_BONUS * nearness(candidate.said, question.period)
    if question.asks_for_time and has_time_words(candidate.content):
        rules["time"] = TIME_BONUS
    return rules


def _why(candidate: MemoryCandidate, rules: Mapping[str, float], whole: float) -> HitReason:
    """Tells the shares in words. Words of like meaning are measured like the branches, and shown with the rules."""
    shares = {"meaning": MEANING_WEIGHT * candidate.meaning / whole, **rules}
    shown = {name: round(share, 4) for name, share in shares.items() if share}
    return HitReason(text=candidate.text, vector=candidate.vector, rules=shown)


def _context(candidate: MemoryCandidate, bases: Mapping[int, float], is_question: Mapping[int, bool]) -> float:
    share = 0.0
    for distance, row in enumerate(candidate.before):
        answers = distance == 0 and is_question.get(row, False)
        weight = ANSWER_WEIGHT if answers else FAR_WEIGHT if distance else NEAR_WEIGHT
        share += weight * bases.get(row, 0.0)
    for distance, row in enumerate(candidate.after):
        share += (FAR_WEIGHT if distance else NEAR_WEIGHT) * bases.get(row, 0.0)
    return share * min(1.0, SHORT_WORDS / max(1, candidate.word_count))
