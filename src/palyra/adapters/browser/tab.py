"""The one page of a session: navigating, reading, clicking, typing and pictures, each in bounded time.

Does not own: which addresses may be reached (the proxy, sessions), the words of a result (tools).
Reading happens in a world isolated from the page's own. A page can show what it likes, but cannot change the script
that reads it. A ref is valid for the document it was seen in: a navigation ends that world, and with it every ref.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import msgspec
from playwright.async_api import BrowserContext, CDPSession, FloatRect, Page
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import TimeoutError as PlaywrightTimeout

from palyra.adapters.browser.chromium import HEIGHT_PX, WIDTH_PX
from palyra.adapters.browser.outline import Control, PageContent, Refs, controls_of, read_seen
from palyra.adapters.browser.outline_script import SCRIPT
from palyra.adapters.browser.own_site import OwnSite
from palyra.adapters.browser.watch import Watch
from palyra.adapters.browser.world import evaluate, show_pictures
from palyra.core.errors import Conflict, Unavailable

CLEAR_S = 2.0
QUIET_S = 0.15  # Long enough for a click's script to begin a navigation.
LOOKS_MAX = 3  # Attempts to read a page that navigates away meanwhile.
PICTURES_SHARE = 0.4  # Of the time for a look.
PICTURE_HEIGHT_PX_MAX = 8000
PICTURE_BYTES_MAX = 4 * 1024 * 1024
JPEG_QUALITY = 60
_NET_FAULT = re.compile(r"net::(ERR_[A-Z_]{1,60})")
_DOWNLOAD = "Download is starting"
_BLANK = "about:blank"
_FAULTS = {
    "changed": ("ref_stale", "the element calls itself something else now; call browser.read and use a new ref"),
    "gone": ("ref_stale", "the element is no longer on the page; call browser.read and use a new ref"),
    "disabled": (
        "not_possible",
        "the element is disabled or read-only now; call browser.read to see what the page needs",
    ),
    "hidden": ("not_possible", "the element cannot be seen now; call browser.read to see the page as it is"),
    "covered": ("not_possible", "something lies over the element; call browser.read and close what covers it"),
    "no_option": ("not_possible", "the list has no such option; write one of its options as browser.read shows them"),
    "not_text": ("not_possible", "nothing can be typed there; use browser.click for it"),
    "not_accepted": (
        "not_possible",
        "the field does not take this text; dates are written as 2030-12-31, times as 14:05",
    ),
}


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """How long each step may take. Together they are shorter than the tools' own limit."""

    answer_s: float = 20.0  # Until the page's address has answered.
    load_s: float = 8.0
    look_s: float = 6.0
    picture_s: float = 15.0


class PageState(msgspec.Struct, frozen=True, kw_only=True):
    """A page as it is now. `numbers` are the refs of its controls."""

    url: str
    status: int | None
    seen: PageContent
    numbers: range
    notes: tuple[str, ...] = ()


