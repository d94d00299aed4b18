"""The tools browser.open, read, click, type and screenshot: what a call would touch, and the words of its result.

Does not own: browsers (sessions), pages (tab).
Opening reaches an address, which is judged like a fetch. Reading a page that is already open reaches nothing, so it
needs no capability. A click or typed text can do anything its page can. So it asks, and the person sees what the ref
stood for.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from msgspec.structs import replace

from palyra.adapters.browser.outline import TITLE_LENGTH_MAX, number_of, one_line, quoted, render
from palyra.adapters.browser.sessions import Browsers
from palyra.adapters.browser.specs import CLICK, OPEN, READ, SCREENSHOT, TEXT_LENGTH_MAX, TYPE
from palyra.core.errors import Invalid, PalyraError, Unavailable
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, Outcome, ParallelClass
from palyra.core.hosts import CODE, URL_LENGTH_MAX
from palyra.core.taint import label
from palyra.core.tools import CallNature, Made, ToolResult, failed
from palyra.core.trust import Trust
from palyra.ports.tools import Tool, ToolCallContext

if TYPE_CHECKING:
    from palyra.adapters.browser.tab import PageState, Tab

SANDBOX = "chromium"
PREVIEW_LENGTH_MAX = 4 * 1024  # More than surfaces show at once, so that a cut text is known as one.
_HOST_SHOWN_MAX = 253
_FRAGMENT_SAFE = "%/?:@!$&'()*+,;=-._~"
_ERROR_PAGE = "chrome-error:"

Act = Callable[["Tab"], Awaitable["PageState"]]


def browser_tools(browsers: Browsers) -> tuple[Tool, ...]:
    return (
        BrowserOpen(browsers),
        BrowserRead(browsers),
        BrowserClick(browsers),
        BrowserType(browsers),
        BrowserScreenshot(browsers),
    )


class BrowserOpen:
    spec = OPEN

    def __init__(self, browsers: Browsers) -> None:
        self._browsers = browsers

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        url = arguments.get("url")
        return CallNature(
            effect_class=EffectClass.READ_ONLY,
            parallel_class=ParallelClass.NEVER,
            host=_host_at(self._browsers, url) if isinstance(url, str) else None,
            address=url if isinstance(url, str) else None,
        )

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        url = arguments.get("url")
        try:
            if not isinstance(url, str):
                raise Invalid("arguments_invalid", "url is a text: the whole address, with http:// or https://")
            target = self._browsers.guard.judge(url)
            # Judged here for a plain reason to report; the proxy judges again.
            await self._browsers.guard.addresses(target.endpoint)
        except PalyraError as refused:
            return _refused(refused)
        fragment = url.partition("#")[2]
        wanted = f"{target.url}#{quote(fragment, safe=_FRAGMENT_SAFE)}" if fragment else target.url
        return await _perform(self._browsers, context, lambda tab: tab.open(wanted))


class BrowserRead:
    spec = READ

    def __init__(self, browsers: Browsers) -> None:
        self._browsers = browsers

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        return _looking()

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        return await _perform(self._browsers, context, lambda tab: tab.look())


class BrowserClick:
    spec = CLICK

    def __init__(self, browsers: Browsers) -> None:
        self._browsers = browsers

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        return _touching(self._browsers, arguments)

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        number = number_of(arguments.get("ref"))
        if number is None:
            return _refused(_no_ref())
        return await _perform(self._browsers, context, lambda tab: tab.click(number))


class BrowserType:
    spec = TYPE

    def __init__(self, browsers: Browsers) -> None:
        self._browsers = browsers

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        return _touching(self._browsers, arguments)

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        number, text = number_of(arguments.get("ref")), arguments.get("text")
        if number is None:
            return _refused(_no_ref())
        if not isinstance(text, str) or len(text) > TEXT_LENGTH_MAX:
            return _refused(Invalid("arguments_invalid", f"text is a text of at most {TEXT_LENGTH_MAX} characters"))
        is_submitted = arguments.get("submit") is True
        return await _perform(self._browsers, context, lambda tab: tab.type(number, text, is_submitted=is_submitted))


class BrowserScreenshot:
    spec = SCREENSHOT

    def __init__(self, browsers: Browsers) -> None:
        self._browsers = browsers

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        return _looking()

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        try:
            async with self._browsers.use(context.session_id) as tab:
                body, media_type = await tab.picture(is_full=arguments.get("full_page") is True)
                url = tab.url
                host = _judged_host(self._browsers, url)
        except PalyraError as fault:
            return _refused(fault)
        made = Made(name=f"page.{media_type.partition('/')[2]}", media_type=media_type, body=body, is_shown=True)
        return ToolResult(
            outcome=Outcome.OK,
            output=f"A picture of {one_line(url, URL_LENGTH_MAX)} was taken.",
            source=label("http", host),
            made=(made,),
            sandbox=SANDBOX,
        )


async def _perform(browsers: Browsers, context: ToolCallContext, act: Act) -> ToolResult:
    """Performs one action on the session's page, and returns the page as it is afterwards."""
    try:
        async with browsers.use(context.session_id) as tab:
            page_state = await act(tab)
            try:
                host = _judged_host(browsers, page_state.url)
            except PalyraError as refused:
                await tab.drop()
                return replace(_refused(refused), trust=None, source=label("http", _host_at(browsers, page_state.url)))
    except PalyraError as fault:
        return _refused(fault)
    return ToolResult(
        outcome=Outcome.OK, output=_shown(page_state), source=label("http", host), trust=Trust.EXTERNAL, sandbox=SANDBOX
    )


