"""Finds the sentences of a conversation that must not be lost: rules, decisions, open tasks, facts.

Owns: how such sentences are recognised. Does not own: how many of them are kept (plan).
A rule is taken from people only, never from text that came from outside or was pasted. Facts are recognised without knowing the
language, by what cannot be guessed again: numbers, names, addresses, paths and quoted words.
"""

import re
from collections.abc import Iterable

from palyra.core.compaction.completion import is_closed
from palyra.core.compaction.model import Exchange, KeptItem, KeptKind
from palyra.core.trust import Trust, is_tainting, lowest

SENTENCE_CHARS_MAX = 1_000
SENTENCES_A_TEXT_MAX = 400

_SENTENCE_END = re.compile(r"(?<=[.!?\u3002\uff01\uff1f])\s+|\n+")
_RULE = re.compile(
    r"\b(?:always|never|must|mustn['’]t|(?:do|may|shall)\s+not|don['’]t|from\s+now\s+on|no\s+matter|at\s+all\s+times|"
    r"under\s+no\s+circumstances|make\s+sure|ensure|forbidden|prohibited|mandatory|not\s+allowed|"
    r"immer|niemals|nie|darf|muss|vždy|nikdy|nesmí\w*|musí\w*)\b|\b(?:rule|regel|pravidlo)\b[^:.]{0,20}:",
    re.IGNORECASE,
)
_DECISION = re.compile(
    r"\b(decided?|decision|we(?:['’]ll|\s+will)\s+(?:use|go|take)|let['’]s\s+(?:go|use|take)|agreed|we\s+chose|settled\s+on)\b",
    re.IGNORECASE,
)
_TASK = re.compile(
    r"\b(?:todo|to-do|still\s+(?:need|have)\s+to|open\s+task|next\s+step|remind\s+me|later\s+we)\b|\bremaining\s*:|^\[ \]\s",
    re.IGNORECASE,
)
_STEPS = re.compile(
    r"\b(?:first|zuerst|nejdřív)\b.{3,}\b(?:then|afterwards|dann|pak)\b|\b(?:steps|procedure|how\s+to)\b[^.]{0,60}:",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d[.,:/-]?\d")  # A single digit counts something; two and more name something.
_ADDRESS = re.compile(
    r"https?://|[\w.+-]+@[\w-]+\.\w|(?:^|\s)[~/.][\w./-]{3,}|\b\w+\.(?:py|md|toml|json|txt|csv|sql|ts|rs|go)\b"
)
_QUOTED = re.compile(r"\"[^\"]{2,}\"|'[^']{3,}'|`[^`]+`|„[^“]+“|«[^»]+»")
_NAME = re.compile(r"(?<=[a-z,;:] )[A-ZÀ-Ž][\w'-]{2,}")
_REMEMBER = re.compile(
    r"\b(remember|note|my\s+name|is\s+called|called|deadline|password\s+hint|prefer)\b", re.IGNORECASE
)


def find_items(exchange: Exchange) -> tuple[KeptItem, ...]:
    """Returns what one exchange says that must not be lost, in the order it was said."""
    own = None if exchange.typed is None else frozenset(split_sentences(exchange.typed))
    found = [_item(each, exchange, own is None or each in own) for each in split_sentences(exchange.said)]
    return tuple(item for item in found if item is not None)


def split_sentences(text: str) -> tuple[str, ...]:
    parts = (part.strip(" \t-*•>") for part in _SENTENCE_END.split(text))
    whole = [part for part in parts if 3 <= len(part) <= SENTENCE_CHARS_MAX]
    return tuple(whole[:SENTENCES_A_TEXT_MAX])


def marks_of(text: str) -> frozenset[str]:
    """Returns the numbers, names, addresses and quoted words of a text, which a summary cannot guess."""
    found: set[str] = set(re.findall(r"\d[\d.,:/-]*\d", text))
    found |= {word.strip(".,;:") for word in _NAME.findall(text)}
    found |= {match.group(0).strip() for match in _ADDRESS.finditer(text)}
    return frozenset(mark for mark in found if mark)


def tells_steps(text: str) -> bool:
    """Whether a sentence says how something is done, step by step."""
    return _STEPS.search(text) is not None


def lowest_trust(exchanges: Iterable[Exchange]) -> Trust:
    return lowest(exchange.trust for exchange in exchanges)


def _item(sentence: str, exchange: Exchange, is_own: bool) -> KeptItem | None:
    kind = _kind(sentence, exchange)
    if kind is None:
        return None
    if not is_own:
        kind = KeptKind.FACT  # What a paste says was said. Nothing was decided, ordered or left to do by it.
    return KeptItem(kind=kind, text=sentence, place=exchange.place, trust=exchange.said_trust)


def _kind(sentence: str, exchange: Exchange) -> KeptKind | None:
    is_persons = not is_tainting(exchange.said_trust)
    is_question = sentence.endswith("?")
    if is_persons and not is_question and _RULE.search(sentence):
        return KeptKind.RULE
    if not is_question and _DECISION.search(sentence):
        return KeptKind.DECISION
    if _TASK.search(sentence) and not is_closed(sentence):
        return KeptKind.TASK
    if not is_question and _is_fact(sentence):
        return KeptKind.FACT
    return None


def _is_fact(sentence: str) -> bool:
    patterns = (_NUMBER, _ADDRESS, _QUOTED, _NAME, _REMEMBER, _STEPS)
    return any(pattern.search(sentence) for pattern in patterns)
