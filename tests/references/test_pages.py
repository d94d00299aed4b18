"""Pages behind references: the guard decides, redirects stay on the host, and everything is bounded."""

import asyncio

import pytest

from palyra.adapters.net.guard import Guard
from palyra.adapters.references.pages import GuardedPages
from palyra.core.errors import PalyraError
from palyra.ports.references import ReadScope, ReferenceText
from tests.references.documents import PlainDocuments
from tests.support.sites import Site, moved, ok, site
from tests.support.waiting import WAIT_S

SCOPE = ReadScope(workspace=(), chars_max=100, may_read=lambda path: True)


async def read(url: str, *opened: Site, total_s: float = WAIT_S) -> ReferenceText:
    guard = Guard(("127.0.0.1", each.port) for each in opened)
    return await GuardedPages(guard, PlainDocuments(), total_s).read_page(url, SCOPE)


async def refusal(url: str, *opened: Site, total_s: float = WAIT_S) -> str:
    with pytest.raises(PalyraError) as refused:
        await read(url, *opened, total_s=total_s)
    return refused.value.code


async def test_page_is_read_with_its_title_and_its_source() -> None:
    async with site() as page:
        page.answers["/a"] = ok(b"hello")
        found = await read(f"{page.url}/a", page)
        assert found.parts[0].text == "Title: A page\n\nhello"
        assert found.source == "http:127.0.0.1"
        page.answers["/a"] = ok(b"x" * 500)
        assert (await read(f"{page.url}/a", page)).parts[0].has_more


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/", "http://localhost/", "http://10.0.0.1/", "http://169.254.169.254/latest", "http://[::1]/",
        "http://192.168.1.1/", "http://0x7f000001/", "http://2130706433/", "http://[::ffff:127.0.0.1]/", "file:///etc/passwd",
        "ftp://example.com/", "http://a.internal/", "gopher://x", "javascript:alert(1)", "example.com", "http://user@host@/", "",
    ],
)  # fmt: skip
async def test_private_and_strange_addresses_are_refused(url: str) -> None:
    assert await refusal(url) == "address_refused"


async def test_redirect_to_a_private_address_is_refused_and_never_visited() -> None:
    async with site() as page, site() as private:
        page.answers["/a"] = moved(f"{private.url}/secret")
        assert await refusal(f"{page.url}/a", page) == "address_refused"
        assert private.requests == []
        page.answers["/b"] = moved("http://169.254.169.254/")
        assert await refusal(f"{page.url}/b", page) == "address_refused"
        page.answers["/c"] = moved("file:///etc/passwd")
        assert await refusal(f"{page.url}/c", page) == "address_refused"


async def test_redirect_stays_on_its_host_or_is_named() -> None:
    async with site() as page, site() as other:
        page.answers["/a"] = moved("/b")
        page.answers["/b"] = ok(b"moved here")
        assert "moved here" in (await read(f"{page.url}/a", page)).parts[0].text
        page.answers["/c"] = moved(f"{other.url}/d")
        assert await refusal(f"{page.url}/c", page, other) == "redirects_elsewhere"
        assert other.requests == []
        page.answers["/loop"] = moved("/loop")
        assert await refusal(f"{page.url}/loop", page) == "too_many_redirects"


async def test_failure_of_a_page_is_a_code() -> None:
    async with site() as page:
        assert await refusal(f"{page.url}/none", page) == "http_status"
        page.answers["/empty"] = ok(b"")
        assert await refusal(f"{page.url}/empty", page) == "empty_page"
        page.answers["/zip"] = ok(b"PK", media="application/zip")
        assert await refusal(f"{page.url}/zip", page) == "unreadable"


async def test_page_that_never_answers_is_given_up() -> None:
    async def never(request: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with site() as page:
        page.answers["/slow"] = never
        assert await refusal(f"{page.url}/slow", page, total_s=0.3)
