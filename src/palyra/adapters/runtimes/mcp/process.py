"""The process of a server. Owns: its environment, its stderr in the log, and that nothing of it outlives it. Not: what it says.

It runs as the daemon's user and outside every sandbox: the operator chose the program. It gets no variable of ours but those
without which programs do not run, and it leads a process group of its own. What left that group is found by a mark in its
environment.
"""

import asyncio
import os
import secrets
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import structlog

from palyra.adapters.runtimes.mcp.lines import LineCutter, TooLong
from palyra.adapters.runtimes.mcp.server_text import clean_line
from palyra.adapters.runtimes.mcp.settings import ServerSettings

INHERITED = ("PATH", "HOME", "LANG", "TMPDIR")
MARK_VARIABLE = "PALYRA_MCP_MARK"
READ_BYTES = 64 * 1024
STDERR_LINE_BYTES_MAX = 8 * 1024
STDERR_SHOWN_LENGTH_MAX = 500
STDERR_LINES_PER_MINUTE_MAX = 60  # What is said beyond is counted, not kept.
POLL_S = 0.05
KILL_WAIT_S = 2.0  # For the kernel to end what was killed.

log = structlog.get_logger()


class ServerProcess:
    """A running program with its pipes."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, mark: str) -> None:
        self._name = name
        self._process = process
        self._mark = mark
        self._listening = asyncio.create_task(self._log_stderr(), name=f"stderr of MCP server {name}")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    async def read(self) -> bytes:
        """What came on stdout; b"" at its end."""
        assert self._process.stdout is not None
        return await self._process.stdout.read(READ_BYTES)

    async def write(self, message: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(message)
        await self._process.stdin.drain()

    async def ended(self) -> None:
        """Returns once the program is gone, also where a child of it holds its pipes open."""
        # Process.wait would wait for the pipes too, which a child may hold.
        while self._process.returncode is None:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)

    async def stop(self, grace_s: float) -> None:
        """Ends it and everything it started: asks, waits, and then does not ask."""
        self._signal_group(signal.SIGTERM)
        await self.wait_ended(grace_s)
        self._signal_group(signal.SIGKILL)
        await asyncio.to_thread(kill_marked, self._mark)
        await self.wait_ended(KILL_WAIT_S)
        self._listening.cancel()
        await asyncio.wait({self._listening})
        # There is no public way to let go of pipes that a survivor might still hold.
        transport = getattr(self._process, "_transport", None)
        if transport is not None:
            transport.close()

    async def wait_ended(self, timeout_s: float) -> None:
        """`ended`, but no longer than this."""
        # Before Python 3.11.3, asyncio.timeout in a task that is being cancelled raises CancelledError, and the kill after
        # it would never come.
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while self._process.returncode is None and loop.time() < deadline_s:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    async def _log_stderr(self) -> None:
        assert self._process.stderr is not None
        loop = asyncio.get_running_loop()
        cutter = LineCutter(STDERR_LINE_BYTES_MAX)
        minute_began_s, count = loop.time(), 0
        while piece := await self._process.stderr.read(READ_BYTES):
            if loop.time() - minute_began_s >= 60:
                minute_began_s, count = loop.time(), 0
            for line in cutter.feed(piece):
                count += 1
                if count <= STDERR_LINES_PER_MINUTE_MAX:
                    log.info("mcp_stderr", server=self._name, text=_shown(line))
                elif count == STDERR_LINES_PER_MINUTE_MAX + 1:
                    log.info("mcp_stderr_muted", server=self._name)
            await asyncio.sleep(0)  # A server that never stops talking holds nobody else up.


async def start_process(settings: ServerSettings) -> ServerProcess:
    """Raises OSError where the program cannot be started, and as its variables do where a secret is missing."""
    variables = settings.env()
    mark = f"{settings.owner}-{secrets.token_hex(16)}"
    process = await asyncio.create_subprocess_exec(
        *settings.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**scrubbed(os.environ), **variables, MARK_VARIABLE: mark},
        cwd=Path.home(),
        start_new_session=True,
    )
    return ServerProcess(settings.name, process, mark)


def scrubbed(environ: Mapping[str, str]) -> dict[str, str]:
    """What programs need to run at all. Keys and passwords of ours are not among it."""
    return {name: environ[name] for name in INHERITED if name in environ}


def find_marked(mark: str) -> list[int]:
    """Processes that were started with a mark that begins so; none where the system does not tell."""
    wanted = f"{MARK_VARIABLE}={mark}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if any(each.startswith(wanted) for each in (entry / "environ").read_bytes().split(b"\0")):
                found.append(int(entry.name))
    return found


def kill_marked(mark: str) -> int:
    """How many there were."""
    found = find_marked(mark)
    for pid in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return len(found)


def _shown(line: bytes | TooLong) -> str:
    if isinstance(line, TooLong):
        return f"[a line of {line.size_bytes} bytes]"
    return clean_line(line.decode("utf-8", "replace"), STDERR_SHOWN_LENGTH_MAX)
