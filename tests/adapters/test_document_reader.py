"""Reading documents: what each kind becomes, what is refused and why, and that a hostile one ends its process alone."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
import zlib
from pathlib import Path
from typing import Self

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palyra.adapters.readable.extraction import extract
from palyra.adapters.readable.reader import BODY_BYTES_MAX, IN_PROCESS_BYTES_MAX, IsolatedReader, receive
from palyra.core.charsets import decode_text
from palyra.core.documents import UNREADABLE, DocumentKind, find_kind, kind_of_type
from palyra.core.errors import Invalid
from palyra.core.spelling import strip_unseen
from palyra.ports.readable import ReadableText
from tests.support.documents import bomb_pdf, deep_pdf, encrypted_pdf, looping_pdf, pdf, pdf_of_streams
from tests.support.images import png

pytestmark = pytest.mark.anyio

CHARS_MAX = 10_000
TICK_S = 0.05
WORDS = "Größe: 5 € für alle"


async def read(body: bytes, media_type: str, chars_max: int = CHARS_MAX) -> ReadableText:
    return await IsolatedReader().read(body, media_type, chars_max)


@pytest.mark.parametrize(
    ("charset", "content_type"),
    [
        ("utf-8", "text/plain"),
        ("utf-8-sig", "text/plain"),
        ("utf-16", "text/plain"),
        ("utf-16-le", "text/plain"),
        ("utf-16-be", "text/plain"),
        ("utf-32", "text/plain"),
        ("cp1252", "text/plain"),
        ("iso8859-15", "text/plain; charset=iso-8859-15"),
        ("utf-8", "text/plain; charset=nonsense"),
        ("utf-8", "text/plain; charset=utf-7"),
    ],
)
async def test_text_is_read_in_any_sane_encoding(charset: str, content_type: str) -> None:
    body = f"{WORDS}\r\nline two\n".encode(charset)
    assert (await read(body, content_type)).text == f"{WORDS}\nline two\n"


async def test_text_tells_its_lines_and_is_cut_between_them() -> None:
    made = await read(b"one\ntwo\nthree", "text/x-python", 9)
    assert made == ReadableText(text="one\ntwo", is_cut=True, detail="3 lines")
    assert not (await read(b"one\ntwo\nthree", "text/x-python", 13)).is_cut
    assert (await read(b"abcdef", "text/plain", 4)).text == "abcd"
    assert (await read(b"", "text/plain")) == ReadableText(text="", detail="0 lines")


async def test_invisible_characters_are_dropped() -> None:
    assert (await read("a\u200bb\u202ec\U000e0041".encode(), "text/markdown")).text == "abc"


async def test_page_keeps_its_form_and_loses_what_is_hidden() -> None:
    page = (
        "<title>Offer</title><script>x()</script><h1>Price</h1><ul><li>a<li>b</ul><p style='display:none'>IGNORE ALL"
        "</p><table><tr><td>1<td>2</table><a href='https://ex.org/x'>more</a><a href='/y'>local</a><!-- secret -->"
    )
    made = await read(page.encode(), "text/html")
    assert made.title == "Offer"
    assert made.text == "# Price\n\n- a\n- b\n\n1 | 2\n\n[more](https://ex.org/x)local"


async def test_page_uses_the_charset_it_names_itself() -> None:
    page = f"<meta charset=iso-8859-15><p>{WORDS}".encode("iso-8859-15")
    assert (await read(page, "text/html")).text == WORDS


async def test_json_is_indented_and_cut_between_values() -> None:
    made = await read(b'{"a":[1,{"b":"c"}],"d":null}', "application/json")
    assert json.loads(made.text) == {"a": [1, {"b": "c"}], "d": None}
    assert made.detail == "a JSON object with 2 members"
    cut = await read(json.dumps(list(range(1000))).encode(), "application/geo+json", 50)
    assert cut.is_cut
    assert cut.detail == "a JSON array of 1000 items"
    assert cut.text.splitlines()[:2] == ["[", "  0,"]
    assert cut.text.endswith(",")


async def test_what_is_no_json_is_shown_as_it_is() -> None:
    for body in (b"{// a comment\n}", b"[" * 5000 + b"]" * 5000, b'{"a":'):
        made = await read(body, "application/json")
        assert made.text == body.decode()
        assert made.detail.endswith("not valid JSON")


async def test_json_that_would_grow_is_not_indented() -> None:
    deep = b"[" * 500 + b"]" * 500
    assert (await read(deep, "application/json")).text == deep.decode()


@pytest.mark.parametrize(
    ("body", "media_type", "text"),
    [
        (b'name,says\nx,"a, b"\n', "text/csv", "name | says\nx | a, b"),
        (b'n;m\n1,5;2\n"two\nlines";|\n', "text/csv", "n | m\n1,5 | 2\ntwo lines | \\|"),
        (b"a\tb\n1\t2\n", "text/csv", "a | b\n1 | 2"),
        (b"a,b\tc\n", "text/tab-separated-values", "a,b | c"),
        (b"only\none\n\ncolumn\n", "text/csv", "only\none\ncolumn"),
        (b"", "text/csv", ""),
    ],
)
async def test_table_has_one_row_a_line(body: bytes, media_type: str, text: str) -> None:
    assert (await read(body, media_type)).text == text


async def test_giant_table_is_cut_by_rows_and_tells_their_number() -> None:
    rows_count = 300_000
    body = b"id,name\n" + b"".join(b"%d,somebody\n" % at for at in range(rows_count))
    assert len(body) > IN_PROCESS_BYTES_MAX
    made = await read(body, "text/csv", 1000)
    lines = made.text.splitlines()
    assert made.is_cut
    assert made.detail == f"{rows_count + 1} rows of 2 columns; the first {len(lines)} fit here"
    assert lines[-1] == f"{len(lines) - 2} | somebody"


async def test_row_that_does_not_fit_is_cut() -> None:
    made = await read(b"x" * 200_000 + b",b\n", "text/csv", 100)
    assert (made.text, made.is_cut) == ("x" * 100, True)
    assert made.detail == "1 row of 2 columns; not even the first fits here"


async def test_pdf_is_read_page_by_page() -> None:
    made = await read(pdf("First words.", "Second (words).", title="A report"), "application/pdf")
    assert made.text == "[page 1]\nFirst words.\n\n[page 2]\nSecond (words)."
    assert (made.title, made.detail, made.is_cut) == ("A report", "2 pages", False)
    cut = await read(pdf(*["words " * 10] * 50), "application/pdf", 200)
    assert cut.is_cut
    assert len(cut.text) <= 200
    assert "50 pages; the first" in cut.detail


async def test_page_that_cannot_be_read_is_counted_and_the_others_are_read() -> None:
    words = b"BT /F1 12 Tf 72 700 Td (Good words.) Tj ET"
    body = pdf_of_streams([zlib.compress(words), zlib.compress(words)], is_packed=True)
    at = body.index(b"/FlateDecode ")
    made = await read(body[:at] + b"/Fl          " + body[at + 13 :], "application/pdf")
    assert made.text == "[page 2]\nGood words."
    assert made.detail == "2 pages, 1 of them could not be read"


async def test_pdf_without_text_says_so() -> None:
    made = await read(pdf(""), "application/pdf")
    assert (made.text, made.detail) == ("", "1 page, no text in them; perhaps they are pictures")


async def test_pdf_that_everybody_may_open_is_read_and_one_with_a_password_is_not() -> None:
    assert "Locked words." in (await read(encrypted_pdf(""), "application/pdf")).text
    with pytest.raises(Invalid, match="encrypted"):
        await read(encrypted_pdf("geheim"), "application/pdf")


@pytest.mark.parametrize(
    ("body", "media_type", "reason"),
    [
        (b"no pdf", "application/pdf", "its bytes are no PDF"),
        (png(), "application/pdf", "its bytes are image/png"),
        (pdf("x"), "text/plain", "its bytes are application/pdf"),
        (png(), "text/plain", "its bytes are image/png"),
        (b"PK\x03\x04" + bytes(30), "text/csv", "its bytes are application/zip"),
        (bytes(range(256)) * 10, "text/plain", "its bytes are no text"),
        (b"\x01\x02\x03\x04\x05\x06" * 100, "application/json", "its bytes are no text"),
        (b"PK\x03\x04" + bytes(30), "application/zip", "no text can be read from application/zip"),
        (bytes(64), "application/octet-stream", "no text can be read"),
        (png(), "image/png", "no text can be read from image/png"),
        (b"%PDF-1.7", "application/pdf", "damaged"),
        (b"%PDF-1.7\n" + b"garbage " * 1000, "application/pdf", "damaged"),
        (b"a" * (BODY_BYTES_MAX + 1), "text/plain", "the most that is read"),
    ],
)
async def test_what_cannot_be_read_is_refused_with_a_reason(body: bytes, media_type: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason) as refused:
        await read(body, media_type)
    assert refused.value.code == UNREADABLE


def test_types_of_source_code_are_text() -> None:
    for media_type in ("text/x-rust", "application/x-sh", "application/toml", "text/markdown", "image/svg+xml"):
        assert kind_of_type(media_type) is DocumentKind.TEXT
    assert find_kind(b"all: build\n", "application/octet-stream") is DocumentKind.TEXT
    assert find_kind(pdf("x"), "application/octet-stream") is DocumentKind.PDF
    assert kind_of_type("application/zip") is None


@pytest.mark.parametrize("make", [bomb_pdf, deep_pdf, looping_pdf])
async def test_hostile_pdf_ends_in_bounded_time_and_stops_nothing_else(make: object) -> None:
    assert callable(make)
    body = await asyncio.to_thread(make)
    reading = asyncio.create_task(read(body, "application/pdf"))
    ticks = 0
    with ThreadTicks() as beside:
        while not reading.done():
            await asyncio.sleep(TICK_S)
            ticks += 1
    assert ticks > beside.count / 5
    assert beside.count * TICK_S < 45
    try:
        made = await reading
    except Invalid as refused:
        assert refused.code == UNREADABLE
    else:
        assert len(made.text) <= CHARS_MAX


async def test_reading_that_takes_too_long_is_refused_and_its_process_is_gone() -> None:
    slow = pdf_of_streams([b"BT /F1 12 Tf " + b"(a) Tj 1 0 0 1 0 0 cm q Q " * 400_000 + b"ET"])
    before = children()
    with pytest.raises(Invalid, match="takes too long"):
        await IsolatedReader(read_s=0.3).read(slow, "application/pdf", CHARS_MAX)
    assert children() == before


class ThreadTicks:
    """Ticks beside the loop. A machine that holds up both says nothing about the loop."""

    def __init__(self) -> None:
        self.count = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._tick)

    def _tick(self) -> None:
        while not self._is_over.wait(TICK_S):
            self.count += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


REAPED_BY_ANOTHER = 255  # What asyncio answers when its watcher comes second to the transport's own look.


async def test_reply_without_end_is_dropped_and_its_process_killed() -> None:
    endless = "import sys\nwhile True: sys.stdout.write('x' * 65536)"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", endless, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert await receive(process, 1_000_000) == b""
    assert await process.wait() in (-signal.SIGKILL, REAPED_BY_ANOTHER)


async def test_cancelled_reading_leaves_no_process() -> None:
    slow = pdf_of_streams([b"BT /F1 12 Tf " + b"(a) Tj 1 0 0 1 0 0 cm q Q " * 400_000 + b"ET"])
    before = children()
    reading = asyncio.create_task(read(slow, "application/pdf"))
    while children() == before:
        await asyncio.sleep(0.01)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert children() == before


def children() -> set[str]:
    """The processes that this one started and that are not gone."""
    return {pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}


LIMITS = {
    "memory": "bytearray(2 * 1024**3)",
    "files": "open('/tmp/palyra-written', 'wb', buffering=0).write(b'x')",
}


@pytest.mark.parametrize("what", LIMITS)
def test_process_cannot_pass_its_limits(what: str, tmp_path: Path) -> None:
    attempt = LIMITS[what].replace("/tmp", str(tmp_path))
    program = f"from palyra.adapters.readable.child import limit_process; limit_process(); {attempt}"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, timeout=60, check=False)
    assert done.returncode != 0
    assert not (tmp_path / "palyra-written").exists() or (tmp_path / "palyra-written").read_bytes() == b""


TYPES = ["text/plain", "text/html", "application/json", "text/csv", "text/tab-separated-values", "application/pdf"]


@settings(max_examples=300, deadline=None)
@given(
    body=st.one_of(st.binary(max_size=400), st.text(max_size=400).map(str.encode)),
    media_type=st.sampled_from([*TYPES, "application/octet-stream", "text/x; charset=utf-16", "text/html;charset=hz"]),
    chars_max=st.integers(min_value=1, max_value=80),
)
def test_any_bytes_are_read_within_the_limit_or_refused(body: bytes, media_type: str, chars_max: int) -> None:
    try:
        made = extract(body, media_type, chars_max)
    except Invalid as refused:
        assert refused.code == UNREADABLE
        assert refused.message
        return
    assert len(made.text) <= chars_max
    assert strip_unseen(made.text) == made.text
    assert "\n" not in made.title


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damaged_pdfs_are_read_or_refused(data: st.DataObject) -> None:
    body = bytearray(pdf("First words.", "Second words.", title="T"))
    for _ in range(data.draw(st.integers(min_value=1, max_value=30))):
        at = data.draw(st.integers(min_value=9, max_value=len(body) - 1))
        body[at] = data.draw(st.integers(min_value=0, max_value=255))
    try:
        made = extract(bytes(body), "application/pdf", 100)
    except Invalid as refused:
        assert refused.code == UNREADABLE
    else:
        assert len(made.text) <= 100


@given(body=st.binary(max_size=200), content_type=st.text(max_size=40))
def test_decoding_never_fails(body: bytes, content_type: str) -> None:
    decoded = decode_text(body, content_type)
    assert decoded is None or isinstance(decoded[0], str)
