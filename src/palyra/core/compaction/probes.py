"""Probes: questions that a summary must be able to answer before it may take the place of a conversation.

Owns: making probes from what must not be lost, and checking a summary against them.
A summary that fails is not committed. The rules alone then make one, which keeps the sentences themselves.
"""

import re
from collections.abc import Sequence

from palyra.core.compaction.findings import marks_of, split_sentences
from palyra.core.compaction.model import Exchange, KeptItem, KeptKind
from palyra.core.fences import neutralise

FACT_SHARE = 0.8  # How many of the marks in facts a summary must hold: some facts are superseded by later ones.
_NEGATION = re.compile(r"\b(not|never|no|don't|without|nicht|nie|niemals|kein\w*|nikdy|ne\w+)\b|n't\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]{4,}")
_FILLER = frozenset(
    "always never must should please from with that this these those have will would they them then than when what "
    "which there their about into your only also just more most some such each".split()
)
SAME_WORDS_SHARE = 0.8
PROSE_KINDS = frozenset({KeptKind.FACT})  # A summary in prose may stand for these; others are kept word for word.


def refuse_summary(summary: str, exchanges: Sequence[Exchange], items: Sequence[KeptItem]) -> tuple[str, ...]:
    """Returns why a summary may not be used, or nothing if it may."""
    source_chars = sum(len(exchange.said) + sum(map(len, exchange.answers)) for exchange in exchanges)
    if not summary.strip():
        return ("it is empty",)
    found: list[str] = []
    if len(summary) >= source_chars:
        found.append("it is longer than what it summarises")
    if neutralise(summary) != summary:
        found.append("it holds marks that only the daemon may write")
    contradicted = [item.text for item in items if item.kind is KeptKind.RULE and contradicts(summary, item.text)]
    if contradicted:
        found.append(f"it contradicts a rule: {contradicted[0]}")
    missing = missing_marks(summary, items)
    if missing:
        found.append(f"it leaves out {', '.join(missing[:5])}")
    return tuple(found)


def probes_count(items: Sequence[KeptItem]) -> int:
    return sum(1 for item in items if item.kind is not KeptKind.FACT) + len(_fact_marks(items))


def missing_marks(summary: str, items: Sequence[KeptItem]) -> tuple[str, ...]:
    """Returns the numbers, names and addresses of facts that a summary lacks, if they are too many."""
    marks = _fact_marks(items)
    told = summary.casefold()
    missing = tuple(sorted(mark for mark in marks if mark.casefold() not in told))
    return missing if len(missing) > (1 - FACT_SHARE) * len(marks) else ()


def contradicts(text: str, rule: str) -> bool:
    """Whether a sentence says the opposite of a rule: the same words, with the negation in one of them alone."""
    wanted = _content_words(rule)
    if not wanted:
        return False
    is_negated = _NEGATION.search(rule) is not None
    for sentence in split_sentences(text):
        shared = len(wanted & _content_words(sentence)) / len(wanted)
        if shared >= SAME_WORDS_SHARE and (_NEGATION.search(sentence) is not None) is not is_negated:
            return True
    return False


def _fact_marks(items: Sequence[KeptItem]) -> frozenset[str]:
    return frozenset(mark for item in items if item.kind is KeptKind.FACT for mark in marks_of(item.text))


def _content_words(text: str) -> frozenset[str]:
    return frozenset(word.casefold() for word in _WORD.findall(text)) - _FILLER
