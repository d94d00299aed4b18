"""Texts of items: their normal form, the hash of exactly equal ones, and how alike two are.

Does not own: what follows from that (judge).
Words are what letters and digits make, in any language. Case, punctuation and the order of blanks do not count.
"""

import hashlib
import re
import unicodedata

from palyra.core.memory.model import MemorySource

NEAR_SHARE = 0.9  # Two texts with this share of common words say the same.
NEAR_WORDS_MIN = 4  # Of shorter texts one word is too much of the meaning.

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_BLANKS = re.compile(r"\s+")
_NUMBER = re.compile(r"\d+")
NEGATIONS = frozenset(
    {"not", "no", "never", "cannot", "without", "nicht", "kein", "keine", "pas", "ne", "non", "nunca"}
)


def normalise(content: str) -> str:
    """Returns the text in one form of Unicode, without control characters, with single blanks and no blank at an end."""
    composed = unicodedata.normalize("NFC", content.encode("utf-8", "replace").decode())
    return _BLANKS.sub(" ", "".join(letter if letter.isprintable() else " " for letter in composed)).strip()


def content_hash(content: str, source: MemorySource) -> str:
    """Returns the hash by which an exact duplicate is known.

    The same words at another place of a conversation are another item: they have another speaker, time and context.
    """
    place = ""
    if source.conversation and source.position is not None:
        place = f"{source.conversation}\0{source.position}\0{source.speaker}"
    return hashlib.sha256(f"{normalise(content)}\0{place}".encode("utf-8", "surrogatepass")).hexdigest()


def words_of(content: str) -> tuple[str, ...]:
    return tuple(word.replace("’", "'") for word in _WORD.findall(normalise(content).casefold()))


def is_near(one: str, other: str) -> bool:
    """Tells whether two texts say the same in nearly the same words.

    A number, a negation or a different order of the same words makes another statement.
    """
    first, second = words_of(one), words_of(other)
    if first == second:
        return True
    if min(len(first), len(second)) < NEAR_WORDS_MIN or _marks(first) != _marks(second):
        return False
    shared = len(set(first) & set(second))
    is_alike = shared / len(set(first) | set(second)) >= NEAR_SHARE
    return is_alike and _in_order(first, second) == _in_order(second, first)


def is_negated(words: tuple[str, ...]) -> bool:
    return any(word in NEGATIONS or word.endswith("n't") for word in words)


def _marks(words: tuple[str, ...]) -> tuple[tuple[str, ...], bool]:
    return tuple(word for word in words if _NUMBER.search(word)), is_negated(words)


def _in_order(words: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for word in words if word in others)
