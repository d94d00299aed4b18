"""The browser tools as a source: offers all of them or none, and ends the browsers.

Does not own: the tools themselves (tools).
Playwright and Chromium are searched for once, without importing either. So a daemon that never opens a page starts as
quickly as one that cannot.
"""

from pathlib import Path

from palyra.adapters.browser.installed import missing_tools
from palyra.adapters.browser.sessions import Browsers, BrowserSettings
from palyra.adapters.browser.tools import browser_tools
from palyra.adapters.net.guard import Guard
from palyra.core.ids import SessionId, StreamId
from palyra.core.tools import MissingTool
from palyra.ports.services import ServiceHealth
from palyra.ports.tools import Tool


class BrowserSource:
    """`folder` holds a profile for each session that opened a page."""

    def __init__(self, guard: Guard, folder: Path, settings: BrowserSettings | None = None) -> None:
        self._browsers = Browsers(guard, folder, settings)
        self._missing = missing_tools(settings.executable if settings is not None else None)
        self._tools = () if self._missing else browser_tools(self._browsers)

    def tools(self) -> tuple[Tool, ...]:
        return self._tools

    def missing(self) -> tuple[MissingTool, ...]:
        return self._missing

    async def forget(self, session_id: SessionId) -> None:
        """Ends the session's browser and removes its profile."""
        await self._browsers.forget(session_id)

    async def kept(self) -> tuple[SessionId, ...]:
        """Returns the sessions that have a profile."""
        return tuple([SessionId(StreamId(name)) for name in await self._browsers.profiles()])

    async def close(self) -> None:
        await self._browsers.close()

    async def health(self) -> ServiceHealth:
        return await self._browsers.health()
