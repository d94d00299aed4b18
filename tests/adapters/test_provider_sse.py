"""The reader of event streams: whatever the pieces, line ends and oddities, the same events."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.core.errors import Unavailable
from palyra.core.sse import SseEvent, SseParser

# fmt: off
LINES = st.sampled_from([
    "data: {}", "data:x", "data", "data:  two spaces", "event: name", "event:", ": comment", ":", "id: 4", "retry: 5",
    "strange", "data: žluťoučký kůň 🐎", "dat: no", "data: a:b", "", "", "",
])
# fmt: on


def parse(*pieces: bytes, limit: int = 1 << 20) -> list[SseEvent]:
    parser = SseParser(limit)
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events + parser.finish()


def test_events_of_one_read_come_at_once() -> None:
    parser = SseParser()
    assert len(parser.feed(b"data: 1\n\ndata: 2\n\nevent: last\ndata: 3\n\n")) == 3


def test_fields_are_read_as_the_standard_says() -> None:
    body = b"event: add\ndata: one\ndata:two\ndata\n\n: ping\n\nid: 7\ndata: x\n\nevent: lost\n\ndata:  y\n\n"
    assert parse(body) == [SseEvent(b"add", b"one\ntwo\n"), SseEvent(b"", b"x", b"7"), SseEvent(b"", b" y")]


def test_a_mark_at_the_beginning_is_not_part_of_it() -> None:
    assert parse(b"\xef\xbb\xbfdata: 1\n\n") == [SseEvent(b"", b"1")]
    assert parse(b"\xef", b"\xbb\xbfda", b"ta: 1\n\n") == [SseEvent(b"", b"1")]


def test_an_event_whose_blank_line_is_missing_comes_at_the_end() -> None:
    assert parse(b"data: [DONE]") == [SseEvent(b"", b"[DONE]")]
    assert parse(b"data: [DONE]\n") == [SseEvent(b"", b"[DONE]")]


@given(lines=st.lists(LINES, max_size=20), data=st.data())
def test_line_ends_and_cuts_change_nothing(lines: list[str], data: st.DataObject) -> None:
    expected = parse("".join(f"{line}\n" for line in lines).encode())
    ends = [data.draw(st.sampled_from(["\n", "\r\n", "\r"])) for _ in lines]
    # A CR followed by an LF of an empty line's own would be one line end and not two.
    for at in range(len(ends) - 1):
        if ends[at] == "\r" and lines[at + 1] == "" and ends[at + 1].startswith("\n"):
            ends[at] = "\r\n"
    body = "".join(line + end for line, end in zip(lines, ends, strict=True)).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=8)))
    assert parse(*(body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True))) == expected
    assert parse(*(body[at : at + 1] for at in range(len(body)))) == expected


def test_a_large_event_is_read_and_one_beyond_the_limit_is_refused() -> None:
    large = b"data: " + b"x" * 900_000 + b"\n\n"
    assert len(parse(*(large[at : at + 1000] for at in range(0, len(large), 1000)))[0].data) == 900_000
    for body in (b"x" * 2_000_000, b"data: xxxxxxxxx\n" * 200_000, b"data: " + b"x" * 2_000_000 + b"\n\n"):
        with pytest.raises(Unavailable) as caught:
            parse(*(body[at : at + 65_536] for at in range(0, len(body), 65_536)))
        assert caught.value.code == "event_too_large"


# fmt: off
PIECES = st.sampled_from([
    b"data: one\n\n", b"data: two\n\n", b"data:three\n\n", b"event: named\n", b"data: a\ndata: b\n\n", b"\n", b"\r\n", b"\r",
    b"data: four\r\n\r\n", b": note\n\n", b"data: \n\n", b"data: half", b"id: 7\n", b"\xef\xbb\xbf", b"data: \xc3\xa9\n\n", b"d",
])
# fmt: on


@given(st.lists(PIECES, max_size=14), st.lists(st.integers(min_value=0, max_value=200), max_size=10))
@settings(max_examples=300, deadline=None)
def test_events_are_the_same_in_any_pieces(pieces: list[bytes], cuts: list[int]) -> None:
    """One byte at a time takes no short cut."""
    text = b"".join(pieces)
    slowly, quickly, whole = SseParser(), SseParser(), SseParser()
    expected = [event for at in range(len(text)) for event in slowly.feed(text[at : at + 1])] + slowly.finish()
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    found = [event for start, end in pairwise(places) for event in quickly.feed(text[start:end])] + quickly.finish()
    assert found == expected
    by_piece = [event for piece in pieces for event in whole.feed(piece)] + whole.finish()
    assert by_piece == expected
