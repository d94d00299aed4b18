"""The local model's process, seen from the daemon: starting, asking, reading and ending it.

Does not own: what is asked (local_model).
The first question starts the process, which is then kept. If it has ended, the next question starts another. It gets
only those environment variables that an interpreter needs, because a model without a key needs no keys.
"""

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

import msgspec

from palyra.core.errors import Unavailable
from palyra.core.events.base import JsonObject

STOP_S = 1.0  # How long a process that was told to stop may take; loading it again takes about as long.
EXIT_S = 2.0  # How long a process whose input is closed may take to end.
_WORKER = Path(__file__).with_name("local_model_worker.py")
_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")


class LocalFailure(msgspec.Struct, frozen=True):
    """Why there is no answer. `code` is like an HTTP status; 0 says that the weights could not be loaded."""

    code: int
    message: str = ""
    type: str = ""


class TokenDetails(msgspec.Struct, frozen=True):
    cached_tokens: int = 0


class TokenCounts(msgspec.Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int
    prompt_tokens_details: TokenDetails = TokenDetails()


class AnswerLine(msgspec.Struct, frozen=True):
    text: str = ""
    finish: str = ""
    usage: TokenCounts | None = None
    error: LocalFailure | None = None
    is_over: bool = False


_SAID = msgspec.json.Decoder(AnswerLine)


class LocalProcess:
    """Takes one question at a time: the caller reads until the answer `is_over`, or calls `stop_answer`."""

    def __init__(self, weights: Path, window_tokens: int) -> None:
        self._arguments = (str(_WORKER), str(weights), str(window_tokens))
        self._pipes: Pipes | None = None

    @property
    def pid(self) -> int | None:
        return None if self._pipes is None else self._pipes.process.pid

    async def ask(self, bodies: list[JsonObject]) -> None:
        """Asks the first of the bodies that the model's library accepts."""
        pipes = await self._started()
        await pipes.write({"ask": bodies})

    async def read(self) -> AnswerLine:
        """Returns the next line of the answer. Raises Unavailable."""
        line = await self._pipes.output.readline() if self._pipes is not None else b""
        if not line:
            raise Unavailable("process_ended", f"the local model's process ended{await self._end()}")
        return parse_line(line)

    async def stop_answer(self) -> None:
        """Drops the rest of the answer. A process that goes on all the same is ended."""
        is_silent = False
        try:
            async with asyncio.timeout(STOP_S):
                if self._pipes is not None:
                    await self._pipes.write({"stop": True})
                while not (await self.read()).is_over:
                    pass
            is_silent = True
        except (TimeoutError, Unavailable):
            pass
        finally:
            if not is_silent:
                self.kill()

    def kill(self) -> None:
        """Ends the process at once; the next question starts another."""
        pipes, self._pipes = self._pipes, None
        if pipes is not None:
            pipes.kill()

    async def close(self) -> None:
        pipes, self._pipes = self._pipes, None
        if pipes is None:
            return
        pipes.input.close()
        try:
            async with asyncio.timeout(EXIT_S):
                await pipes.process.wait()
        except TimeoutError:
            pipes.kill()
            await pipes.process.wait()

    async def _started(self) -> "Pipes":
        if self._pipes is None or self._pipes.process.returncode is not None:
            self._pipes = await _start(self._arguments)
        return self._pipes

    async def _end(self) -> str:
        pipes, self._pipes = self._pipes, None
        if pipes is None:
            return ""
        code = await pipes.process.wait()
        return f" by signal {-code}" if code < 0 else f" with code {code}"


class Pipes(msgspec.Struct, frozen=True):
    """A running process, with its input and its output."""

    process: asyncio.subprocess.Process
    input: asyncio.StreamWriter
    output: asyncio.StreamReader

    async def write(self, line: JsonObject) -> None:
        """Writes a line. If the process has ended meanwhile, the next read finds that out."""
        with contextlib.suppress(ConnectionError):
            self.input.write(msgspec.json.encode(line) + b"\n")
            await self.input.drain()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.input.close()


async def _start(arguments: tuple[str, ...]) -> Pipes:
    environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    try:
        # -P: modules are not searched for in the current folder or the script's folder.
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", *arguments, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment, cwd="/"
        )
    except OSError as cause:
        raise Unavailable("process_failed", f"the local model could not be started: {cause.strerror}") from cause
    assert process.stdin is not None
    assert process.stdout is not None
    return Pipes(process, process.stdin, process.stdout)


def parse_line(line: bytes) -> AnswerLine:
    try:
        return _SAID.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as cause:
        raise Unavailable("process_garbled", "the local model's process said something that is no answer") from cause
