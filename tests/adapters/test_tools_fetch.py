"""http.fetch: what it sends, follows and gives back, where it stops, and what it never reaches."""

import asyncio
import gzip
import socket
import ssl
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from palyra.adapters.net.guard import Guard
from palyra.adapters.net.guard_exchange import REDIRECTS_MAX, is_same_site
from palyra.adapters.tools.http_fetch import HEADERS_MAX, SPEC, HttpFetch
from palyra.core.addresses import is_known_address
from palyra.core.context.messages import ToolMessage
from palyra.core.context.window import Window, WindowItem
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, Outcome, ParallelClass, Verdict
from palyra.core.pages.readable import TEXT_LENGTH_MAX
from palyra.core.tools import ToolResult
from palyra.core.trust import Trust
from tests.gateway.test_server import certificate
from tests.support.policies import TAINT, question, with_policies
from tests.support.sites import LOOPBACK, Respond, Site, moved, ok, site
from tests.support.tool_calls import code_of, context
from tests.support.traits import reads_outside
from tests.support.waiting import WAIT_S, until

pytestmark = pytest.mark.anyio
TEST_S = WAIT_S
SHORT_S = 0.3
MIB = 1024 * 1024
HTML = "text/html; charset=utf-8"


class Scene:
    """One site that is allowed, and one beside it that must never be reached."""

    def __init__(self, home: Site, canary: Site) -> None:
        self.home = home
        self.canary = canary
        self.guard = Guard([(LOOPBACK, home.port)])

    async def fetch(self, path: str = "/", **arguments: object) -> ToolResult:
        return await self.call({"url": f"{self.home.url}{path}", **arguments})

    async def call(self, arguments: JsonObject, tool: HttpFetch | None = None) -> ToolResult:
        return await (tool or HttpFetch(self.guard)).execute(arguments, context())


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    async with asyncio.timeout(TEST_S), site() as home, site() as canary:
        yield Scene(home, canary)
        assert canary.connections_count == 0


def forever(
    piece: bytes, pause_s: float = 0.0, head: bytes = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"
) -> Respond:
    async def respond(_request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause_s)

    return respond


async def test_answer_has_status_address_and_text_and_names_its_source() -> None:
    async with scene() as s:
        s.home.answers["/a?b=1"] = ok("grüße".encode())
        result = await s.fetch("/a?b=1")
        assert (result.outcome, result.error) == (Outcome.OK, None)
        assert result.output.splitlines() == [
            "HTTP 200 OK",
            f"{s.home.url}/a?b=1",
            "Content-Type: text/plain; charset=utf-8",
            "",
            "grüße",
        ]
        assert result.source == f"http:{LOOPBACK}"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{}/",
        "http://localhost:{}/",
        "http://[::1]:{}/",
        "http://[::ffff:127.0.0.1]:{}/",
        "http://[::ffff:7f00:1]:{}/",
        "http://[0:0:0:0:0:ffff:127.0.0.1]:{}/",
        "http://127.1:{}/",
        "http://0x7f000001:{}/",
        "http://2130706433:{}/",
        "http://0177.0.0.1:{}/",
        "http://\uff11\uff12\uff17.0.0.1:{}/",
        "http://0.0.0.0:{}/",
        "http://0:{}/",
        "http://example.com@127.0.0.1:{}/",
        "http://example.com\\@127.0.0.1:{}/",
        "ftp://127.0.0.1:{}/",
    ],
)
async def test_private_address_is_refused_and_never_reached(url: str) -> None:
    async with scene() as s:
        result = await s.call({"url": url.format(s.canary.port)})
        assert (result.outcome, code_of(result), result.trust) == (Outcome.FAILED, "address_refused", Trust.SYSTEM)


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
async def test_redirect_to_a_private_address_is_refused_and_never_reached(status: str) -> None:
    async with scene() as s:
        places = [
            f"{s.canary.url}/",
            f"//localhost:{s.canary.port}/",
            f"http://[::1]:{s.canary.port}/",
            "file:///etc/passwd",
        ]
        for place in places:
            s.home.answers["/"] = moved(place, status)
            assert code_of(await s.fetch()) == "address_refused"