class Tab:
    def __init__(self, context: BrowserContext, refs: Refs, times: Times, own_site: OwnSite) -> None:
        self._own_site = own_site
        self._context = context
        self._refs = refs
        self._times = times
        self._watch = Watch(context, own_site)
        self._cdp: CDPSession | None = None
        self._world: int | None = None
        self._numbers = range(0)
        self._controls: tuple[Control, ...] = ()

    @property
    def url(self) -> str:
        """Returns where the browser says it is; empty while no page is open."""
        page = self._watch.page
        return "" if page is None or page.is_closed() or page.url == _BLANK else page.url

    def control(self, number: int) -> Control | None:
        """Returns the control that had this ref when the page was last read."""
        index = number - self._numbers.start
        return self._controls[index] if number in self._numbers and index < len(self._controls) else None

    async def open(self, url: str) -> PageState:
        self._forget_refs()
        page = await self._cleared_page()
        self._watch.take_notes()
        self._watch.status = None
        self._own_site.enter(url)
        with _told("open_failed"):
            try:
                page = await self._go(page, url)
            except PlaywrightTimeout as cause:
                await self.stop()
                raise Unavailable("timed_out", f"the page did not answer within {self._times.answer_s:g} s") from cause
        await self._settle(page)
        return await self.look()

    async def look(self) -> PageState:
        for _ in range(LOOKS_MAX):
            page = self._open_page()
            try:
                with _told("page_gone"):
                    seen = await self._seen(page)
            except _Moved:
                await self._settle(page)
                continue
            except Unavailable as fault:
                raise await self._why(fault) from fault
            self._numbers = self._refs.take(seen.count)
            self._controls = controls_of(seen)
            notes = self._watch.take_notes()
            return PageState(url=page.url, status=self._watch.status, seen=seen, numbers=self._numbers, notes=notes)
        raise Unavailable("page_restless", "the page goes elsewhere all the time and cannot be read; open another one")

    async def click(self, number: int) -> PageState:
        page = self._open_page()
        with _told("page_gone"):
            spot = await self._touch(f"palyra.aim({self._index(number)})")
            async with _bounded(self._times.look_s):
                await page.mouse.click(_number(spot, "x"), _number(spot, "y"))
        await self._settle(page)
        return await self.look()

    async def type(self, number: int, text: str, *, is_submitted: bool) -> PageState:
        """Replaces the text of a field; in a list it chooses the option of that name."""
        page = self._open_page()
        with _told("page_gone"):
            told = await self._touch(f"palyra.fill({self._index(number)}, {msgspec.json.encode(text).decode()})")
            async with _bounded(self._times.look_s):
                if told.get("isFocused"):
                    await self._replace_selected(page, text)
                if is_submitted:
                    await page.keyboard.press("Enter")
        await self._settle(page)
        return await self.look()

    async def picture(self, *, is_full: bool) -> tuple[bytes, str]:
        """Returns the bytes and their media type. A long page is cut; a large picture is compressed harder."""
        page = self._open_page()
        limit_ms = self._times.picture_s * 1000
        with _told("page_gone"):
            async with _bounded(self._times.picture_s + 1.0):
                clip = await self._whole(page) if is_full else None
                body = await page.screenshot(full_page=is_full, clip=clip, timeout=limit_ms)
                if len(body) <= PICTURE_BYTES_MAX:
                    return body, "image/png"
                body = await page.screenshot(
                    full_page=is_full, clip=clip, timeout=limit_ms, type="jpeg", quality=JPEG_QUALITY
                )
        if len(body) > PICTURE_BYTES_MAX:
            raise Unavailable("picture_too_large", f"the picture is larger than {PICTURE_BYTES_MAX} bytes")
        return body, "image/jpeg"

    async def _whole(self, page: Page) -> FloatRect:
        assert self._cdp is not None
        size = (await self._cdp.send("Page.getLayoutMetrics"))["cssContentSize"]
        height = min(max(float(size["height"]), HEIGHT_PX), PICTURE_HEIGHT_PX_MAX)
        return FloatRect(x=0, y=0, width=WIDTH_PX, height=height)

    async def stop(self) -> None:
        """Stops whatever is loading. Raises Unavailable if the page cannot even do that."""
        page = self._watch.page
        if self._cdp is not None and page is not None and not page.is_closed():
            with _told("page_gone"):
                async with _bounded(2.0):
                    await self._cdp.send("Page.stopLoading")

    async def drop(self) -> None:
        """Closes the page, whatever it does; the profile stays. Raises Unavailable if only killing helps."""
        self._forget_refs()
        page, self._watch.page, self._cdp = self._watch.page, None, None
        if page is not None:
            with _told("page_gone"):
                async with _bounded(3.0):
                    await page.close()

    def end(self) -> None:
        self._watch.end()

    async def _go(self, page: Page, url: str) -> Page:
        """Navigates and returns the page. One that went elsewhere itself meanwhile, or crashed, is replaced once."""
        limit_ms = self._times.answer_s * 1000
        try:
            await page.goto(url, wait_until="commit", timeout=limit_ms)
        except PlaywrightError as cause:
            words = str(cause)
            if isinstance(cause, PlaywrightTimeout) or _NET_FAULT.search(words) or _DOWNLOAD in words:
                raise
            page = await self._new_page()
            self._own_site.enter(url)
            await page.goto(url, wait_until="commit", timeout=limit_ms)
        return page

    async def _cleared_page(self) -> Page:
        """Returns a page without anything of the earlier one, which could still navigate and win."""
        page = await self._usable_page()
        return page if await self._is_cleared(page) else await self._new_page()

    async def _new_page(self) -> Page:
        self._watch.page = self._cdp = None  # Making another page closes this one, without waiting for it.
        return await self._usable_page()

    async def _is_cleared(self, page: Page) -> bool:
        try:
            if page.url != _BLANK:
                await page.goto(_BLANK, wait_until="commit", timeout=CLEAR_S * 1000)
        except PlaywrightError:
            return False
        return page.url == _BLANK

    async def _usable_page(self) -> Page:
        page = self._watch.page
        if page is not None and not page.is_closed() and not self._watch.is_crashed:
            return page
        with _told("browser_gone"):
            async with _bounded(self._times.answer_s):
                if page is not None and not page.is_closed():
                    await page.close()
                made = await self._watch.make_page(self._context)
                self._cdp = await self._context.new_cdp_session(made)
        return made

    async def _why(self, fault: Unavailable) -> Unavailable:
        """Waits a moment, because a crash is reported shortly after the fault it causes."""
        if fault.code == "page_gone" and not self._watch.is_crashed:
            await asyncio.sleep(QUIET_S)
        return _crashed() if self._watch.is_crashed else fault

    def _open_page(self) -> Page:
        page = self._watch.page
        if self._watch.is_crashed:
            raise _crashed()
        if page is None or not self.url:
            raise Conflict("no_page", "no page is open in this session; call browser.open first")
        return page

    def _index(self, number: int) -> int:
        if number not in self._numbers:
            raise Conflict("ref_stale", "there is no such ref on the page as it is now; call browser.read for its refs")
        return number - self._numbers.start

    def _forget_refs(self) -> None:
        self._numbers, self._controls, self._world = range(0), (), None

    async def _settle(self, page: Page) -> None:
        """Waits until the load is finished or the limit has passed; an unfinished load is noted."""
        try:
            async with asyncio.timeout(self._times.load_s):
                await self._arrive(page)
        except (TimeoutError, PlaywrightTimeout):
            self._watch.note("the page was still loading")
        except PlaywrightError as cause:
            gone = Unavailable("page_gone", _reason("page_gone", str(cause)))
            raise await self._why(gone) from cause

    async def _arrive(self, page: Page) -> None:
        while True:
            await asyncio.sleep(QUIET_S)
            if self._watch.is_crashed or not self._watch.is_navigating:
                break
        if not self._watch.is_crashed:
            await page.wait_for_load_state("load", timeout=self._times.load_s * 1000)

    async def _seen(self, page: Page) -> PageContent:
        cdp = self._cdp
        assert cdp is not None
        self._forget_refs()
        async with _bounded(self._times.look_s):
            try:
                tree = await cdp.send("Page.getFrameTree")
                frame = {"frameId": tree["frameTree"]["frame"]["id"], "worldName": "palyra"}
                world = int((await cdp.send("Page.createIsolatedWorld", frame))["executionContextId"])
                await evaluate(cdp, world, SCRIPT)
                await show_pictures(cdp, world, self._times.look_s * PICTURES_SHARE)
                raw = await evaluate(cdp, world, "palyra.look()")
            except PlaywrightError as cause:
                if page.is_closed() or self._watch.is_crashed:
                    raise
                raise _Moved from cause
        self._world = world
        return read_seen(raw)

    async def _touch(self, expression: str) -> dict[str, object]:
        """Runs an expression on an element. If the element cannot be used, Conflict says what to do."""
        if self._cdp is None or self._world is None:
            raise Conflict(*_FAULTS["gone"])
        async with _bounded(self._times.look_s):
            try:
                told = await evaluate(self._cdp, self._world, expression)
            except PlaywrightError as cause:
                raise Conflict(*_FAULTS["gone"]) from cause
        answer = told if isinstance(told, dict) else {"fault": "gone"}
        if "fault" in answer:
            raise Conflict(*_FAULTS.get(str(answer["fault"]), _FAULTS["gone"]))
        return answer

    async def _replace_selected(self, page: Page, text: str) -> None:
        if text:
            await page.keyboard.insert_text(text)
        else:
            await page.keyboard.press("Delete")


