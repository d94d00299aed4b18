"""The Service port: starts and ends what runs beside the engine, such as MCP servers and proxies.

Does not own: what the service does.
"""

from typing import Protocol


class Service(Protocol):
    async def start(self) -> None:
        """Returns soon; work that takes long goes on in the background."""
        ...

    async def close(self) -> None:
        """Ends the service; nothing of it is left running."""
        ...