async def test_redirect_on_the_same_host_is_followed_and_named() -> None:
    async with scene() as s:
        s.home.answers.update({"/": moved("/b#part"), "/b": moved(f"{s.home.url}/c"), "/c": ok(b"here")})
        result = await s.fetch(headers={"Authorization": "Bearer x"})
        assert result.output.splitlines()[1] == f"{s.home.url}/c"
        assert result.output.endswith("here")
        assert [b"Bearer x" in request for request in s.home.requests] == [True, True, True]


async def test_redirect_to_another_host_is_named_and_not_followed() -> None:
    """Its address stands in the result word for word, so that fetching it is a call of its own."""
    async with scene() as s:
        s.home.answers["/"] = moved("https://other.example.com/x?y=1")
        result = await s.fetch()
        assert (result.outcome, result.source) == (Outcome.OK, f"http:{LOOPBACK}")
        assert "https://other.example.com/x?y=1" in result.output.splitlines()
        assert len(s.home.requests) == 1
        window = Window(
            items=(WindowItem(ToolMessage("c1", result.output), Trust.EXTERNAL, 1, result.source, SPEC.name),)
        )
        assert is_known_address("https://other.example.com/x?y=1", window, reads_outside)


async def test_another_port_of_the_same_host_is_another_place() -> None:
    async with scene() as s:
        s.guard = Guard([(LOOPBACK, s.home.port), (LOOPBACK, s.canary.port)])
        s.home.answers["/"] = moved(f"{s.canary.url}/")
        assert f"{s.canary.url}/" in (await s.fetch()).output.splitlines()


@pytest.mark.parametrize("count", [REDIRECTS_MAX, REDIRECTS_MAX + 1])
async def test_redirects_end_at_the_limit(count: int) -> None:
    async with scene() as s:
        for number in range(count):
            s.home.answers[f"/{number}"] = moved(f"/{number + 1}")
        s.home.answers[f"/{count}"] = ok(b"end")
        expected = None if count == REDIRECTS_MAX else "too_many_redirects"
        assert code_of(await s.fetch("/0")) == expected


@pytest.mark.parametrize(
    ("status", "method", "after"),
    [
        ("301 M", "POST", b"GET"),
        ("302 M", "POST", b"GET"),
        ("303 M", "PUT", b"GET"),
        ("307 M", "POST", b"POST"),
        ("308 M", "PUT", b"PUT"),
        ("302 M", "DELETE", b"DELETE"),
        ("303 M", "HEAD", b"HEAD"),
    ],
)
async def test_method_after_a_redirect_is_what_a_browser_would_use(status: str, method: str, after: bytes) -> None:
    async with scene() as s:
        s.home.answers.update({"/": moved("/b", status), "/b": ok(b"" if method == "HEAD" else b"done")})
        await s.fetch(method=method, **({} if method == "HEAD" else {"body": "sent"}))
        assert s.home.requests[1].split(b" ")[0] == after
        assert s.home.requests[1].endswith(b"sent") == (after != b"GET" and method != "HEAD")
        assert (b"content-type" in s.home.requests[1].lower()) == (after != b"GET" and method != "HEAD")


