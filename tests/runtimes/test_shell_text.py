"""Output as text: nothing of it can drive a terminal, and it is the same however it is cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.adapters.runtimes.shell.text import OutputText

_PARTS = [
    b"\x1b", b"\x1b[", b"\x1b[31m", b"\x1b]0;title", b"\x07", b"\x1b\\", b"\x1b]8;;x\x1b\\", b"\x1bP", b"\x1b(", b"B", b"m",
    b"\r", b"\n", b"\r\n", b"\x08", b"\x00", b"\x9b", b"\xc2\x9b", b"\xe2\x80\xae", b"\xff", b"\xe2\x82", b"\xac", b"text", b" ",
    b"\x1b]" + b"x" * 2047, b"x" * 3000, b";", b"0", b"\x7f", b"\t", b"\x1b[?25l", b"\x1bc", b"\x18", b"\xf0\x9f\x98\x80",
]  # fmt: skip
streams = st.one_of(st.binary(max_size=200), st.lists(st.sampled_from(_PARTS), max_size=30).map(b"".join))


def cleaned(*pieces: bytes) -> str:
    cleaner = OutputText()
    return "".join([*(cleaner.feed(piece) for piece in pieces), cleaner.finish()])


@given(streams)
def test_no_control_character_but_line_ends_and_tabs_survives(body: bytes) -> None:
    text = cleaned(body)
    assert [
        letter for letter in text if letter not in "\n\t" and (ord(letter) < 32 or 0x7F <= ord(letter) < 0xA0)
    ] == []
    assert not set(text) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@given(streams)
def test_cleaning_again_changes_nothing(body: bytes) -> None:
    text = cleaned(body)
    assert cleaned(text.encode()) == text


@given(streams, st.lists(st.integers(0, 6000), max_size=6))
def test_cut_anywhere_it_is_the_same(body: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    pieces = [body[start:end] for start, end in pairwise(places)]
    assert cleaned(*pieces) == cleaned(body)


@given(streams)
def test_little_is_held_back(body: bytes) -> None:
    cleaner = OutputText()
    cleaner.feed(body)
    assert len(cleaner.finish()) <= 2200


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b"\x1b]0;a title\x07shown", "shown"),
        (b"\x1b]52;c;ZXZpbA==\x1b\\shown", "shown"),
        (b"\x1bP+q544e\x1b\\shown\x1b(B", "shown"),
        (b"10%\r20%\r\ndone\r", "10%\n20%\ndone\n"),
        (b"pass\x08\x08word", "pass\ufffd\ufffdword"),
        (b"\xc2\x9b31m", "\ufffd31m"),
        (b"\x1b", ""),
        (b"\x1b[12", "[12"),
        ("a\u202eb é 😀\t".encode(), "a\ufffdb é 😀\t"),
    ],
)
def test_known_sequences(body: bytes, text: str) -> None:
    assert cleaned(body) == text
