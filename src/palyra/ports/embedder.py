"""The port to embedders: texts become vectors. Does not own: where vectors are kept, how they are compared."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from palyra.core.errors import Unavailable
from palyra.core.ids import Principal


class EmbedderTraits(msgspec.Struct, frozen=True, kw_only=True):
    """`version` names the model and everything that changes its vectors. Vectors of two versions are never compared."""

    version: str
    dimensions: int
    is_metered: bool = False


class Embedder(Protocol):
    @property
    def traits(self) -> EmbedderTraits: ...

    async def embed(self, texts: Sequence[str], principal: Principal) -> tuple[bytes, ...]:
        """Returns one vector a text: little-endian float32, of length one. Raises Unavailable if it cannot.

        `principal` is whom the texts belong to, and who is charged if the embedder is metered.
        """
        ...


@runtime_checkable
class EmbeddingBatches(Protocol):
    """An embedder whose requests are model calls of runs: a batch is opened, filled by a run, and taken."""

    @property
    def traits(self) -> EmbedderTraits: ...

    @property
    def model(self) -> str:
        """Returns the name of the model that a run has to call."""
        ...

    def open(self, texts: Sequence[str]) -> str: ...

    def input_tokens(self, batch: str) -> int:
        """Returns an estimate of what the texts of an open batch come to. It is reserved before they are sent (L9)."""
        ...

    def take(self, batch: str) -> tuple[bytes, ...] | None: ...


class NoEmbedder:
    """For a daemon that remembers nothing."""

    @property
    def traits(self) -> EmbedderTraits:
        return EmbedderTraits(version="none", dimensions=0)

    async def embed(self, texts: Sequence[str], principal: Principal) -> tuple[bytes, ...]:
        raise Unavailable("embedder_missing", "this daemon has no embedder; set memory.embedder")


class WordMeanings(Protocol):
    """How close words are to each other in meaning. Quick enough to ask for thousands of words in a search."""

    def closest(self, words: Sequence[str], texts: Sequence[Sequence[str]]) -> list[list[float]]:
        """Returns for each text how close its closest word is to each of `words`: 1 for the same, 0 for unrelated."""
        ...


class UnembeddedItem(msgspec.Struct, frozen=True):
    number: int
    owner: Principal
    content: str


class VectorIndex(Protocol):
    """Which remembered items lack a vector."""

    async def new_items(self, limit: int, but_for: Sequence[Principal] = ()) -> tuple[UnembeddedItem, ...]:
        """Returns items that have no vector at all, of owners other than `but_for`."""
        ...

    async def unembedded(
        self, version: str, limit: int, but_for: Sequence[Principal] = ()
    ) -> tuple[UnembeddedItem, ...]:
        """Returns items that have no vector of this version, of owners other than `but_for`."""
        ...

    async def count_unembedded(self, version: str) -> int: ...

    async def has_items(self) -> bool:
        """Tells whether anything is remembered at all."""
        ...


class NoVectors:
    """For a daemon that remembers nothing."""

    async def new_items(self, limit: int, but_for: Sequence[Principal] = ()) -> tuple[UnembeddedItem, ...]:
        return ()

    async def unembedded(
        self, version: str, limit: int, but_for: Sequence[Principal] = ()
    ) -> tuple[UnembeddedItem, ...]:
        return ()

    async def count_unembedded(self, version: str) -> int:
        return 0

    async def has_items(self) -> bool:
        return False