async def test_body_and_headers_are_sent_as_given() -> None:
    async with scene() as s:
        s.home.answers["/"] = ok(b"fine", status="201 Created")
        await s.fetch(method="POST", body='{"a": 1}', headers={"X-A": "b", "Cookie": "c=d"})
        sent = s.home.requests[0]
        assert all(line in sent for line in (b"X-A: b", b"Cookie: c=d", b"Content-Type: application/json", b'{"a": 1}'))
        await s.fetch(method="PUT", body="plain", headers={"content-type": "text/csv"})
        assert b"text/csv" in s.home.requests[1]
        assert b"text/plain" not in s.home.requests[1]


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil"},
        {"content-length": "1"},
        {"Transfer-Encoding": "chunked"},
        {"Proxy-Authorization": "x"},
        {"Connection": "x"},
        {"Accept-Encoding": "br"},
        {"Expect": "100-continue"},
        {"X-A": "a\r\nHost: b"},
        {"X-A": "a\nb"},
        {"X-A": "\x00"},
        {"X-A": "\ud800"},
        {"X A": "b"},
        {"X-A\r\n": "b"},
        {"": "b"},
        {"X-A": "1", "x-a": "2"},
        {"X-A": 1},
        {f"X-{number}": "a" for number in range(HEADERS_MAX + 1)},
    ],
)
async def test_header_that_may_not_be_set_is_refused_before_anything_is_sent(headers: JsonObject) -> None:
    async with scene() as s:
        assert code_of(await s.fetch(headers=headers)) == "header_refused"
        assert s.home.connections_count == 0


async def test_get_with_a_body_is_refused() -> None:
    async with scene() as s:
        assert code_of(await s.fetch(body="x")) == "arguments_invalid"
        assert s.home.connections_count == 0


async def test_status_of_400_and_more_is_a_failure_that_shows_its_body() -> None:
    async with scene() as s:
        s.home.answers["/"] = ok(b"not here", status="404 Not Found")
        result = await s.fetch()
        assert (result.outcome, code_of(result)) == (Outcome.FAILED, "http_status")
        assert result.output.startswith("HTTP 404 Not Found")
        assert result.output.endswith("not here")


async def test_head_shows_headers() -> None:
    async with scene() as s:
        s.home.answers["/"] = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nETag: abc\r\n\r\n"
        assert "etag: abc" in (await s.fetch(method="HEAD")).output.lower()


@pytest.mark.parametrize(
    ("body", "media", "name"), [(b"\x89PNG\x00", "image/png", "a.png"), (b"\x00\x01", "text/plain", "a.png")]
)
async def test_body_that_is_no_text_becomes_an_artifact(body: bytes, media: str, name: str) -> None:
    async with scene() as s:
        s.home.answers["/x/a.png?q"] = ok(body, media=media)
        result = await s.fetch("/x/a.png?q")
        (made,) = result.made
        assert (made.name, made.media_type, made.body) == (name, media, body)
        assert "artifact" in result.output


@pytest.mark.parametrize(
    ("body", "media", "text"),
    [
        ("ě".encode("iso-8859-2"), "text/plain; charset=ISO-8859-2", "ě"),
        ("€".encode("cp1252"), "text/plain; charset=latin1", "€"),
        ("ě".encode("utf-16"), "text/plain", "ě"),
        (b"+ADw-", "text/plain; charset=utf-7", "+ADw-"),
        (b"\\u0041", "text/plain; charset=unicode_escape", "\\u0041"),
        (b"a\xff", "text/plain; charset=no-such", "a\ufffd"),
        (b'<meta charset="iso-8859-2"><p>' + "ě".encode("iso-8859-2"), "text/html", "ě"),
        (b'{"a":[1,{"b":null}]}', "application/json", '{\n  "a": [\n    1,\n    {\n      "b": null\n    }\n  ]\n}'),
        (b'{"a":', "application/json", '{"a":'),
        (b"[" * 5000, "application/json", "[" * 5000),
        (b"<!DOCTYPE html><b>x</b>", "", "x"),
        (b"just words", "", "just words"),
        ("a\u200bb\u202ec\U000e0041d".encode(), "text/plain; charset=utf-8", "abcd"),
    ],
)
async def test_text_is_decoded_and_shown_by_its_kind(body: bytes, media: str, text: str) -> None:
    async with scene() as s:
        s.home.answers["/"] = ok(body, media=media)
        assert (await s.fetch()).output.partition("\n\n")[2] == text


