"""The Anchors port: writes the heads of signed checkpoints to places outside the journal.

Does not own: signing (ports.signer), which places there are.
"""

from collections.abc import Sequence
from typing import Protocol

from palyra.core.checkpoint import Anchor


class Anchors(Protocol):
    async def keep(self, anchors: Sequence[Anchor]) -> None:
        """Writes the anchors. What fails is logged and tried again with the next ones."""
        ...


class NoAnchors:
    """Writes nothing."""

    async def keep(self, anchors: Sequence[Anchor]) -> None:
        return None
