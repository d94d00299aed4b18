"""Connections that are kept. Owns: which were idle, which exchanges are out, and ending both. Not: making them (aiohttp).

Invariant: on a connection that was idle nothing was said since its last answer. A server's farewell to an idle connection
would otherwise be read as the answer to the next request.
"""

from typing import Protocol
from weakref import WeakSet

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection


class Out(Protocol):
    """An exchange that has a connection."""

    def close(self) -> None: ...


class Pool:
    def __init__(self, connector: aiohttp.BaseConnector) -> None:
        self.out: set[Out] = set()
        self._connector = connector
        self._rested: WeakSet[ResponseHandler] = WeakSet()

    async def take(self, request: aiohttp.ClientRequest, within_s: float) -> Connection:
        """An idle one, or a new one. Raises TimeoutError."""
        timeout = aiohttp.ClientTimeout(total=None, connect=within_s)
        connection = await self._connector.connect(request, [], timeout)
        while self.is_used(connection) and connection.protocol is not None and connection.protocol.should_close:
            connection.close()
            connection = await self._connector.connect(request, [], timeout)
        return connection

    def is_used(self, connection: Connection) -> bool:
        """Whether it was idle before: its server may have given it up in this moment."""
        return connection.protocol in self._rested

    def give_back(self, connection: Connection) -> None:
        if connection.protocol is not None:
            self._rested.add(connection.protocol)
        connection.release()

    async def close(self) -> None:
        for exchange in tuple(self.out):
            exchange.close()
        await self._connector.close()
