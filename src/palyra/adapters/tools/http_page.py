"""Presents the answer of a fetch: the lines on top, the text, readable pages, and bodies as artifacts.

Does not own: the exchange (adapters.net).
Invariants: every text is bounded, and invisible characters are dropped from it.
"""

import codecs
import re
from collections.abc import Callable

import msgspec

from palyra.adapters.net.guard_exchange import FetchedResponse
from palyra.core.charsets import decode, find_charset
from palyra.core.events.tool import Outcome, ToolError
from palyra.core.pages.readable import TEXT_LENGTH_MAX, make_readable
from palyra.core.spelling import strip_unseen
from palyra.core.tools import Made, ToolResult

HEADERS_SHOWN_MAX = 40
HEADER_SHOWN_LENGTH_MAX = 300
FAILED_FROM = 400
PRETTY_BYTES_MAX = 1024 * 1024
_LOOK_BYTES = 8 * 1024
_NAME_LENGTH_MAX = 80

_MEDIA_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]{1,60}/[a-z0-9!#$&^_.+-]{1,80}")
_TEXT_TYPE = re.compile(
    r"text/.*|.*[/+](?:json|xml|yaml|toml|javascript|ecmascript|x-javascript|typescript|x-sh|sql|graphql)"
    r"|application/(?:x-ndjson|x-www-form-urlencoded|jsonl|x-yaml|ld\+json)"
)
_HTML_START = re.compile(
    rb"\s*(?:<!--.{0,500}?-->\s*)?<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
_UNFIT_NAME = re.compile(r"[^A-Za-z0-9._-]+")


class _PageText(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    title: str = ""
    notes: tuple[str, ...] = ()
    made: tuple[Made, ...] = ()


def present(answer: FetchedResponse, is_stopped: Callable[[], bool] = lambda: False) -> ToolResult:
    """Presents a complete exchange. A status of 400 or more is a failure that still shows its body."""
    told = _tell(answer, is_stopped)
    media = _line(answer.header("content-type"))
    head = [
        f"HTTP {answer.status} {_line(answer.reason)}".rstrip(),
        answer.target.url,
        *([f"Content-Type: {media}"] if media else []),
        *([f"Title: {_line(told.title)}"] if told.title else []),
    ]
    notes = [f"[{note}]" for note in (answer.note, *told.notes) if note]
    output = "\n".join((*head, "", told.text, *notes)).rstrip()
    if answer.status < FAILED_FROM:
        return ToolResult(outcome=Outcome.OK, output=output, made=told.made)
    error = ToolError(code="http_status", message=f"the server answered with status {answer.status}")
    return ToolResult(outcome=Outcome.FAILED, output=output, error=error, made=told.made)


def _tell(answer: FetchedResponse, is_stopped: Callable[[], bool]) -> _PageText:
    if answer.elsewhere:
        message = f"It redirects to another host, which was not followed:\n{answer.elsewhere}\n"
        return _PageText(text=f"{message}Fetch that address if it is wanted.")
    if not answer.body:
        return _PageText(text=_headers(answer))
    media = _media_type(answer)
    if _is_binary(media, answer):
        return _as_artifact(answer, media)
    text = decode(answer.body, _charset(answer))
    if media in ("text/html", "application/xhtml+xml"):
        page = make_readable(text, answer.target.url, is_stopped)
        notes = ("The text was cut: the page is too long.",) if page.is_cut else ()
        return _PageText(text=page.text or "[The page holds no readable text.]", title=page.title, notes=notes)
    plain = strip_unseen(_prettied(text) if media.endswith("json") else text)
    if len(plain) <= TEXT_LENGTH_MAX:
        return _PageText(text=plain)
    return _PageText(text=plain[:TEXT_LENGTH_MAX], notes=(f"The text was cut after {TEXT_LENGTH_MAX} characters.",))


def _headers(answer: FetchedResponse) -> str:
    lines = [f"{_line(name)}: {_line(value)}" for name, value in answer.headers[:HEADERS_SHOWN_MAX]]
    return "\n".join((*lines, "[There is no body.]"))


def _media_type(answer: FetchedResponse) -> str:
    """Returns the media type that the server names. If it names nothing useful, the beginning of the body decides."""
    said = answer.header("content-type").partition(";")[0].strip().lower()
    if _MEDIA_TYPE.fullmatch(said) and said != "application/octet-stream":
        return said
    if said:
        return "application/octet-stream"
    if _HTML_START.match(answer.body[:_LOOK_BYTES]):
        return "text/html"
    return "text/plain" if _is_utf8(answer.body[:_LOOK_BYTES]) else "application/octet-stream"


def _is_utf8(start: bytes) -> bool:
    """Tells whether the bytes are UTF-8. The last character may be cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return False
    return b"\x00" not in start


def _is_binary(media: str, answer: FetchedResponse) -> bool:
    if _TEXT_TYPE.fullmatch(media) is None:
        return True
    return b"\x00" in answer.body[:_LOOK_BYTES] and not _charset(answer).startswith(("utf-16", "utf-32"))


def _as_artifact(answer: FetchedResponse, media: str) -> _PageText:
    last = answer.target.path.partition("?")[0].rpartition("/")[2]
    name = _UNFIT_NAME.sub("_", last).strip("._")[-_NAME_LENGTH_MAX:] or "body"
    made = Made(name=name, media_type=media, body=answer.body)
    size = len(answer.body)
    return _PageText(text=f"The body is no text ({media}, {size} bytes); it was kept as an artifact.", made=(made,))


def _charset(answer: FetchedResponse) -> str:
    return find_charset(answer.body, answer.header("content-type")) or "utf-8"


def _prettied(text: str) -> str:
    if len(text) > PRETTY_BYTES_MAX:
        return text
    try:
        msgspec.json.decode(text)
        return msgspec.json.format(text, indent=2)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return text


def _line(text: str) -> str:
    return " ".join(strip_unseen(text[:HEADER_SHOWN_LENGTH_MAX]).split())
