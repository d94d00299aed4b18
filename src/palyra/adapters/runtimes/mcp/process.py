"""The process of an MCP server: its environment, its standard error in the log, and its end.

Does not own: what the server says (stdio, connection).
The process runs as the daemon's user and outside every sandbox: the operator chose the program. It gets only those of
our variables without which programs do not run. It leads its own process group.
Invariant: nothing that the process started outlives it. Processes that left its group are found by a mark in their
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
STDERR_LINES_PER_MINUTE_MAX = 60  # Further lines are counted and dropped.
POLL_S = 0.05
KILL_WAIT_S = 2.0  # The kernel gets so long to end a killed process.

log = structlog.get_logger()


class ServerProcess:
    """A running program with its pipes."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, mark: str) -> None:
        self._name = name
        self._process = process
        self._mark = mark
        self._listening = asyncio.create_task(self._log_stderr(), name=f"stderr of MCP server {name}")

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    async def read(self) -> bytes:
        """Returns bytes from standard output, b"" at its end."""
        assert self._process.stdout is not None
        return await self._process.stdout.read(READ_BYTES)

    async def write(self, message: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(message)
        await self._process.stdin.drain()

    async def ended(self) -> None:
        """Returns once the program is gone, even if a child of it holds its pipes open."""
        # Process.wait would wait for the pipes too, and a child may hold those.
        while self._process.returncode is None:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)

    async def stop(self, grace_s: float) -> None:
        """Ends the program and everything it started: SIGTERM first, SIGKILL after `grace_s`."""
        self._signal_group(signal.SIGTERM)
        await self.wait_ended(grace_s)
        self._signal_group(signal.SIGKILL)
        await asyncio.to_thread(kill_marked, self._mark)
        await self.wait_ended(KILL_WAIT_S)
        self._listening.cancel()
        await asyncio.wait({self._listening})
        # There is no public way to close pipes that a surviving process might still hold.
        transport = getattr(self._process, "_transport", None)
        if transport is not None:
            transport.close()

    async def wait_ended(self, timeout_s: float) -> None:
        """Waits for `ended`, but no longer than this."""
        # Before Python 3.11.3, asyncio.timeout in a task that is being cancelled raises CancelledError, and the kill
        # after it would never come.
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
            await asyncio.sleep(0)  # Other tasks get a turn, even if a server never stops writing.


async def start_process(settings: ServerSettings) -> ServerProcess:
    """Starts the program.

    Raises OSError if it cannot be started, and the secret's own error if a variable lacks its secret.
    """
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
    """Returns the variables that programs need to run at all. Our keys and passwords are not among them."""
    return {name: environ[name] for name in INHERITED if name in environ}


def find_marked(mark: str) -> list[int]:
    """Returns the processes whose mark begins with `mark`, or none if the system does not tell."""
    wanted = f"{MARK_VARIABLE}={mark}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if any(each.startswith(wanted) for each in (entry / "environ").read_bytes().split(b"\0")):
                found.append(int(entry.name))
    return found


def kill_marked(mark: str) -> int:
    """Kills them and returns how many there were."""
    found = find_marked(mark)
    for pid in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return len(found)


def _shown(line: bytes | TooLong) -> str:
    if isinstance(line, TooLong):
        return f"[a line of {line.size_bytes} bytes]"
    return clean_line(line.decode("utf-8", "replace"), STDERR_SHOWN_LENGTH_MAX)
