"""Probes: questions that a summary must be able to answer before it may take the place of a conversation.

Owns: making probes from what must not be lost, and checking a summary against them.
A summary that fails is not committed. The rules alone then make one, which keeps the sentences themselves.
"""

import re
from collections.abc import Sequence

import msgspec

from palyra.core.compaction.findings import marks_of, split_sentences
from palyra.core.compaction.model import Exchange, KeptItem, KeptKind, ProbeResult
from palyra.core.compaction.superseded import replaces
from palyra.core.fences import neutralise

FACT_SHARE = 0.8  # How many of the marks in facts a summary must hold: some facts are superseded by later ones.
_NEGATION = re.compile(
    r"\b(not|never|no|don['’]t|without|nicht|nie|niemals|kein\w*|nikdy|není|nelze|nesmí\w*|nemá\w*)\b|n['’]t\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d_]\w{3,}")
_QUANTITY = re.compile(
    r"(?<![\w.-])\d[\d.,]*(?=%|\s+[^\W\d_])"
)  # A number before a noun; one behind it names something.
_DIGIT = re.compile(r"\d")
_FILLER = frozenset(
    "always never must should please from with that this these those have will would they them then than when what "
    "which there their about into your only also just more most some such each".split()
)
SAME_WORDS_SHARE = 0.8
_ALL_IS_DONE = re.compile(
    r"\b(?:nothing\s+(?:is\s+|else\s+)?(?:left|open|pending|remains|to\s+do)|no\s+(?:open\s+|pending\s+)?"
    r"(?:tasks?|questions?|approvals?)\s+(?:is|are|remain\w*|left|open|pending)"
    r"|(?:all|every(?:thing)?)\s+(?:open\s+)?(?:tasks?\s+)?(?:is|are|was|were|has\s+been|have\s+been)\s+(?:done|finished|complete\w*))\b",
    re.IGNORECASE,
)
_REFUSALS = (
    (("pin", "rule"), "it contradicts a rule"),
    (("task",), "it loses an open task"),
    (("decision",), "it loses a decision"),
    (("pending",), "it says that nothing is open, but a call waits"),
)
PROSE_KINDS = frozenset({KeptKind.FACT})  # A summary in prose may stand for these; others are kept word for word.


class SummaryProposal(msgspec.Struct, frozen=True, kw_only=True):
    """A summary that may be used: `items` must not be lost, `kept` would be shown beside it.

    `pins` are the pinned texts, and `pending` names the tools whose calls wait for an answer or run.
    """

    summary: str
    items: Sequence[KeptItem]
    kept: Sequence[KeptItem]
    pins: Sequence[str] = ()
    pending: Sequence[str] = ()


def run_probes(proposal: SummaryProposal) -> tuple[ProbeResult, ...]:
    summary, told = proposal.summary, proposal.summary.casefold()
    kept = {(item.kind, item.text) for item in proposal.kept}
    says_all_is_done = _ALL_IS_DONE.search(summary) is not None
    results = [_result("pin", pin, not contradicts(summary, pin)) for pin in proposal.pins]
    results += [_result("pending", tool, not says_all_is_done) for tool in proposal.pending]
    for item in proposal.items:
        is_shown = (item.kind, item.text) in kept or _is_told(summary, item.text)
        if item.kind is KeptKind.RULE:
            results.append(_result("rule", item.text, not contradicts(summary, item.text)))
        elif item.kind is KeptKind.TASK:
            results.append(_result("task", item.text, is_shown and not says_all_is_done))
        elif item.kind is KeptKind.DECISION:
            results.append(_result("decision", item.text, is_shown))
    marks = sorted(_fact_marks(proposal.items))
    return (*results, *(_result("fact", mark, mark.casefold() in told) for mark in marks))


def refuse_summary(proposal: SummaryProposal, exchanges: Sequence[Exchange]) -> tuple[str, ...]:
    """Returns why a summary may not be used, or nothing if it may."""
    summary = proposal.summary
    source_chars = sum(len(exchange.said) + sum(map(len, exchange.answers)) for exchange in exchanges)
    if not summary.strip():
        return ("it is empty",)
    found: list[str] = []
    if len(summary) >= source_chars:
        found.append("it is longer than what it summarises")
    if neutralise(summary) != summary:
        found.append("it holds marks that only the daemon may write")
    failed = [result for result in run_probes(proposal) if not result.is_passed]
    for kinds, words in _REFUSALS:
        about = next((result.about for result in failed if result.kind in kinds), None)
        if about is not None:
            found.append(f"{words}: {about}")
    missing = missing_marks(summary, proposal.items)
    if missing:
        found.append(f"it leaves out {', '.join(missing[:5])}")
    return tuple(found)


def missing_marks(summary: str, items: Sequence[KeptItem]) -> tuple[str, ...]:
    """Returns the numbers, names and addresses of facts that a summary lacks, if they are too many."""
    marks = _fact_marks(items)
    told = summary.casefold()
    missing = tuple(sorted(mark for mark in marks if mark.casefold() not in told))
    return missing if len(missing) > (1 - FACT_SHARE) * len(marks) else ()


def contradicts(text: str, rule: str) -> bool:
    """Whether a sentence says the opposite of a rule, or gives what the rule sets another value."""
    return any(replaces(sentence, rule) or _alters(sentence, rule) for sentence in split_sentences(text))


def _alters(sentence: str, rule: str) -> bool:
    """Whether a sentence has the words of a rule, with the negation in one of them alone, or with other quantities."""
    wanted, told = _content_words(rule), _content_words(sentence)
    named = {word for word in wanted if _DIGIT.search(word)}
    if not wanted or not named <= told or len(wanted & told) / len(wanted) < SAME_WORDS_SHARE:
        return False
    if (_NEGATION.search(sentence) is None) is not (_NEGATION.search(rule) is None):
        return True
    counts, told_counts = set(_QUANTITY.findall(rule)), set(_QUANTITY.findall(sentence))
    return bool(counts and told_counts) and counts.isdisjoint(told_counts)


def _result(kind: str, about: str, is_passed: bool) -> ProbeResult:
    return ProbeResult(kind=kind, about=about, is_passed=is_passed)


def _is_told(summary: str, text: str) -> bool:
    wanted = _content_words(text)
    return bool(wanted) and len(wanted & _content_words(summary)) / len(wanted) >= SAME_WORDS_SHARE


def _fact_marks(items: Sequence[KeptItem]) -> frozenset[str]:
    return frozenset(mark for item in items if item.kind is KeptKind.FACT for mark in marks_of(item.text))


def _content_words(text: str) -> frozenset[str]:
    return frozenset(word.casefold() for word in _WORD.findall(text)) - _FILLER
