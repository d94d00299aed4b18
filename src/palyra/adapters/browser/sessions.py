"""The browsers of all sessions: one for each session that needs one, how many run, and when they end.

Does not own: what a page does (tab), what a call may do (tools).
Each session has its own profile, a folder that stays over calls and restarts until it is forgotten. A browser starts
with the first call that needs it. The browser used longest ago makes room for a new one. Idle browsers end by
themselves.
"""

import asyncio
import hashlib
import re
import shutil
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog

from palyra.adapters.browser.installed import find_chromium
from palyra.adapters.browser.outline import Control, Refs
from palyra.adapters.net.guard import Guard
from palyra.core.errors import PalyraError, Unavailable
from palyra.ports.services import ServiceHealth, ServiceState

if TYPE_CHECKING:
    from playwright.async_api import Playwright

    from palyra.adapters.browser.chromium import Chromium
    from palyra.adapters.browser.tab import Tab, Times

log = structlog.get_logger()

IDLE_S = 600.0
SESSIONS_MAX = 3  # A Chromium takes some 300 MB.
STOP_S = 5.0
HEALTH_S = (
    0.7  # How long a question about health waits for answers. A browser may take longer before it counts as silent.
)
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
# After these faults the page cannot be used any more: the next call gets a new one.
_SPOILING_CODES = frozenset({"open_failed", "timed_out", "page_hangs", "page_gone", "page_restless", "browser_gone"})


class BrowserSettings(msgspec.Struct, frozen=True, kw_only=True):
    executable: str | None = None
    idle_s: float = IDLE_S
    sessions_max: int = SESSIONS_MAX


class LiveBrowser:
    """One session's browser, from the moment its start began."""

    def __init__(self, opening: "asyncio.Task[tuple[Chromium, Tab]]") -> None:
        self.opening = opening
        self.lock = asyncio.Lock()
        self.idle: asyncio.TimerHandle | None = None
        self.probe: asyncio.Task[None] | None = None
        self.is_silent = False

    async def check(self) -> None:
        """Notes whether the browser answers. It has Chromium's own time for that, not the short one of `health`."""
        self.is_silent = not await self.opening.result()[0].is_answering() and not self.is_over

    @property
    def is_over(self) -> bool:
        if not self.opening.done():
            return False
        return self.opening.cancelled() or self.opening.exception() is not None or not self.opening.result()[0].is_alive

    @property
    def tab(self) -> "Tab | None":
        """Returns the page, if it is ready."""
        return self.opening.result()[1] if self.opening.done() and not self.is_over else None


