"""Finds what is worth keeping in what a person said, without a model.

Owns: the patterns and their confidence. Does not own: what is junk (junk), what becomes of a find (thresholds).
A rule reads a person's own words alone. Quoted lines, code and pasted text are somebody else's words, and what came
from outside is not read at all. So nothing that a page or a document says can become a find here. A find still has the
taint of its session: what is found in a tainted run waits for a person.
"""

import re

import msgspec

from palyra.core.compaction.findings import split_sentences
from palyra.core.learning.junk import JunkReason, junk_reason
from palyra.core.learning.model import CandidateKind
from palyra.core.learning.observed_run import ObservedRun, SaidText
from palyra.core.origins import kind_of
from palyra.core.trust import Trust, is_tainting

FINDS_MAX = 10  # Of one run.
OWN_WORDS_MAX = 1_500  # A longer message was pasted. Only its first paragraph counts as the person's own words.
# Their words are no person's, or were written long ago, or put together by a program.
UNATTENDED = frozenset({"routine", "service", "delegation", "v1", "mcp", "webhook"})


class Find(msgspec.Struct, frozen=True, kw_only=True):
    """Something that may become a candidate. `seqs` name the events it was drawn from.

    `is_told` says that a person typed just this as a message of its own. Nothing else is applied without a review.
    """

    kind: CandidateKind
    content: str
    confidence_bps: int
    seqs: tuple[int, ...]
    trust: Trust
    taint: tuple[str, ...] = ()
    details: dict[str, str] = {}
    is_told: bool = False


class Finds(msgspec.Struct, frozen=True, kw_only=True):
    kept: tuple[Find, ...] = ()
    junk_count: int = 0


_QUOTED = re.compile(r"```.*?(```|\Z)|^\s*>.*$|^\s{4,}\S.*$|[\"“„«][^\"”“»]{80,}[\"”“»]", re.DOTALL | re.MULTILINE)
# What follows such words was written by somebody else.
_PASTED = re.compile(
    r"\b(here is|here's|this is|below is|look at|see) (an?|the|this|my)? ?(e-?mail|mail|message|page|article|document"
    r"|letter|log|text|issue|ticket|readme|file)\b.*",
    re.IGNORECASE | re.DOTALL,
)
_REMEMBER = re.compile(
    r"^(?:please\s+)?(?:remember|note|keep in mind|for the record|don't forget|do not forget|merke? dir|pamatuj si)"
    r"(?:\s+that|\s+this)?\s*[:,]?\s+(?P<what>.+)$",
    re.IGNORECASE,
)
_PREFERENCE = re.compile(
    r"\b(i|we) (always |really |generally |usually )?(prefer|like|love|hate|dislike|don't like|do not like|want|need)\b"
    r"|\b(call me|my favou?rite|my preferred)\b",
    re.IGNORECASE,
)
_STANDING = re.compile(
    r"^(?:please )?(from now on|in (the )?future|going forward|always|never|whenever)\b", re.IGNORECASE
)
_NAMED = re.compile(
    r"\bmy name is\b|\b(is|are) (called|named)\b|\bstands for\b"
    r"|\bmy (birthday|e-?mail|phone|address|time ?zone|wife|husband|partner"
    r"|daughter|son|dog|cat|boss|manager|team|company|job|role|account)\b.*\b(is|are)\b",
    re.IGNORECASE,
)
_OF_SELF = re.compile(
    r"\bi('m| am) (allergic|vegan|vegetarian|diabetic|married|divorced|left-handed|colou?r-?blind|intolerant|from)\b"
    r"|\bi (live in|work (as|at|for|in)|grew up|was born|study|studied)\b",
    re.IGNORECASE,
)
_STATED = re.compile(
    r"\b(the|our|my) [\w' -]{2,40} (is|are|lives?|runs?|belongs?|starts?|ends?|uses?|costs?)\b.*\d|\bdeadline\b.*\b(is|:)"
    r"|\b(our|my) [\w' -]{2,40} (is|are|lives?|runs?|uses?|belongs?)\b",
    re.IGNORECASE,
)
_DECIDED = re.compile(
    r"\b(we|i)('ve| have)? (decided|agreed|chose|settled)\b|^decision\s*:|\bit was decided\b", re.IGNORECASE
)
_CHOSEN = re.compile(r"\b(let's|we('ll| will)) (go with|use|take|stick (to|with))\b", re.IGNORECASE)
_WISH = re.compile(r"\b(prefer|like|want|always|never|hate)\b", re.IGNORECASE)


