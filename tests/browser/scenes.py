"""Scenes for the browser's tests. Owns: a site and a canary on loopback, and the tools on one set of browsers."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from palyra.adapters.browser.installed import missing_tools
from palyra.adapters.browser.sessions import Browsers, BrowserSettings
from palyra.adapters.browser.tab import Times
from palyra.adapters.browser.tools import browser_tools
from palyra.adapters.net.guard import Guard
from palyra.core.hosts import HostPort, UrlTarget, allowed
from palyra.core.ids import SessionId, StreamId
from palyra.core.tools import ToolResult
from palyra.ports.tools import ToolCallContext
from tests.support.sites import LOOPBACK, Site, ok, site
from tests.support.tool_calls import context

FIRST = "01JZ0000000000000000FIRST1"
# Most tests are not about these limits, and a busy machine must not reach them.
PATIENT = Times(answer_s=60.0, load_s=30.0, look_s=60.0, picture_s=60.0)
HASTY = Times(answer_s=10.0, load_s=1.0, look_s=4.0, picture_s=8.0)  # For pages that reach a limit.


class WatchedGuard(Guard):
    """Remembers everything that was asked of it, allowed or not."""

    def __init__(self, allow: list[tuple[str, int]]) -> None:
        super().__init__(allow)
        self.asked: list[str] = []

    def open_to(self, port: int) -> None:
        self._allow |= {allowed(LOOPBACK, port)}

    def judge(self, url: str) -> UrlTarget:
        self.asked.append(url)
        return super().judge(url)

    def judge_endpoint(self, authority: str) -> HostPort:
        self.asked.append(authority)
        return super().judge_endpoint(authority)


class Datagrams(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.count = 0

    def datagram_received(self, data: bytes, addr: object) -> None:
        self.count += 1


class Scene:
    def __init__(self, folder: Path, home: Site, canary: Site) -> None:
        self.folder = folder
        self.home = home
        self.canary = canary
        self.guard = WatchedGuard([(LOOPBACK, home.port)])
        self.use_browsers(BrowserSettings(), PATIENT)

    def use_browsers(self, settings: BrowserSettings, times: Times) -> None:
        self.browsers = Browsers(self.guard, self.folder, settings, times)
        self.tools = {tool.spec.name: tool for tool in browser_tools(self.browsers)}

    def page(self, path: str, body: str) -> str:
        """Its whole address."""
        self.home.answers[path] = ok(body.encode(), media="text/html; charset=utf-8")
        return f"{self.home.url}{path}"

    async def call(self, name: str, session: str = FIRST, **arguments: object) -> ToolResult:
        return await self.tools[f"browser.{name}"].execute(dict(arguments), in_session(session))

    async def output(self, name: str, session: str = FIRST, **arguments: object) -> str:
        result = await self.call(name, session, **arguments)
        assert result.error is None, result.error
        return result.output

    async def code(self, name: str, session: str = FIRST, **arguments: object) -> str | None:
        result = await self.call(name, session, **arguments)
        return result.error.code if result.error else None


def in_session(session: str) -> ToolCallContext:
    return replace(context(), session_id=SessionId(StreamId(session)))


def ref_of(output: str, name: str) -> str:
    """The ref of the control with this name."""
    found = re.search(rf'\[(e\d+)\] \w+ "{re.escape(name)}', output)
    assert found is not None, output
    return found[1]


def needs_chromium() -> None:
    missing = missing_tools()
    if missing:
        pytest.skip(missing[0].reason)


@asynccontextmanager
async def scene(folder: Path, settings: BrowserSettings | None = None, times: Times = PATIENT) -> AsyncIterator[Scene]:
    needs_chromium()
    async with site() as home, site() as canary:
        made = Scene(folder, home, canary)
        made.use_browsers(settings or BrowserSettings(), times)
        try:
            yield made
        finally:
            await made.browsers.close()