async def test_page_is_given_as_readable_text() -> None:
    async with scene() as s:
        page = "<title>T</title><script>no()</script><h1>Head</h1><p>Go <a href='/x'>there</a><p hidden>order</p>"
        s.home.answers["/"] = ok(page.encode(), media=HTML)
        head, _, text = (await s.fetch()).output.partition("\n\n")
        assert head.endswith("Title: T")
        assert text == f"# Head\n\nGo [there]({s.home.url}/x)"


@pytest.mark.parametrize(
    "packed", [gzip.compress(b"hello", mtime=0), zlib.compress(b"hello"), zlib.compress(b"hello")[2:-4]]
)
async def test_packed_body_is_unpacked(packed: bytes) -> None:
    async with scene() as s:
        encoding = "gzip" if packed.startswith(b"\x1f") else "deflate"
        s.home.answers["/"] = ok(packed, f"Content-Encoding: {encoding}")
        assert (await s.fetch()).output.endswith("\nhello")


async def test_joined_gzip_files_are_one_body() -> None:
    async with scene() as s:
        s.home.answers["/"] = ok(
            gzip.compress(b"hel", mtime=0) + gzip.compress(b"lo", mtime=0), "Content-Encoding: gzip"
        )
        assert (await s.fetch()).output.endswith("\nhello")


@pytest.mark.parametrize(
    ("encoding", "body", "code"),
    [
        ("gzip", b"no gzip at all", "body_damaged"),
        ("br", b"x", "encoding_unknown"),
        ("zstd", b"x", "encoding_unknown"),
        ("gzip, gzip", b"x", "encoding_unknown"),
    ],
)
async def test_body_that_cannot_be_unpacked_is_a_failure(encoding: str, body: bytes, code: str) -> None:
    async with scene() as s:
        s.home.answers["/"] = ok(body, f"Content-Encoding: {encoding}")
        assert code_of(await s.fetch()) == code


async def test_body_that_unpacks_without_end_is_cut_at_the_limit() -> None:
    bomb = zlib.compressobj(9, wbits=31)
    packed = b"".join(bomb.compress(bytes(MIB)) for _ in range(200)) + bomb.flush()
    joined = gzip.compress(b"", mtime=0) * 20_000
    async with scene() as s:
        tool = HttpFetch(s.guard, body_bytes_max=MIB)
        s.home.answers["/"] = ok(packed, "Content-Encoding: gzip", media="application/zip")
        result = await s.call({"url": f"{s.home.url}/"}, tool)
        assert len(result.made[0].body) == MIB
        assert "was cut" in result.output
        s.home.answers["/"] = ok(joined, "Content-Encoding: gzip")
        assert (await s.call({"url": f"{s.home.url}/"}, tool)).outcome is Outcome.OK


@pytest.mark.parametrize(("size", "is_cut"), [(MIB, False), (MIB + 1, True)])
async def test_body_is_cut_at_the_limit(size: int, is_cut: bool) -> None:
    async with scene() as s:
        s.home.answers["/"] = ok(bytes(size), media="application/zip")
        result = await s.call({"url": f"{s.home.url}/"}, HttpFetch(s.guard, body_bytes_max=MIB))
        assert len(result.made[0].body) == MIB
        assert ("was cut" in result.output) == is_cut


async def test_endless_body_is_cut_and_its_connection_closed() -> None:
    async with scene() as s:
        s.home.answers["/"] = forever(b"word " * 4000)
        result = await s.call({"url": f"{s.home.url}/"}, HttpFetch(s.guard, body_bytes_max=MIB))
        assert "was cut" in result.output
        assert len(result.output) < TEXT_LENGTH_MAX + 1000
        await until(lambda: s.home.open_count == 0)