class _Moved(Exception):
    """The document that was read is gone: the page navigated meanwhile."""


@asynccontextmanager
async def _bounded(limit_s: float) -> AsyncIterator[None]:
    """Limits the time; a page that exceeds it counts as hanging."""
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError as cause:
        raise _hanging() from cause


@contextmanager
def _told(code: str) -> Iterator[None]:
    """Reports the browser's faults in our words; they hold nothing that a page says."""
    try:
        yield
    except PlaywrightTimeout as cause:
        raise Unavailable(
            "page_hangs", "the page does not answer and was closed; open it again or another one"
        ) from cause
    except PlaywrightError as cause:
        raise Unavailable(code, _reason(code, str(cause))) from cause


def _crashed() -> Unavailable:
    return Unavailable("page_crashed", "the page crashed; open it again with browser.open, or another one")


def _hanging() -> Unavailable:
    return Unavailable("page_hangs", "the page does not answer and was closed; open it again or another one")


def _reason(code: str, words: str) -> str:
    fault = _NET_FAULT.search(words)
    if _DOWNLOAD in words:
        return "this address is a file to download, which the browser refuses; use http.fetch"
    if fault and fault[1] in ("ERR_TUNNEL_CONNECTION_FAILED", "ERR_PROXY_CONNECTION_FAILED"):
        return "no connection was made: the address is refused, unknown, or does not answer"
    if fault:
        return f"the page could not be opened ({fault[1]}); check the address or try later"
    if code == "open_failed":
        return "the page could not be opened; check the address or try later"
    return "the browser or its page ended; call browser.open to go on"


def _number(told: dict[str, object], name: str) -> float:
    value = told.get(name)
    return float(value) if isinstance(value, int | float) else 0.0
