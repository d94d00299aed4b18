"""The bundled embedder: static vectors of word pieces, from the package wordllama. Nothing is downloaded.

Does not own: how vectors are compared.
A text's vector is the sum of its pieces' vectors. The model gives frequent pieces short vectors, so it weighs by rarity.
The weights are loaded at first use, on a thread: that takes about half a second.
"""

import asyncio
import importlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palyra.core.errors import Unavailable
from palyra.core.ids import Principal
from palyra.core.memory.stop_words import STOP_WORDS
from palyra.ports.embedder import EmbedderTraits

if TYPE_CHECKING:
    import numpy

VERSION = "wordllama-l2-256-1"
DIMENSIONS = 256
TEXT_CHARS_MAX = 8_192  # Of a longer text the beginning says what it is about.
UNRELATED = 0.1  # Words less close than this have nothing in common.
WORDS_KEPT_MAX = 20_000  # About 20 MiB of vectors of single words.
BLAS_THREADS = "OPENBLAS_NUM_THREADS"
ON_LOOP_MAX = 4  # So few texts take less time than a thread's turn.


class BundledEmbedder:
    """Thread-safe: a search compares words on its own thread."""

    def __init__(self) -> None:
        self._loading = threading.Lock()
        self._pieces: _Pieces | None = None
        self._rows: dict[str, int] = {}
        self._words: numpy.ndarray[Any, Any] | None = None
        self._adding = threading.Lock()

    @property
    def traits(self) -> EmbedderTraits:
        return EmbedderTraits(version=VERSION, dimensions=DIMENSIONS)

    @property
    def is_loaded(self) -> bool:
        return self._pieces is not None

    async def embed(self, texts: Sequence[str], principal: Principal) -> tuple[bytes, ...]:
        if self._pieces is not None and len(texts) <= ON_LOOP_MAX:
            return self._embed(texts)
        return await asyncio.to_thread(self._embed, texts)

    def closest(self, words: Sequence[str], texts: Sequence[Sequence[str]]) -> list[list[float]]:
        import numpy

        told = [[word for word in dict.fromkeys(text) if word not in STOP_WORDS] for text in texts]
        with self._adding:
            rows = self._known({word for text in told for word in text} | set(words))
            matrix = self._words
        assert matrix is not None
        used = numpy.unique(numpy.array([rows[word] for text in told for word in text], dtype=numpy.int64))
        if not len(used):
            return [[0.0] * len(words) for _ in texts]
        asked = matrix[[rows[word] for word in words]]
        close = numpy.clip((matrix[used] @ asked.T - UNRELATED) / (1 - UNRELATED), 0, 1)
        counts = numpy.array([len(text) for text in told])
        flat = numpy.searchsorted(used, [rows[word] for text in told for word in text])
        starts = numpy.cumsum(numpy.concatenate(([0], counts[:-1])))
        best = numpy.zeros((len(texts), len(words)), dtype=numpy.float32)
        filled = counts > 0
        best[filled] = numpy.maximum.reduceat(close[flat], starts[filled], axis=0)
        answer: list[list[float]] = best.tolist()
        return answer

    def load(self) -> None:
        """Loads the weights, once. Raises Unavailable if they are not installed."""
        self._loaded()

    def _loaded(self) -> "_Pieces":
        with self._loading:
            if self._pieces is None:
                self._pieces = _Pieces()
            return self._pieces

    def _embed(self, texts: Sequence[str]) -> tuple[bytes, ...]:
        return tuple(vector.tobytes() for vector in self._loaded().vectors(texts))

    def _known(self, words: set[str]) -> dict[str, int]:
        """Returns the rows of words in the matrix of single words, after adding those that were missing."""
        import numpy

        missing = [word for word in words if word not in self._rows]
        if len(self._rows) + len(missing) > WORDS_KEPT_MAX:
            self._rows, self._words, missing = {}, None, list(words)
        if missing:
            vectors = self._loaded().vectors(missing)
            first = len(self._rows)
            self._rows.update({word: first + at for at, word in enumerate(missing)})
            if self._words is None or len(self._words) < len(self._rows):
                # Room for as many again, so that adding a few words seldom copies all.
                room = numpy.zeros((2 * len(self._rows), DIMENSIONS), dtype=numpy.float32)
                room[:first] = self._words[:first] if self._words is not None else 0
                self._words = room
            self._words[first : len(self._rows)] = vectors
        return self._rows


def _load_numpy() -> None:
    """Loads numpy with one thread for products: ours are small, and idle threads of OpenBLAS wait by spinning."""
    is_set = BLAS_THREADS in os.environ
    os.environ.setdefault(BLAS_THREADS, "1")
    importlib.import_module("numpy")
    if not is_set:
        del os.environ[BLAS_THREADS]


class _Pieces:
    """The vectors of all word pieces, and what splits a text into them."""

    def __init__(self) -> None:
        _load_numpy()
        try:
            import wordllama
        except ImportError as cause:
            message = "the package wordllama is not installed; install it, or set memory.embedder to a model"
            raise Unavailable("embedder_missing", message, is_retryable=False) from cause
        folder = Path(wordllama.__file__).parent
        model = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
        self._vectors = model.embedding
        self._split = model.tokenizer
        self._split.no_padding()
        self._split.no_truncation()

    def vectors(self, texts: Sequence[str]) -> "numpy.ndarray[Any, Any]":
        """Returns one row a text, of length one; zeros for a text without a piece."""
        import numpy

        cut = [text[:TEXT_CHARS_MAX].encode("utf-8", "replace").decode() for text in texts]
        pieces = [found.ids for found in self._split.encode_batch(cut, add_special_tokens=False)]
        counts = numpy.array([len(ids) for ids in pieces])
        sums = numpy.zeros((len(texts), DIMENSIONS), dtype=numpy.float32)
        filled = counts > 0
        if filled.any():
            flat = numpy.fromiter((one for ids in pieces for one in ids), dtype=numpy.int64)
            starts = numpy.cumsum(numpy.concatenate(([0], counts[:-1])))
            sums[filled] = numpy.add.reduceat(self._vectors[flat], starts[filled], axis=0)
        lengths = numpy.linalg.norm(sums, axis=1, keepdims=True)
        unit: numpy.ndarray[Any, Any] = (sums / numpy.maximum(lengths, 1e-9)).astype("<f4")
        return unit
