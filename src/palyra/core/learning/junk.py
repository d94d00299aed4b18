"""Junk: texts that are never worth keeping.

Owns: why a text is junk. Does not own: what is worth keeping (rules, reflection).
Memory that is full of junk is the common complaint about agents that learn. Most of it is of four kinds: instructions
that the agent was given anyway, states that are over in an hour, small talk, and remembered text that comes back.
"""

import re
from collections.abc import Iterable, Sequence
from enum import Enum

from palyra.core.learning.identity import normalise

WORDS_MIN = 3
CHARS_MAX = 600  # A longer text is a story, not a fact.
OVERLAP = 0.75  # How many of a text's words must stand in one sentence that was known, for it to be a repetition.


class JunkReason(Enum):
    SHORT = "short"
    LONG = "long"
    QUESTION = "question"
    SMALL_TALK = "small_talk"
    TRANSIENT = "transient"
    REQUEST = "request"
    NARRATION = "narration"
    HEARTBEAT = "heartbeat"
    RESTATED = "restated"


_WORD = re.compile(r"[^\W_]{2,}")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_SMALL_TALK = re.compile(
    r"^(hi|hello|hey|thanks?|thank you|ok(ay)?|good (morning|evening|night|afternoon)|great|cool|nice|perfect|awesome"
    r"|bye|see you|you're welcome|no problem|sounds good|lol|haha|how are you|well done|sure|yes|no|yep|nope)\b"
    r"(?!.*\b(remember|prefer|decided|always|never|called|my)\b)",
    re.IGNORECASE,
)
_TRANSIENT = re.compile(
    r"\b(currently|right now|at the moment|just now|for now|today|tonight|this (morning|afternoon|evening)|tomorrow"
    r"|yesterday|in progress|is running|is (down|up|failing|broken|building|pending|busy|slow)|are failing"
    r"|still (fails|running|open)"
    r"|(tests?|build|pipeline|deploy\w*|server|job|ci) (is|are|was|were|has|have|failed|passed|passes|fails)"
    r"|(ticket|pull request|pr|branch|issue) #?\d* ?(is|was) (open|closed|merged|pending)"
    r"|in \d+ (minutes?|hours?)|\d+ ?% (done|complete)|waiting for|the weather"
    r"|it is \d{1,2}:\d\d|i am (tired|hungry|busy|late|at|in|on))\b",
    re.IGNORECASE,
)
_REQUEST = re.compile(
    r"^(please |now |then |and )?(can|could|would|will) you\b"
    r"|^(i|we)( also| just| really)? (want|need|would like|'d like) (you|to|the|an?|this|that|these|it|some|help|more)\b"
    r"|^(please )?(show|tell|list|find|write|read|open|run|check|fix|make|create|add"
    r"|summari[sz]e|explain|translate|look|search|give|send|help|continue|go|try|stop|delete|remove|rename|update|review|draft|compare|fetch|get"
    r"|download|install|build|deploy|call (?!me\b)|book|print|ask|use this|have a look|see (if|whether)|do (it|this|that))\b",
    re.IGNORECASE,
)
_NARRATION = re.compile(
    r"^(i('ll| will)\b|let me\b|i('m| am)( now| just)? (going to|about to|done|ready|\w+ing (the|it|this|your|for|on)\b)"
    r"|i('ve| have)( now| just| already)? (updated|run|ran|read|checked|fixed|added|written|created|finished|completed|done"
    r"|removed|deleted|looked|changed|renamed|tested|opened|listed|searched|sent|saved|installed|implemented)\b"
    r"|the (user|assistant|agent) (asked|said|wants|requested|greeted|thanked|is|was)\b"
    r"|here (is|are)\b|done\b|sure\b)",
    re.IGNORECASE,
)
_REACTION = re.compile(
    r"^(i|we)( really)? (like|love|hate|dislike|don't like) (this|that|it|the|your|how|when)\b", re.I
)
_HEARTBEAT = re.compile(
    r"heartbeat|\bHEARTBEAT_OK\b|nothing (new|to report|needs attention)|all (is )?(quiet|well)\W*$", re.IGNORECASE
)


def junk_reason(text: str, known: Sequence[str]) -> JunkReason | None:
    """Returns why a text is not worth keeping, or None. `known` are texts that the run was given."""
    said = " ".join(text.split())
    words = _WORD.findall(said)
    if len(words) < WORDS_MIN:
        return JunkReason.SHORT
    if len(said) > CHARS_MAX:
        return JunkReason.LONG
    for reason, found in (
        (JunkReason.QUESTION, said.endswith("?")),
        (JunkReason.HEARTBEAT, _HEARTBEAT.search(said)),
        (JunkReason.SMALL_TALK, _SMALL_TALK.search(said) or _REACTION.search(said)),
        (JunkReason.TRANSIENT, _TRANSIENT.search(said)),
        (JunkReason.REQUEST, _REQUEST.search(said)),
        (JunkReason.NARRATION, _NARRATION.search(said)),
    ):
        if found:
            return reason
    return JunkReason.RESTATED if is_restated(said, known) else None


def without_junk(text: str, known: Sequence[str]) -> str:
    """Returns the sentences of a text that are worth keeping. Junk around a fact does not come along with it."""
    sentences = [sentence.strip() for sentence in _SENTENCE.split(text) if sentence.strip()]
    return " ".join(sentence for sentence in sentences if junk_reason(sentence, known) is None)


def is_restated(text: str, known: Iterable[str]) -> bool:
    """Tells whether one sentence of what was known says the same, in the same or in almost the same words."""
    wanted = content_words(text)
    if not wanted:
        return True
    for other in known:
        for sentence in _SENTENCE.split(other):
            shared = len(wanted & content_words(sentence))
            if shared / len(wanted) >= OVERLAP:
                return True
    return False


def content_words(text: str) -> frozenset[str]:
    return frozenset(word for word in _WORD.findall(normalise(text)) if word not in _FILLER)


_FILLER = frozenset(
    "the a an and or of to in on at is are was were be been it its this that these those for with as by from you your "
    "we our i me my they their he she his her do does did not have has had will would should can could may please".split()
)
