"""Token counts by bundled vocabularies (splintr).

Owns: which vocabulary belongs to which model, and remembering counts. Does not own: what is counted.
A model whose vocabulary is not bundled is counted with that of recent OpenAI models, plus a margin that was measured on
English, German, code and JSON. Nothing is downloaded.
"""

import asyncio
import re
from collections.abc import Sequence
from functools import cache
from typing import Protocol

TEXTS_REMEMBERED_MAX = 20_000
INLINE_CHARS_MAX = 4_000  # About a millisecond; longer texts are counted in a thread.

# The first pattern that matches a model's id decides. The id of a model may have a vendor in front of it.
_VOCABULARIES: tuple[tuple[re.Pattern[str], str, float], ...] = (
    (re.compile(r"gpt-(3\.5|4)(-turbo|-\d{4}|-32k|$)"), "cl100k_base", 1.0),
    (re.compile(r"gpt-|chatgpt|(^|/)o\d"), "o200k_base", 1.0),
    (re.compile(r"llama-?3"), "llama3", 1.0),
    (re.compile(r"deepseek"), "deepseek_v3", 1.0),
    (re.compile(r"mistral|mixtral|codestral"), "mistral_v3", 1.0),
    (re.compile(r"phi-?4"), "phi4", 1.0),
)
_OTHERS = ("o200k_base", 1.15)


class _Vocabulary(Protocol):
    def encode_ordinary(self, text: str) -> list[int]: ...


class BundledVocabularies:
    """`ids` gives the wire id of each configured model, which says more than the name that the operator chose."""

    def __init__(self, ids: dict[str, str]) -> None:
        self._ids = ids
        self._counts: dict[tuple[str, str], int] = {}
        self._loaded: set[str] = set()

    async def count(self, model: str, texts: Sequence[str]) -> list[int]:
        name, factor = choose_vocabulary(self._ids.get(model, model))
        unknown = [text for text in texts if (name, text) not in self._counts]
        if name not in self._loaded or sum(map(len, unknown)) > INLINE_CHARS_MAX:
            # Loading a vocabulary takes a tenth of a second.
            await asyncio.to_thread(self._learn, name, unknown)
        else:
            self._learn(name, unknown)
        counted = [round(self._counts[name, text] * factor) for text in texts]
        while len(self._counts) > TEXTS_REMEMBERED_MAX:
            del self._counts[next(iter(self._counts))]
        return counted

    def _learn(self, name: str, texts: Sequence[str]) -> None:
        vocabulary = _load(name)
        self._loaded.add(name)
        for text in texts:
            self._counts[name, text] = len(vocabulary.encode_ordinary(text)) if text else 0


def choose_vocabulary(model_id: str) -> tuple[str, float]:
    """Returns the vocabulary for a model, and by how much its counts are raised."""
    lowered = model_id.lower()
    for pattern, name, factor in _VOCABULARIES:
        if pattern.search(lowered):
            return name, factor
    return _OTHERS


@cache
def _load(name: str) -> _Vocabulary:
    import splintr

    vocabulary: _Vocabulary = splintr.Tokenizer.from_pretrained(name)
    return vocabulary
