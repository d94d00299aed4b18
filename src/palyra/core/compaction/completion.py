"""What one sentence says to be done or given up.

Owns: recognising such a sentence, and whether it means a given task. Does not own: whose words count (open_tasks).
The rules are narrow on purpose. A task that stays open too long is looked at once more; one that is closed wrongly is
forgotten. So a question, a condition, a negation, a part or another object leaves every task open.
"""

import re

from palyra.core.memory.text import words_of

TICKS_A_TEXT_MAX = 50

_TICK = re.compile(r"^[ \t>*+\-•\d.)]*(?:\[[xX]\]|[✅☑✓✔])\ufe0f?[ \t]*(\S.*)$", re.MULTILINE)
_ADVERBS = r"(?:(?:now|just|already|finally|all|both)\s+)*"
_CLAIM = re.compile(
    rf"\b(?:i|we)(?:['’]ve|\s+have)?\s+{_ADVERBS}(?P<act>\w+)|\b(?:is|are|was|were|been)\s+{_ADVERBS}(?P<state>\w+)"
    r"|^\W*(?P<first>\w+)",
    re.IGNORECASE,
)
_GIVEN_UP = re.compile(
    r"\b(?:forget|never\s*mind)\b(?:\s+about\b)?|\b(?:drop|skip|scrap|cancel)\s+(?:the|that|this)\s+(?:task|to-?do|reminder)\b"
    r"|\bno\s+(?:longer\s+(?:need|have)|need)\s+to\b",
    re.IGNORECASE,
)
_BARE = re.compile(
    r"^(?:(?:ok(?:ay)?|yes|great|so|please|actually|oh)\b[,\s]*)?(?:(?:(?:that|this|it)(?:['’]s|\s+is|\s+has\s+been)\s+)?"
    rf"{_ADVERBS}(?:done|finished|completed)(?:\s+now)?|(?:forget\s+(?:about\s+)?(?:that|it|this)|never\s*mind(?:\s+that)?))"
    r"\W*$",
    re.IGNORECASE,
)
_CLOSED = re.compile(
    rf"\b(?:to-?do|task|step)\b[^:]*\b(?:is|are|was|were|been)\s+{_ADVERBS}(?:done|finished|completed)\W*$",
    re.IGNORECASE,
)
_DOUBT = re.compile(
    r"\b(?:if|when|once|until|unless|will|would|should|could|can|may|might|must|not|never|nobody|nothing|almost|nearly|"
    r"partly|partially|half|part|parts|some|most|only|except|but|first|maybe|perhaps|probably|hope|think)\b|n['’]t\b|\?",
    re.IGNORECASE,
)
# What is left of these verbs in a sentence about anything says that it is done.
_DONE = frozenset("done finished completed".split())
_CLOSING = frozenset("fixed implemented resolved solved closed shipped merged".split())
_IRREGULAR = dict(
    pair.split(":")
    for pair in (
        "wrote:write written:write sent:send made:make built:build bought:buy paid:pay told:tell found:find got:get "
        "ran:run did:do done:do spoke:speak spoken:speak taught:teach brought:bring chose:choose chosen:choose gave:give "
        "given:give took:take taken:take met:meet left:leave kept:keep drew:draw drawn:draw began:begin begun:begin"
    ).split()
)
_FILLER = frozenset(
    "a an the of for to in on at and or with about from we i you he she they it our my your their this that these those "
    "is are be been was were has have had 've need needs still todo do open task tasks next step steps later remind "
    "reminder me us remaining please also then soon now just already finally all both done finished completed there no "
    "longer by before after today tomorrow tonight week month monday tuesday wednesday thursday friday saturday sunday "
    "forget never mind x".split()
)


def ticked_lines(text: str) -> tuple[str, ...]:
    """Returns the lines of a list that are ticked, with their ticks."""
    found = (match.group(0).strip() for match in _TICK.finditer(text))
    return tuple(line for line, _ in zip(found, range(TICKS_A_TEXT_MAX), strict=False))


def is_closed(sentence: str) -> bool:
    """Whether a sentence that speaks of a task says of it that it is done."""
    return _TICK.match(sentence) is not None or (_CLOSED.search(sentence) is not None and not _DOUBT.search(sentence))


def completes(sentence: str, task: str) -> bool:
    """Whether a sentence says that this task is done."""
    wanted = _named(task)
    ticked = _TICK.match(sentence)
    if ticked is not None:
        return bool(wanted) and set(wanted) == set(_named(ticked.group(1)))
    if _DOUBT.search(sentence):
        return False
    roots = {_root(verb) for verb in _verbs(sentence) - _DONE}
    is_told = bool(_verbs(sentence) & (_DONE | _CLOSING)) or not roots.isdisjoint(wanted)
    return is_told and _means(sentence, wanted)


def gives_up(sentence: str, task: str) -> bool:
    """Whether a sentence says that this task need not be done."""
    match = _GIVEN_UP.search(sentence)
    if match is None or _DOUBT.search(sentence.replace(match.group(0), "", 1)):
        return False
    return _means(sentence[match.end() :], _named(task))


def is_bare(sentence: str) -> bool:
    """Whether a sentence says of what was named last that it is done or not wanted."""
    return _BARE.match(sentence) is not None


def weight_of(task: str) -> int:
    """Returns how narrow a task is: of two that a sentence may mean, it means the narrower one."""
    return len(set(_named(task)))


def _verbs(sentence: str) -> frozenset[str]:
    """Returns the words in the past form at the places where a sentence says what was done."""
    found = (next(filter(None, match.groups()), "").casefold() for match in _CLAIM.finditer(sentence))
    return frozenset(verb for verb in found if verb in _IRREGULAR or verb.endswith("ed"))


def _means(sentence: str, wanted: tuple[str, ...]) -> bool:
    """Whether a sentence names what a task is about. Its verb may be missing if two other words are there."""
    told = set(_named(sentence))
    missing, added = set(wanted) - told, told - set(wanted)
    is_named = not missing or (missing == {wanted[0]} and len(set(wanted)) >= 3)
    return bool(wanted) and is_named and len(added) < max(len(set(wanted)), 1)


def _named(text: str) -> tuple[str, ...]:
    """Returns the roots of the words that say what a text is about."""
    return tuple(_root(word) for word in words_of(text) if word not in _FILLER)


def _root(word: str) -> str:
    """Returns a form that a word has in common with its plural and its past form."""
    word = _IRREGULAR.get(word, word)
    for ending in ("ing", "ied", "ies", "ed", "es", "s", "e", "y"):
        if word.endswith(ending) and len(word) > len(ending) + 2:
            word = word[: -len(ending)]
            break
    return word[:-1] if len(word) > 2 and word[-1] == word[-2] else word