_REMEMBER_THAT = re.compile(r"(?:please\s+)?remember\s+that\s", re.IGNORECASE)
# A person who says "remember that" knows better than a pattern whether something passes, or is meant as an order.
_OVERRULED = frozenset({JunkReason.TRANSIENT, JunkReason.REQUEST, JunkReason.NARRATION, JunkReason.SMALL_TALK})


def find_by_rules(run: ObservedRun) -> Finds:
    """Returns what the person said that is worth keeping, and how many sentences looked so but are junk."""
    if kind_of(run.origin) in UNATTENDED:
        return Finds()
    kept: dict[str, Find] = {}
    junk_count = 0
    for said in run.said:
        for sentence in own_sentences(said):
            found = read_sentence(sentence, said)
            if found is None:
                continue
            reason = junk_reason(found.content, run.known)
            if reason is not None and not (reason in _OVERRULED and _REMEMBER_THAT.match(sentence)):
                junk_count += 1
            elif len(kept) < FINDS_MAX:
                kept.setdefault(found.content.casefold(), msgspec.structs.replace(found, taint=run.taint))
    return Finds(kept=tuple(kept.values()), junk_count=junk_count)


def own_sentences(said: SaidText) -> tuple[str, ...]:
    """Returns a person's own sentences. Text from outside, quoted lines, code and pasted text have none."""
    if is_tainting(said.trust):
        return ()
    text = said.text if len(said.text) <= OWN_WORDS_MAX else said.text.split("\n\n", 1)[0]
    words = _PASTED.sub("", _QUOTED.sub("\n", text))
    return split_sentences(words) if len(text) <= OWN_WORDS_MAX else ()


def is_told_alone(sentence: str, said: SaidText) -> bool:
    """Tells whether a sentence is a whole message that a person typed, or begins one line with the wish to keep it.

    Of a longer message nobody knows which of its sentences the person wrote, and which came with a paste.
    """
    if said.has_more or is_tainting(said.trust):
        return False
    text = said.text.strip()
    is_first = text.startswith(sentence) and "\n" not in text
    return text == sentence or (is_first and _REMEMBER.search(sentence) is not None)


def read_sentence(sentence: str, said: SaidText) -> Find | None:
    """Returns what a sentence says that is worth keeping, junk or not."""
    asked = _REMEMBER.search(sentence)
    if asked is not None:
        content = asked["what"].strip()
        kind = CandidateKind.PREFERENCE if _WISH.search(content) else CandidateKind.FACT
        return _found(kind, content, 9_500, sentence, said)
    for pattern, kind, confidence_bps in _PATTERNS:
        if pattern.search(sentence):
            return _found(kind, sentence, confidence_bps, sentence, said)
    return None


_PATTERNS = (
    (_DECIDED, CandidateKind.DECISION, 9_000),
    (_STANDING, CandidateKind.PREFERENCE, 9_000),
    (_PREFERENCE, CandidateKind.PREFERENCE, 8_500),
    (_NAMED, CandidateKind.FACT, 9_000),
    (_CHOSEN, CandidateKind.DECISION, 8_000),
    (_OF_SELF, CandidateKind.FACT, 8_500),
    (_STATED, CandidateKind.FACT, 7_500),
)


def _found(kind: CandidateKind, content: str, confidence_bps: int, sentence: str, said: SaidText) -> Find:
    is_told = is_told_alone(sentence, said)
    return Find(
        kind=kind, content=content, confidence_bps=confidence_bps, seqs=(said.seq,), trust=said.trust, is_told=is_told
    )
