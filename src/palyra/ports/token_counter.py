"""The TokenCounter port: how many tokens a model makes of a text.

Does not own: what is counted (engine.session.context_assembler).
"""

from collections.abc import Sequence
from typing import Protocol


class TokenCounter(Protocol):
    async def count(self, model: str, texts: Sequence[str]) -> list[int]:
        """Counts each text. Long texts do not hold the event loop."""
        ...


class EstimatedTokens:
    """Counts three bytes as a token, which errs upwards. It is used where no vocabulary is installed."""

    async def count(self, model: str, texts: Sequence[str]) -> list[int]:
        return [-(-len(text.encode("utf-8", "surrogatepass")) // 3) for text in texts]
