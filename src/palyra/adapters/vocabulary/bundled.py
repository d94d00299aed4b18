"""Token counts by bundled vocabularies (splintr).

Owns: which vocabulary belongs to which model, and remembering counts. Does not own: what is counted.
A model whose vocabulary is not bundled is counted with that of recent OpenAI models, plus a margin that was measured on
English, German, code and JSON. Nothing is downloaded.
"""

import asyncio
import re
import threading
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Protocol

COUNTS_REMEMBERED_MAX = 50_000  # About 8 MB, however long the texts are.
MODELS_REMEMBERED_MAX = 1_024
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
_loading = threading.Lock()


_Key = tuple[str, int, int]


class _Vocabulary(Protocol):
    def encode_ordinary(self, text: str) -> list[int]: ...


class BundledVocabularies:
    """`ids` gives the wire id of each configured model, which says more than the name that the operator chose."""

    def __init__(self, ids: dict[str, str]) -> None:
        self._ids = ids
        self._counts: dict[_Key, int] = {}
        self._loaded: set[str] = set()

    async def count(self, model: str, texts: Sequence[str]) -> list[int]:
        name, factor = choose_vocabulary(self._ids.get(model, model))
        keys = [_key(name, text) for text in texts]
        counts = self._counts
        unknown = {key: text for key, text in zip(keys, texts, strict=True) if key not in counts}
        if unknown:
            # Others may push counts out while a thread counts, so these come from here.
            counts = {key: counts[key] for key in keys if key in counts} | await self._learn(name, unknown)
        return [round(counts[key] * factor) for key in keys]

    async def _learn(self, name: str, unknown: dict[_Key, str]) -> dict[_Key, int]:
        if name not in self._loaded or sum(map(len, unknown.values())) > INLINE_CHARS_MAX:
            # Loading a vocabulary takes a tenth of a second.
            learned = await asyncio.to_thread(_count, name, unknown)
        else:
            learned = _count(name, unknown)
        self._loaded.add(name)
        self._remember(learned)
        return learned

    def _remember(self, learned: dict[_Key, int]) -> None:
        self._counts |= learned
        while len(self._counts) > COUNTS_REMEMBERED_MAX:
            del self._counts[next(iter(self._counts))]


@lru_cache(MODELS_REMEMBERED_MAX)
def choose_vocabulary(model_id: str) -> tuple[str, float]:
    """Returns the vocabulary for a model, and by how much its counts are raised."""
    lowered = model_id.lower()
    for pattern, name, factor in _VOCABULARIES:
        if pattern.search(lowered):
            return name, factor
    return _OTHERS


def _count(name: str, texts: dict[_Key, str]) -> dict[_Key, int]:
    with _loading:  # The first runs of a daemon come together, and each vocabulary takes 60 MB.
        vocabulary = _load(name)
    return {key: len(vocabulary.encode_ordinary(text)) if text else 0 for key, text in texts.items()}


def _key(name: str, text: str) -> _Key:
    """Stands for a text without holding it. Python keeps a string's hash, and its key is drawn for each process."""
    return name, hash(text), len(text)


@cache
def _load(name: str) -> _Vocabulary:
    import splintr

    vocabulary: _Vocabulary = splintr.Tokenizer.from_pretrained(name)
    return vocabulary
