"""A question to memory, taken apart: which words to look for, whom and which time it asks about.

Does not own: the index, how hits are ranked (scores).
The name of a speaker is no word to look for: greetings hold it, answers do not. It says instead whose items are meant,
and the text for the embedder speaks in that person's own voice.
"""

import re
from collections.abc import Iterable

import msgspec

from palyra.core.memory.stop_words import STOP_WORDS
from palyra.core.memory.time_words import Period, asks_for_time, find_period

TEXT_LENGTH_MAX = 2_000  # Of a longer text only the beginning is looked for.
TERMS_MAX = 32  # Each is looked up separately.
TERM_LENGTH_MAX = 64

_WORD = re.compile(r"[^\W_]+")
_ASCII_WORD = re.compile(r"[a-z0-9]+")
# Scripts that put no space between words: each run becomes pairs of neighbouring signs.
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002ffff]+"
)


class MemoryQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """`terms` are looked for by their text, `vector_text` goes to the embedder."""

    terms: tuple[str, ...]
    speakers: frozenset[str] = frozenset()
    vector_text: str = ""
    asks_for_time: bool = False
    period: Period | None = None


def plain_words(text: str) -> list[str]:
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    return _WORD.findall(spaced(text).lower())


def spaced(text: str) -> str:
    """Returns the text as the index takes it: in scripts without spaces, pairs of signs stand for words."""
    text = text.encode("utf-8", "replace").decode().replace("\x00", " ")
    if text.isascii():
        return text
    return _UNSPACED.sub(lambda found: " " + " ".join(_pairs(found[0])) + " ", text)


def _pairs(run: str) -> Iterable[str]:
    return (run[at : at + 2] for at in range(max(1, len(run) - 1)))


def named_words(text: str) -> tuple[str, ...]:
    """Returns the words of a question that may be somebody's name."""
    words = dict.fromkeys(plain_words(text[:TEXT_LENGTH_MAX]))
    return tuple([word for word in words if word not in STOP_WORDS][:TERMS_MAX])


def take_apart(text: str, names: Iterable[tuple[str, str]], at_ms: int) -> MemoryQuestion:
    """Returns what the question asks for. `names` are (word, speaker) of speakers that its words may name."""
    text = text[:TEXT_LENGTH_MAX]
    names = tuple(names)
    name_words = {word for word, _ in names}
    words = list(dict.fromkeys(word[:TERM_LENGTH_MAX] for word in plain_words(text)))
    others = [word for word in words if word not in name_words]
    terms = [word for word in others if word not in STOP_WORDS] or others or words
    return MemoryQuestion(
        terms=tuple(terms[:TERMS_MAX]),
        speakers=frozenset(speaker for _, speaker in names),
        vector_text=_in_first_person(text, name_words),
        asks_for_time=asks_for_time(text),
        period=find_period(text, at_ms),
    )


def _in_first_person(text: str, names: set[str]) -> str:
    if not names:
        return text
    either = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    text = re.sub(rf"\b(?:{either})['’]s?(?!\w)", "my", text, flags=re.IGNORECASE)
    return re.sub(rf"\b(?:{either})\b", "I", text, flags=re.IGNORECASE)
