"""Contradictions: when a new statement takes the place of an earlier one.

Owns: finding the earlier statement among those of the same owner, scope and kind.
Does not own: writing it (engine.api.memory), nor what a less trusted statement may do (judge).
The rules are narrow on purpose. Two statements that are both kept cost little; one that is replaced wrongly is lost to
the agent, although its history stays.
"""

import re
from collections.abc import Iterable

from palyra.core.memory.model import MemoryItem, MemoryKind
from palyra.core.memory.text import NEGATIONS, is_near, is_negated, words_of
from palyra.core.memory.time_words import MONTHS, has_time_words

# Only statements can contradict each other. Notes and procedures are kept beside each other.
CONTRADICTING = frozenset({MemoryKind.FACT, MemoryKind.PREFERENCE, MemoryKind.DECISION})
VALUE_WORDS_MAX = 6  # A longer value is a description, and two descriptions may both hold.

_STATEMENT = re.compile(
    r"^(?P<subject>.{1,80}?)(?P<verb>\s*[:=]\s*|\s(?:lives? in|moved to|works? (?:at|for)|prefers?"
    r"|(?:am|is|are|was|were)(?: now| set to| changed to)?)\s)(?P<value>.+)$",
    re.IGNORECASE,
)
_VERBS = {"moved": "live", "lives": "live", "live": "live", "works": "work", "work": "work"}
# `is` says many things of one subject. After these words it says one of them, which has one value at a time.
_RELATIONS = re.compile(
    r"^(?P<relation>called|named|(?:located |based )?in|at|due(?: on| by)?|on)\s+(?P<value>.+)$", re.I
)
_SEVERAL = re.compile(r"^(?:an?|with|for|from|about|to|of|by|like|very|also|the kind)\b", re.I)
_OWNED = re.compile(r"^(?:the|my|our|their|his|her|your)\s|['’]s\s", re.I)
_PROPERTY = re.compile(
    r"\b(?:favou?rite|preferred|default)\b|\b(?:colou?r|name|birthday|e-?mail|address|phone|number|time ?zone|password"
    r"|port|deadline|version|url|size|language|currency|price|limit|budget|title|day|date)$",
    re.I,
)
_DATE_WORDS = frozenset({*MONTHS, *(f"{day}day" for day in "mon tues wednes thurs fri satur sun".split())})


def find_contradicted(content: str, kind: MemoryKind, others: Iterable[MemoryItem]) -> MemoryItem | None:
    """Returns the first of the others that the new content contradicts."""
    if kind not in CONTRADICTING:
        return None
    return next((other for other in others if other.kind is kind and contradicts(content, other.content)), None)


def contradicts(new: str, old: str) -> bool:
    """Tells whether both cannot hold: the same property has another value, or one denies what the other says."""
    if is_near(new, old):
        return False
    return _has_other_value(new, old) or _denies(words_of(new), words_of(old))


def _has_other_value(new: str, old: str) -> bool:
    said, said_before = _split(new), _split(old)
    if said is None or said_before is None or said[0] != said_before[0]:
        return False
    value, value_before = said[1], said_before[1]
    return value != value_before and max(len(value), len(value_before)) <= VALUE_WORDS_MAX


def _split(content: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Returns the words of a property that has one value at a time, and the words of its value."""
    found = _STATEMENT.match(content.strip().rstrip(".!"))
    if found is None:
        return None
    subject, value = found["subject"], found["value"]
    verb = words_of(found["verb"])
    if verb[:1] == ("prefers",) or verb[:1] == ("prefer",):
        return (*words_of(subject), "prefer", *words_of(value)[1:][-1:]), words_of(value)
    if verb and verb[0] in _VERBS:
        return (*words_of(subject), _VERBS[verb[0]]), words_of(value)
    if related := _RELATIONS.match(value):
        relation = related["relation"].lower().split()
        of_time = "time" if has_time_words(related["value"]) else ""
        return (*words_of(subject), relation[-1] if "in" in relation else relation[0], of_time), words_of(
            related["value"]
        )
    shape = ("plain",) if not verb else _shape(subject, value)
    return None if shape is None else ((*words_of(subject), "is", *shape), words_of(value))


def _shape(subject: str, value: str) -> tuple[str, ...] | None:
    """Returns of which sort a value after `is` is. Of two sorts both may hold; of no sort, anything beside it may."""
    if _SEVERAL.match(value):
        return None
    words = words_of(value)
    if _PROPERTY.search(subject):
        return ("plain",)
    if any(letter.isdigit() for letter in value):
        units = [word for word in words if word not in _DATE_WORDS and not any(map(str.isdigit, word))]
        return ("number", *units)
    return ("name",) if value[:1].isupper() and _OWNED.search(subject) else None


def _denies(new: tuple[str, ...], old: tuple[str, ...]) -> bool:
    if is_negated(new) == is_negated(old):
        return False
    return _bare(new) == _bare(old) and len(_bare(new)) >= 3


def _bare(words: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the words without what negates them."""
    auxiliary = {"do", "does", "did", "is", "are", "longer", "any", "anymore"}
    stems = [word.removesuffix("n't") for word in words if word not in NEGATIONS]
    return tuple(stem.removesuffix("s") for stem in stems if stem not in auxiliary)
