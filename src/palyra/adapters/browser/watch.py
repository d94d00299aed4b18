"""Watches what a page does by itself: dialogs, new windows, navigations and crashes.

Does not own: what calls do with the page (tab).
Nothing that a page opens stays: dialogs are dismissed, windows closed. Their text is kept as short notes for the model.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine

import structlog
from playwright.async_api import BrowserContext, Dialog, Page, Request, Response
from playwright.async_api import Error as PlaywrightError

from palyra.adapters.browser.outline import one_line
from palyra.adapters.browser.own_site import OwnSite

log = structlog.get_logger()

NOTES_MAX = 4
NOTE_LENGTH_MAX = 300


class Watch:
    """Watches one window. `page` is the one page that may stay; `status` is the HTTP status of its last document."""

    def __init__(self, context: BrowserContext, own_site: OwnSite) -> None:
        self._own_site = own_site
        self.page: Page | None = None
        self.status: int | None = None
        self.is_crashed = False
        self._is_making = False
        self._coming: set[Request] = set()
        self._notes: deque[str] = deque(maxlen=NOTES_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        context.on("page", self._meet)

    @property
    def is_navigating(self) -> bool:
        return bool(self._coming)

    async def make_page(self, context: BrowserContext) -> Page:
        """Makes a new page, the only one; every other is closed."""
        self._is_making = True
        try:
            self.page = await context.new_page()
        finally:
            self._is_making = False
        self.is_crashed = False
        self._coming.clear()
        self._follow(self.page)
        for other in context.pages:
            if other is not self.page:
                self._start(other.close())
        return self.page

    def take_notes(self) -> tuple[str, ...]:
        notes = tuple(dict.fromkeys(self._notes))
        self._notes.clear()
        return notes

    def note(self, words: str) -> None:
        self._notes.append(words)

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _follow(self, page: Page) -> None:
        page.on("dialog", self._answer)
        page.on("crash", self._note_crash)
        page.on("request", self._note_request)
        page.on("response", self._note_response)
        page.on("requestfailed", self._note_end)
        page.on("requestfinished", self._note_end)
        page.on("download", lambda download: self.note("a download was refused; http.fetch can fetch a file"))

    def _meet(self, page: Page) -> None:
        if self._is_making:
            return
        self._start(self._refuse_window(page))

    async def _refuse_window(self, page: Page) -> None:
        address = page.url
        await page.close()
        if address.startswith(("http://", "https://")):
            self.note(f"a new window was closed; browser.open can open it: {one_line(address, NOTE_LENGTH_MAX)}")
        else:
            self.note("a new window was closed")

    def _answer(self, dialog: Dialog) -> None:
        """Answers a dialog. Leaving a page needs no permission of the page."""
        if dialog.type == "beforeunload":
            self._start(dialog.accept())
            return
        self.note(f"a dialog ({dialog.type}) was dismissed: {one_line(dialog.message, NOTE_LENGTH_MAX)}")
        self._start(dialog.dismiss())

    def _note_crash(self, _: Page) -> None:
        self.is_crashed = True

    def _note_request(self, request: Request) -> None:
        if self._is_of_main(request):
            self._own_site.follow(request.url)
            self._coming.add(request)

    def _note_response(self, response: Response) -> None:
        if response.request in self._coming or self._is_of_main(response.request):
            self.status = response.status
        self._coming.discard(response.request)

    def _note_end(self, request: Request) -> None:
        self._coming.discard(request)

    def _is_of_main(self, request: Request) -> bool:
        if not request.is_navigation_request() or self.page is None:
            return False
        try:
            return request.frame == self.page.main_frame
        except PlaywrightError:
            return False

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(_tried(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _tried(work: Coroutine[object, object, None]) -> None:
    """Ignores the fault of a page that is gone meanwhile."""
    try:
        await work
    except PlaywrightError as gone:
        log.debug("browser_page_gone", why=type(gone).__name__)
