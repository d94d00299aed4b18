"""Where reads run: the two ways to reach a connection that may read.

Does not own: the queries (tape_reads, views).
Reading threads have a connection each and never wait for the writer. A file layer without shared memory allows only one
connection, the writer's. There a read is one more request to the writer thread.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

import apsw

from palyra.adapters.store.sqlite.connection import JournalSettings, open_reading, our_errors
from palyra.adapters.store.sqlite.writer import Writer
from palyra.core.errors import Unavailable

READERS_MAX = 4  # Reads are short; more threads would only contend for the interpreter.

Answer = TypeVar("Answer")
Question = Callable[[apsw.Connection], Answer]


class Reads(Protocol):
    async def ask(self, question: Question[Answer]) -> Answer: ...

    async def close(self) -> None: ...


class ThreadReads:
    def __init__(self, settings: JournalSettings) -> None:
        self._settings = settings
        self._mine = threading.local()
        self._connections: list[apsw.Connection] = []
        self._is_closed = False
        self._threads = ThreadPoolExecutor(READERS_MAX, thread_name_prefix="journal-reader")

    async def ask(self, question: Question[Answer]) -> Answer:
        if self._is_closed:
            raise Unavailable("journal_closed", "the journal is closed; the daemon is stopping")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._answer, question)

    async def close(self) -> None:
        self._is_closed = True
        await asyncio.to_thread(self._threads.shutdown)
        for connection in self._connections:
            connection.close(True)

    def _answer(self, question: Question[Answer]) -> Answer:
        with our_errors(self._settings.path):
            return question(self._connection())

    def _connection(self) -> apsw.Connection:
        connection: apsw.Connection | None = getattr(self._mine, "connection", None)
        if connection is None:
            connection = self._mine.connection = open_reading(self._settings)
            self._connections.append(connection)
        return connection


class WriterReads:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def ask(self, question: Question[Answer]) -> Answer:
        return await self._writer.perform(lambda recorder: question(recorder.connection))

    async def close(self) -> None:
        """Does nothing: the writer closes its connection."""