def _refused(fault: PalyraError) -> ToolResult:
    """Returns a failure in our own words alone."""
    return replace(failed(fault.code, fault.message), trust=Trust.SYSTEM, sandbox=SANDBOX)


def _judged_host(browsers: Browsers, url: str) -> str:
    """Returns the host of the open page. Raises Invalid if the page's address is refused, whatever led there."""
    if url.startswith(_ERROR_PAGE):
        raise Unavailable("open_failed", "the page went to an address that is refused, unknown, or does not answer")
    try:
        return browsers.guard.judge(url).endpoint.host
    except PalyraError as refused:
        raise Invalid(CODE, f"the page went to a refused address and was closed: {refused.message}") from refused


def _host_at(browsers: Browsers, url: str) -> str:
    """Returns the judged host. For a refused address it is the text there, so that the refusal can name it."""
    try:
        return browsers.guard.judge(url).endpoint.host
    except PalyraError:
        pass
    try:
        return urlsplit(url).netloc[:_HOST_SHOWN_MAX].lower() or "invalid"
    except ValueError:
        return "invalid"


def _no_ref() -> Invalid:
    return Invalid("arguments_invalid", "ref is the ref of an element, such as e410233; call browser.read to see them")


def _looking() -> CallNature:
    return CallNature(effect_class=EffectClass.READ_ONLY, parallel_class=ParallelClass.NEVER)


def _touching(browsers: Browsers, arguments: JsonObject) -> CallNature:
    """Finds the page by the ref, because no two pages share one.

    A ref of no open page will be refused as stale.
    """
    number = number_of(arguments.get("ref"))
    found = browsers.find_control(number) if number is not None else None
    if found is None:
        return CallNature(effect_class=EffectClass.ONCE, parallel_class=ParallelClass.NEVER)
    url, control = found
    lines = [f"{one_line(control.role, 20)} {quoted(control.name)}, as the page showed it", f"on {one_line(url, 500)}"]
    text = arguments.get("text")
    if isinstance(text, str) and control.role != "password":
        lines.append(f"text: {one_line(text, PREVIEW_LENGTH_MAX)}")
    if arguments.get("submit") is True:
        lines.append("then Enter")
    return CallNature(
        effect_class=EffectClass.ONCE,
        parallel_class=ParallelClass.NEVER,
        host=_host_at(browsers, url),
        preview="\n".join(lines),
    )


def _shown(page_state: "PageState") -> str:
    status = f"{page_state.status} " if page_state.status is not None else ""
    lines = [f"{status}{one_line(page_state.url, URL_LENGTH_MAX)}"]
    if page_state.seen.title:
        lines.append(f"Title: {one_line(page_state.seen.title, TITLE_LENGTH_MAX)}")
    lines += [f"[{note}]" for note in page_state.notes]
    return "\n".join((*lines, "", render(page_state.seen, page_state.numbers)))
