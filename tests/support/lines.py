"""A line to a server on loopback that can be cut: it refuses connections, or takes them and carries nothing."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

CHUNK_BYTES = 65_536


@dataclass
class Line:
    """What was sent while the line hung arrives when it is mended, as over a network that was gone for a while."""

    target_port: int
    port: int = 0
    _server: asyncio.Server | None = None
    _flows: asyncio.Event = field(default_factory=asyncio.Event)
    _pipes: set["asyncio.Task[None]"] = field(default_factory=set)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def mend(self) -> None:
        self._flows.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Breaks every connection, and takes no new one."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    async def hang(self) -> None:
        self._flows.clear()

    async def close(self) -> None:
        self._flows.set()
        await self.refuse()
        for pipe in list(self._pipes):
            pipe.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._flows.wait()
        with suppress(OSError):
            there = await asyncio.open_connection("127.0.0.1", self.target_port)
            self._writers |= {writer, there[1]}
            for source, sink in ((reader, there[1]), (there[0], writer)):
                pipe = asyncio.create_task(self._carry(source, sink))
                self._pipes.add(pipe)
                pipe.add_done_callback(self._pipes.discard)

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError):
                while chunk := await source.read(CHUNK_BYTES):
                    await self._flows.wait()
                    sink.write(chunk)
                    await sink.drain()
        finally:
            self._writers.discard(sink)
            sink.close()
