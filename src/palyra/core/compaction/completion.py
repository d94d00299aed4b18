"""What one sentence says to be done or given up.

Owns: recognising such a sentence, and whether it means a given task. Does not own: whose words count (open_tasks).
The rules are narrow on purpose. A task that stays open too long is looked at once more; one that is closed wrongly is
forgotten. So a question, a condition, a negation, a part or another object leaves every task open.
"""

import re

import msgspec

from palyra.core.memory.text import words_of

TICKS_A_TEXT_MAX = 50

_TICK = re.compile(r"^[ \t>*+\-•\d.)]*(?:\[[xX]\]|[✅☑✓✔])\ufe0f?[ \t]*(\S.*)$", re.MULTILINE)
_ADVERBS = r"(?:(?:now|just|already|finally|all|both)\s+)*"
_CLAIM = re.compile(
    rf"\b(?:i|we)(?:['’]ve|\s+have)?\s+{_ADVERBS}(?P<act>\w+)|\b(?:is|are|was|were|been)\s+{_ADVERBS}(?P<state>\w+)"
    r"|^\W*(?P<first>\w+)\b(?!.*\b(?:is|are|was|were|has|have)\b)",
    re.IGNORECASE,
)
_GIVEN_UP = re.compile(
    r"^(?:(?:ok(?:ay)?|please|so|then|actually|oh|just|let['’]s|(?:we|you)\s+can)\b[,\s]*)*(?:(?:forget|never\s*mind)\b"
    r"(?:\s+about\b)?|(?:drop|skip|scrap|cancel)\s+(?:the|that|this)\s+(?:task|to-?do|reminder)\b)",
    re.IGNORECASE,
)
_UNNEEDED = re.compile(r"\bno\s+(?:longer\s+(?:need|have)|need)\s+to\b", re.IGNORECASE)
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
    r"\b(?:if|when|once|until|unless|soon|will|would|should|could|can|may|might|must|not|never|nobody|nothing|none|without|"
    r"almost|nearly|partly|partially|half|parts?|some|most|only|except|but|yet|still|though|although|however|again|first|"
    r"instead|maybe|perhaps|probably|hopes?|thinks?|wish|wants?|needs?|said|says|claim\w*|missing|wrong|broken?|fail\w*)\b"
    r"|n['’]t\b|\?",
    re.IGNORECASE,
)
# Words like these name one of several places, so that the rest of a task may still be open.
_NARROWED = re.compile(r"\b(?:to|for|on|at|from|with|in)\s+(?:(?:the|an?|our|your|my)\s+)?(\S+)", re.IGNORECASE)
_PATH = re.compile(r"\w?[./_]\w")
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
    "is are be been was were has have had i've we've need needs still todo do open task tasks next step steps later remind "
    "reminder me us remaining please also then soon now just already finally all both done finished completed there no "
    "longer by before after today tomorrow tonight week month monday tuesday wednesday thursday friday saturday sunday "
    "forget never mind x".split()
)


class OpenTask(msgspec.Struct, frozen=True):
    """What a task is about: the roots of its words, and the first of them, which is most often its verb."""

    words: frozenset[str]
    verb: str


def read_task(text: str) -> OpenTask:
    roots = _roots(text)
    return OpenTask(frozenset(roots), roots[0] if roots else "")


def ticked_lines(text: str) -> tuple[str, ...]:
    """Returns the lines of a list that are ticked, with their ticks."""
    found = (match.group(0).strip() for match in _TICK.finditer(text))
    return tuple(line for line, _ in zip(found, range(TICKS_A_TEXT_MAX), strict=False))


def is_closed(sentence: str) -> bool:
    """Whether a sentence that speaks of a task says of it that it is done."""
    return _TICK.match(sentence) is not None or (_CLOSED.search(sentence) is not None and not _DOUBT.search(sentence))


class Closing(msgspec.Struct, frozen=True, kw_only=True):
    """What a sentence says to be over: the roots of its words, those of its verbs, and those that leave doubt.

    `is_whole` says that nothing may be missing from the task, its verb included.
    """

    told: frozenset[str]
    doubts: frozenset[str] = frozenset()
    verbs: frozenset[str] = frozenset()
    is_of_anything: bool = False
    is_whole: bool = False
    is_tick: bool = False


def read_done(sentence: str) -> Closing | None:
    ticked = _TICK.match(sentence)
    if ticked is not None:
        return Closing(told=_named(ticked.group(1)), is_tick=True)
    verbs = _verbs(sentence)
    if not verbs:
        return None
    return Closing(
        told=_named(sentence),
        doubts=_doubts(sentence),
        verbs=frozenset(_root(verb) for verb in verbs - _DONE),
        is_of_anything=not verbs.isdisjoint(_DONE | _CLOSING),
    )


def read_given_up(sentence: str) -> Closing | None:
    """Returns what a sentence says to be wanted no longer."""
    match = _GIVEN_UP.search(sentence) or _UNNEEDED.search(sentence)
    if match is None:
        return None
    doubts = _doubts(sentence.replace(match.group(0), "", 1))
    is_whole = match.re is _UNNEEDED
    return Closing(told=_named(sentence[match.end() :]), doubts=doubts, is_of_anything=True, is_whole=is_whole)


def closes(closing: Closing, task: OpenTask) -> bool:
    """Whether a sentence means this task."""
    if closing.is_tick:
        return bool(task.words) and closing.told == task.words
    if not closing.doubts <= task.words or not (closing.is_of_anything or closing.verbs & task.words):
        return False
    if _names(closing.told, task.words):
        return True
    objects = task.words - {task.verb}
    return not closing.is_whole and len(objects) >= 2 and _names(closing.told, objects)


def is_bare(sentence: str) -> bool:
    """Whether a sentence says of what was named last that it is done or not wanted."""
    return _BARE.match(sentence) is not None


def _verbs(sentence: str) -> frozenset[str]:
    """Returns the words in the past form at the places where a sentence says what was done."""
    found = (next(filter(None, match.groups()), "").casefold() for match in _CLAIM.finditer(sentence))
    return frozenset(verb for verb in found if verb in _IRREGULAR or verb.endswith("ed"))


def _doubts(sentence: str) -> frozenset[str]:
    """Returns the words of doubt, and the places and people that a sentence is limited to. A path limits nothing."""
    found = {_root(match.group(0).casefold()) for match in _DOUBT.finditer(sentence)}
    parts = (match.group(1) for match in _NARROWED.finditer(sentence) if not _PATH.search(match.group(1)))
    return frozenset(found.union(*map(_named, parts)))


def _names(told: frozenset[str], wanted: frozenset[str]) -> bool:
    return bool(wanted) and wanted <= told and len(told - wanted) < len(wanted)


def _named(text: str) -> frozenset[str]:
    return frozenset(_roots(text))


def _roots(text: str) -> tuple[str, ...]:
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
