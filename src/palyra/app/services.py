"""Services of the tools, as the port sees them: the sandbox's proxy, and parts that start at their first use.

Does not own: when a service is checked or restarted (engine.healing).
"""

import asyncio
import inspect
import os
import shutil
import stat
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import structlog

from palyra.core.errors import PalyraError, Unavailable
from palyra.ports.services import ServiceHealth, ServiceState

if TYPE_CHECKING:
    from palyra.adapters.net.guard import Guard

log = structlog.get_logger()

_PROBE_S = 0.4
_PROBES_COUNT = 2  # One late answer is no failure: the machine may be busy.
# The proxy refuses this with a status, so an answer proves that it reads and writes, and nothing leaves the machine.
_PROBE = b"PROBE\r\n\r\n"
_FOLDER_MODE = 0o700


class ServicePart(Protocol):
    """What starts at its first use. After `close` the next use starts it anew."""

    def close(self) -> Awaitable[None] | None: ...

    def health(self) -> ServiceHealth | Awaitable[ServiceHealth]: ...


class LazyService:
    """A service that starts at its first use and has to be ended. A restart ends it, and the next use starts it."""

    restarts_itself = False

    def __init__(self, name: str, domain: str, part: ServicePart) -> None:
        self.name = name
        self.domain = domain
        self._part = part

    async def start(self) -> None:
        """Does nothing: the service starts at its first use."""

    async def close(self) -> None:
        ended = self._part.close()
        if inspect.isawaitable(ended):
            await ended

    async def health(self) -> ServiceHealth:
        found = self._part.health()
        return await found if inspect.isawaitable(found) else found

    async def restart(self) -> None:
        await self.close()


class SandboxProxy:
    """The guarded proxy that a sandbox gets if a policy lets it reach the network.

    A restart keeps the path. Commands that already run keep the old socket and lose the network.
    """

    name = "sandbox proxy"
    domain = "sandbox"
    restarts_itself = False

    def __init__(self, guard: "Guard") -> None:
        from palyra.adapters.net.proxy import GuardedProxy

        self._make: Callable[[], GuardedProxy] = lambda: GuardedProxy(guard)
        self._proxy = self._make()
        # The path of a home may be too long for the name of a socket; that of a temporary folder is not.
        self._folder = Path(tempfile.mkdtemp(prefix="palyra-"))
        self.path = self._folder / "proxy"
        self._is_wanted = False

    async def start(self) -> None:
        self._is_wanted = True
        try:
            await self._proxy.start(self.path)
        except PalyraError as error:
            log.warning("proxy_unavailable", message=error.message)

    async def close(self) -> None:
        self._is_wanted = False
        await self._proxy.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def health(self) -> ServiceHealth:
        if not self._is_wanted:
            return ServiceHealth(state=ServiceState.IDLE, reason="it is not started")
        for _ in range(_PROBES_COUNT):
            if await _is_answering(self.path):
                return ServiceHealth(state=ServiceState.OK)
        return ServiceHealth(state=ServiceState.FAILED, reason="its socket does not answer")

    async def restart(self) -> None:
        """Makes the proxy anew, and its folder too if that was cleaned away. Raises Unavailable `proxy_unavailable`."""
        self._is_wanted = True
        await self._proxy.close()
        self._proxy = self._make()
        try:
            _ensure_private(self._folder)
            self.path.unlink(missing_ok=True)
        except OSError as cause:
            raise Unavailable("proxy_unavailable", f"{self._folder} cannot be used: {cause.strerror}") from cause
        await self._proxy.start(self.path)


def _ensure_private(folder: Path) -> None:
    """Makes the folder if it is gone. Somebody else may have made one of that name: theirs is refused."""
    with suppress(FileExistsError):
        folder.mkdir(mode=_FOLDER_MODE)
    found = folder.lstat()
    is_private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    if not is_private:
        raise Unavailable("proxy_unavailable", f"{folder} belongs to somebody else; restart the daemon")


async def _is_answering(path: Path) -> bool:
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(_PROBE_S):
            reader, writer = await asyncio.open_unix_connection(str(path))
            writer.write(_PROBE)
            return (await reader.read(5)).startswith(b"HTTP/")
    except (OSError, TimeoutError):
        return False
    finally:
        if writer is not None:
            writer.close()