@pytest.mark.parametrize(
    "respond",
    [
        forever(b"x", 0.01),
        forever(b"X-A: b\r\n", 0.01, b"HTTP/1.1 200 OK\r\n"),
        forever(b"", 0.01, b""),
        forever(b"HTTP/1.1 100 Continue\r\n\r\n", 0.01, b""),
    ],
    ids=["body", "headers", "silence", "continue"],
)
async def test_slow_answer_ends_at_the_time_limit(respond: Respond) -> None:
    async with scene() as s:
        s.home.answers["/"] = respond
        result = await s.call({"url": f"{s.home.url}/"}, HttpFetch(s.guard, total_s=SHORT_S))
        for total_s in (5.0, 50.0):  # On a busy machine a short time may be over without a connection.
            if code_of(result) == "connect_timed_out":
                result = await s.call({"url": f"{s.home.url}/"}, HttpFetch(s.guard, total_s=total_s))
        assert code_of(result) == "timed_out" or "ends here" in result.output
        await until(lambda: s.home.open_count == 0)


async def test_redirects_share_one_time_limit() -> None:
    async def slowly(_request: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(SHORT_S * 0.6)
        writer.write(moved("/"))

    async with scene() as s:
        s.home.answers["/"] = slowly
        result = await s.call({"url": f"{s.home.url}/"}, HttpFetch(s.guard, total_s=SHORT_S))
        # The next connection may be what there is no time for any more.
        assert code_of(result) in ("timed_out", "connect_timed_out")


@pytest.mark.parametrize("head", [b"X-A: " + b"a" * 100_000, b"\r\n".join(b"X-%d: a" % n for n in range(20_000))])
async def test_huge_headers_are_a_failure(head: bytes) -> None:
    async with scene() as s:
        s.home.answers["/"] = b"HTTP/1.1 200 OK\r\n" + head + b"\r\nContent-Length: 0\r\n\r\n"
        result = await s.fetch()
        assert (result.outcome, code_of(result)) == (Outcome.FAILED, "not_http")


@pytest.mark.parametrize("answer", [b"nonsense\r\n\r\n", b"", b"HTTP/1.1 2"])
async def test_what_does_not_speak_http_is_a_failure(answer: bytes) -> None:
    async with scene() as s:
        s.home.answers["/"] = answer
        assert code_of(await s.fetch()) in ("not_http", "closed")


async def test_body_that_breaks_off_is_given_with_a_note() -> None:
    async with scene() as s:
        s.home.answers["/"] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\nhalf"
        output = (await s.fetch()).output
        assert "half\n[The body ends here" in output


async def test_closed_port_is_a_failure() -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        port = taken.getsockname()[1]
        result = await HttpFetch(Guard([(LOOPBACK, port)])).execute({"url": f"http://{LOOPBACK}:{port}/"}, context())
    assert (code_of(result), result.trust) == ("connect_failed", Trust.SYSTEM)


async def test_certificate_that_nobody_vouches_for_is_not_accepted(tmp_path: Path) -> None:
    secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secure.load_cert_chain(*certificate(tmp_path))
    home = Site()
    async with asyncio.timeout(TEST_S), await asyncio.start_server(home.serve, LOOPBACK, 0, ssl=secure) as server:
        port = server.sockets[0].getsockname()[1]
        result = await HttpFetch(Guard([(LOOPBACK, port)])).execute({"url": f"https://{LOOPBACK}:{port}/"}, context())
    assert (code_of(result), home.requests) == ("connect_failed", [])
    assert result.error is not None
    assert "certificate" in result.error.message


@pytest.mark.parametrize("phase", ["headers", "body"])
async def test_cancel_closes_the_connection(phase: str) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n" if phase == "body" else b""
    async with scene() as s:
        s.home.answers["/"] = forever(b"x" if phase == "body" else b"", 0.01, head)
        task = asyncio.create_task(s.fetch())
        await until(lambda: bool(s.home.requests))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: s.home.open_count == 0)