class Browsers:
    def __init__(
        self, guard: Guard, folder: Path, settings: BrowserSettings | None = None, times: "Times | None" = None
    ) -> None:
        self.guard = guard
        self._folder = folder.absolute()
        self._settings = settings or BrowserSettings()
        self._times = times
        self._refs = Refs()
        self._lives: dict[str, LiveBrowser] = {}  # The one used longest ago is first.
        self._driver: Playwright | None = None
        self._lives_lock = asyncio.Lock()
        self._driving = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def find_control(self, number: int) -> tuple[str, Control] | None:
        """Returns the address of the open page with this ref, and the control; None unless exactly one matches."""
        tabs = [tab for live in self._lives.values() if (tab := live.tab) is not None]
        found = [(tab.url, control) for tab in tabs if (control := tab.control(number)) is not None]
        return found[0] if len(found) == 1 else None

    @asynccontextmanager
    async def use(self, session_id: str) -> "AsyncIterator[Tab]":
        """Gives the session's page to this caller alone.

        Raises Unavailable `browsers_busy`, `browser_failed` …
        """
        live = await self._take(session_id)
        try:
            _, tab = await asyncio.shield(live.opening)
            yield tab
        except asyncio.CancelledError:
            self._spawn(self._stop_loading(session_id, live))
            raise
        except PalyraError as fault:
            if fault.code in _SPOILING_CODES:
                await self._close_broken(session_id, live)
            raise
        finally:
            live.lock.release()
            self._set_idle(session_id, live)

    async def close(self) -> None:
        """Ends every browser; profiles stay."""
        async with self._lives_lock:
            for session_id in list(self._lives):
                await self._end(session_id)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._stop_driver()

    async def health(self) -> ServiceHealth:
        """Asks every browser. One that is slow counts as well until its own question is over; the next call tells."""
        lives = [live for live in self._lives.values() if live.tab is not None]
        if not lives:
            return ServiceHealth(state=ServiceState.IDLE)
        await asyncio.wait({self._probe(live) for live in lives}, timeout=HEALTH_S)
        silent_count = sum(live.is_silent for live in lives)
        if silent_count:
            return ServiceHealth(state=ServiceState.FAILED, reason=f"{silent_count} of {len(lives)} do not answer")
        return ServiceHealth(state=ServiceState.OK)

    async def forget(self, session_id: str) -> None:
        """Ends the session's browser and removes its profile: cookies, logins, everything."""
        async with self._lives_lock:
            await self._end(session_id)
        profile = self._profile(session_id)
        if profile.is_dir() and not profile.is_symlink():
            await asyncio.to_thread(shutil.rmtree, profile, ignore_errors=True)

    async def profiles(self) -> tuple[str, ...]:
        """Returns the names of all profile folders, which are the ids of their sessions."""
        return await asyncio.to_thread(lambda: tuple(sorted(_folder_names(self._folder))))

    def _profile(self, session_id: str) -> Path:
        """Returns a folder that is never outside the profiles' folder, whatever the session's name."""
        name = session_id if _PLAIN_NAME.fullmatch(session_id) else hashlib.sha256(session_id.encode()).hexdigest()
        return self._folder / name

    async def _take(self, session_id: str) -> LiveBrowser:
        """Returns the browser with its lock held. If it ended during the wait, another is looked up."""
        while True:
            live = await self._find(session_id)
            await live.lock.acquire()
            if self._lives.get(session_id) is live and not live.is_over:
                return live
            live.lock.release()

    async def _find(self, session_id: str) -> LiveBrowser:
        async with self._lives_lock:
            live = self._lives.get(session_id)
            if live is not None and live.is_over:
                await self._end(session_id)
                live = None
            if live is None:
                await self._make_room()
                live = LiveBrowser(asyncio.get_running_loop().create_task(self._start(session_id)))
            else:
                del self._lives[session_id]
            self._lives[session_id] = live
            if live.idle is not None:
                live.idle.cancel()
            return live

    async def _make_room(self) -> None:
        while len(self._lives) >= self._settings.sessions_max:
            unused = next((name for name, live in self._lives.items() if not live.lock.locked()), None)
            if unused is None:
                raise Unavailable(
                    "browsers_busy",
                    f"{self._settings.sessions_max} browsers are in use, which is all there may be; try again later",
                )
            await self._end(unused)

    async def _start(self, session_id: str) -> "tuple[Chromium, Tab]":
        from palyra.adapters.browser.chromium import Chromium
        from palyra.adapters.browser.driver import is_answering
        from palyra.adapters.browser.tab import Tab, Times

        executable = find_chromium(self._settings.executable)
        if executable is None:
            raise Unavailable("browser_failed", "Chromium is no longer there; install it again")
        profile = self._profile(session_id)
        driver = await self._running_driver(None)
        try:
            browser = await Chromium.launch(driver, self.guard, profile, executable)
        except Unavailable:
            if await is_answering(driver):
                raise
            browser = await Chromium.launch(await self._running_driver(driver), self.guard, profile, executable)
        return browser, Tab(browser.context, self._refs, self._times or Times(), browser.own_site)

    async def _running_driver(self, broken: "Playwright | None") -> "Playwright":
        """Returns the driver; replaces one that was found broken."""
        from palyra.adapters.browser.driver import start_driver

        async with self._driving:
            if broken is not None and self._driver is broken:
                log.warning("browser_driver_ended")
                await self._stop_driver()
            if self._driver is None:
                self._driver = await start_driver()
            return self._driver

    async def _stop_driver(self) -> None:
        driver, self._driver = self._driver, None
        if driver is not None:
            from palyra.adapters.browser.driver import stop_driver

            await stop_driver(driver, STOP_S)

    async def _end(self, session_id: str) -> None:
        """Ends a browser, whatever it is doing. It waits for a start in progress, so that nothing is left running."""
        live = self._lives.pop(session_id, None)
        if live is None:
            return
        if live.idle is not None:
            live.idle.cancel()
        await asyncio.wait({live.opening})
        if live.opening.cancelled() or live.opening.exception() is not None:
            return
        browser, tab = live.opening.result()
        tab.end()
        await browser.close()

    async def _stop_loading(self, session_id: str, live: LiveBrowser) -> None:
        """Stops what a cancelled call began to load; a page that cannot be stopped is closed."""
        tab = live.tab
        if tab is None:
            return
        try:
            await tab.stop()
        except PalyraError:
            await self._close_broken(session_id, live)

    async def _close_broken(self, session_id: str, live: LiveBrowser) -> None:
        """Closes a spoiled page. A browser that cannot even do that is ended; its profile stays."""
        tab = live.tab
        try:
            if tab is not None:
                await tab.drop()
                if await live.opening.result()[0].is_answering():
                    return
        except PalyraError:
            log.warning("browser_hangs", session=session_id)
        if self._lives.get(session_id) is live:
            await self._end(session_id)

    def _set_idle(self, session_id: str, live: LiveBrowser) -> None:
        if self._lives.get(session_id) is live:
            loop = asyncio.get_running_loop()
            live.idle = loop.call_later(self._settings.idle_s, self._spawn_end, session_id, live)

    def _spawn_end(self, session_id: str, live: LiveBrowser) -> None:
        self._spawn(self._end_idle(session_id, live))

    async def _end_idle(self, session_id: str, live: LiveBrowser) -> None:
        async with self._lives_lock:
            if self._lives.get(session_id) is live and not live.lock.locked():
                await self._end(session_id)

    def _probe(self, live: LiveBrowser) -> asyncio.Task[None]:
        if live.probe is None or live.probe.done():
            live.probe = self._spawn(live.check())
        return live.probe

    def _spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _folder_names(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    return [entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.is_symlink()]
