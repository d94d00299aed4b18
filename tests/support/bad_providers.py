"""Model providers beside a daemon: stand-ins in a thread, servers that break before any answer, their configuration.

Does not own: what a good or a bad answer is (stand_in_provider, provider_answers).
A daemon is another process, and tests wait for it in plain calls. So the stand-ins have an event loop of their own.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from tests.support.stand_in_provider import Played, StandInProvider
from tests.support.waiting import WAIT_S

START_TIMEOUT_S = WAIT_S
LINGER_NOT = struct.pack("ii", 1, 0)  # Closing sends a reset at once, even with unsent data.

Value = TypeVar("Value")
StandIn = TypeVar("StandIn", bound=StandInProvider)
OnConnect = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Providers:
    """Any number of stand-ins and raw servers, open until the block is left."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._stand_ins: list[StandInProvider] = []
        self._servers: list[asyncio.Server] = []
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def play(self, *answers: Played) -> StandInProvider:
        """Plays each answer once, in order; the last one answers every later request."""
        return self.open(StandInProvider(*answers))

    def open(self, stand_in: StandIn) -> StandIn:
        self._do(stand_in.__aenter__())
        self._stand_ins.append(stand_in)
        return stand_in

    def serve_raw(self, on_connect: OnConnect) -> str:
        """Returns an address where `on_connect` handles each connection."""
        server = self._do(asyncio.start_server(on_connect, "127.0.0.1", 0))
        self._servers.append(server)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    def refuse_connections(self) -> str:
        """Returns an address that refuses connections: its port is bound, so that nobody else gets it, but not open."""
        taken = socket.socket()
        taken.bind(("127.0.0.1", 0))
        self._sockets.append(taken)
        return f"http://127.0.0.1:{taken.getsockname()[1]}"

    def _do(self, work: Coroutine[Any, Any, Value]) -> Value:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(START_TIMEOUT_S)

    async def _close(self) -> None:
        for taken in self._sockets:
            taken.close()
        for server in self._servers:
            server.close()
        for stand_in in self._stand_ins:
            await stand_in.__aexit__(None, None, None)
        await asyncio.sleep(0)  # Transports close in the next iteration of the loop.


async def close_at_once(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def reset_after_the_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
    writer.transport.abort()


def section(table: str, **values: object) -> str:
    """Returns one `[[table]]` of palyra.toml. Values are strings, numbers, or lists of strings."""
    lines = [f"{name} = {_literal(value)}" for name, value in values.items()]
    return "\n".join([f"[[{table}]]", *lines, ""])


def _literal(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)