async def test_cancel_ends_a_connection_that_is_still_being_made() -> None:
    """A listener whose queue is full takes no more: the connection waits."""
    with socket.socket() as full:
        full.bind((LOOPBACK, 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex((LOOPBACK, port))
        tool = HttpFetch(Guard([(LOOPBACK, port)]))
        task = asyncio.create_task(tool.execute({"url": f"http://{LOOPBACK}:{port}/"}, context()))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for each in waiting:
            each.close()


@pytest.mark.parametrize("method", [None, "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_looking_is_read_only_and_the_rest_is_done_once(method: str | None) -> None:
    arguments: JsonObject = {"url": "https://Example.com:8443/a?b", **({"method": method} if method else {})}
    nature = HttpFetch(Guard()).nature(arguments, ())
    is_looking = method in (None, "GET", "HEAD")
    expected = (
        (EffectClass.READ_ONLY, ParallelClass.IDEMPOTENT_NETWORK)
        if is_looking
        else (EffectClass.ONCE, ParallelClass.NEVER)
    )
    assert (nature.effect_class, nature.parallel_class) == expected
    assert (nature.host, nature.address) == ("example.com", "https://Example.com:8443/a?b")
    assert (nature.preview is None) == is_looking


def test_call_with_headers_or_a_body_is_not_one_to_a_known_address() -> None:
    """They can carry out what an address may not."""
    tool = HttpFetch(Guard())
    for extra in ({"headers": {"X-A": "secret"}}, {"body": "secret"}):
        assert tool.nature({"url": "https://example.com/", **extra}, ()).address is None


@pytest.mark.parametrize(
    ("arguments", "verdict"),
    [({}, Verdict.ALLOW), ({"headers": {"X-A": "secret"}}, Verdict.ASK), ({"method": "POST"}, Verdict.ASK)],
)
def test_in_a_tainted_session_a_known_address_is_free_only_where_nothing_else_is_sent(
    arguments: JsonObject, verdict: Verdict
) -> None:
    nature = HttpFetch(Guard()).nature({"url": "https://example.com/", **arguments}, ())
    heard = WindowItem(ToolMessage("c1", "See https://example.com/"), Trust.EXTERNAL, 1, "http:example.com", SPEC.name)
    window = Window(items=(heard,))
    asked = replace(
        question(taint=TAINT),
        spec=SPEC,
        nature=nature,
        is_known_address=is_known_address(nature.address, window, reads_outside),
    )
    assert with_policies("").judge(asked).verdict is verdict


def test_preview_shows_what_would_be_sent_and_no_value_of_a_header() -> None:
    arguments: JsonObject = {
        "url": "https://example.com/",
        "method": "POST",
        "body": "a\u202eb" + "x" * 5000,
        "headers": {"Authorization": "key"},
    }
    preview = HttpFetch(Guard()).nature(arguments, ()).preview
    assert preview is not None
    assert "POST https://example.com/" in preview
    assert "Authorization" in preview
    assert "key" not in preview
    assert "\\u202e" in preview
    assert "more characters" in preview


def test_refused_address_has_a_host_all_the_same_so_that_its_refusal_is_told() -> None:
    tool = HttpFetch(Guard([("nas.local", 80)]))
    hosts = [tool.nature({"url": url}, ()).host for url in ("http://127.0.0.1:1/", "nonsense", "http://nas.local/")]
    assert hosts == ["127.0.0.1:1", "invalid", "nas.local"]


@pytest.mark.parametrize(
    ("before", "after", "is_same"),
    [
        ("http://a.com/", "http://a.com/x", True),
        ("http://a.com/", "https://a.com/", True),
        ("https://a.com/", "http://a.com/", False),
        ("http://a.com/", "https://www.a.com/", False),
        ("http://a.com/", "http://a.com:8080/", False),
        ("http://a.com:8080/", "https://a.com/", False),
        ("http://a.com/", "https://a.com:8443/", False),
    ],
)
def test_only_the_same_host_and_its_upgrade_are_the_same_site(before: str, after: str, is_same: bool) -> None:
    guard = Guard()
    assert is_same_site(guard.judge(before), guard.judge(after)) is is_same
