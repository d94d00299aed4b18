"""The Service port. Owns: starting and ending what lives beside the engine: MCP servers, proxies. Not: what it does."""

from typing import Protocol


class Service(Protocol):
    async def start(self) -> None:
        """Returns soon: what takes long goes on by itself."""
        ...

    async def close(self) -> None:
        """Leaves nothing running."""
        ...
