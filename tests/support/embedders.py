"""Embedders for tests."""

import struct
from collections.abc import Sequence

from palyra.core.ids import Principal
from palyra.ports.embedder import EmbedderTraits


class LengthEmbedder:
    """Vectors that tell the length of their text."""

    @property
    def traits(self) -> EmbedderTraits:
        return EmbedderTraits(version="length-1", dimensions=2)

    async def embed(self, texts: Sequence[str], principal: Principal) -> tuple[bytes, ...]:
        return tuple(struct.pack("<2f", len(text), 1.0) for text in texts)
