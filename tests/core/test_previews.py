"""Previews of results that spilled: never too long, whole lines from both ends, errors between, markers unbroken."""

import re

from hypothesis import given
from hypothesis import strategies as st

from palyra.core.ids import ArtifactId
from palyra.core.previews import PREVIEW_BYTES_MAX, cut_after, cut_before, preview_spilled
from palyra.core.redaction.markers import MARKER

ID = ArtifactId("c" * 64)
MARK = "‹secret:api_key:0123456789ab›"
pieces = st.sampled_from(
    ["word ", "žluťoučký ", "🦊", "\n", "\n\n", MARK, "ERROR: it failed\n", "x" * 300, "日本" * 90]
)
texts = st.lists(pieces, max_size=400).map("".join)


def size(text: str) -> int:
    return len(text.encode())


@given(text=texts, limit_bytes=st.integers(1024, 8192))
def test_a_preview_is_never_longer_than_asked_and_breaks_no_marker(text: str, limit_bytes: int) -> None:
    shown = preview_spilled(text, ID, limit_bytes)
    assert size(shown) <= limit_bytes
    assert len(MARKER.findall(shown)) == shown.count("‹") == shown.count("›")
    if size(text) <= limit_bytes:
        assert shown == text


@given(text=texts, limit_bytes=st.integers(1024, 4096))
def test_a_preview_has_the_beginning_the_end_and_how_to_read_on(text: str, limit_bytes: int) -> None:
    shown = preview_spilled(text, ID, limit_bytes)
    if shown == text:
        return
    note = re.search(r"\[(\d+) lines?, (\d+) bytes left out; artifact.read with id (\w+) and offset (\d+)", shown)
    assert note is not None
    head, tail = shown[: note.start() - 1], shown.rpartition("]\n")[2]
    offset, left_out = int(note[4]), int(note[2])
    assert note[3] == ID
    assert text.encode()[:offset].decode().rstrip("\n") == head.removesuffix("…").rstrip("\n")
    assert text.endswith(tail.removeprefix("…"))
    assert offset + left_out + size(tail.removeprefix("…")) == size(text)


def test_lines_are_kept_whole_where_they_fit() -> None:
    lines = [f"line {number}" for number in range(5000)]
    shown = preview_spilled("\n".join(lines), ID)
    told = [line for line in shown.split("\n") if not line.startswith("[")]
    assert told[0] == "line 0"
    assert told[-1] == "line 4999"
    assert set(told) <= set(lines)
    assert size(shown) <= PREVIEW_BYTES_MAX


def test_lines_that_look_like_errors_are_shown_with_their_numbers_and_the_rest_counted() -> None:
    lines = [f"step {number} went well, as did all others before it" for number in range(2000)]
    lines[700] = "TypeError: unsupported operand"
    lines[900] = "make: *** [all] Failed"
    shown = preview_spilled("\n".join(lines), ID)
    assert "\n701: TypeError: unsupported operand\n901: make: *** [all] Failed\n[The end:]\n" in shown
    many = preview_spilled("\n".join(f"{number} error" for number in range(3000)), ID)
    assert re.search(r"\[and 2\d{3} more\]", many)
    assert size(many) <= PREVIEW_BYTES_MAX


def test_a_text_without_lines_is_cut_at_both_ends() -> None:
    shown = preview_spilled("a" * 10_000 + "z" * 10_000, ID)
    assert shown.startswith("aaaa")
    assert shown.endswith("zzzz")
    assert "[1 line, " in shown


def test_half_a_character_is_no_reason_to_fail() -> None:
    assert size(preview_spilled("\ud83d" * 9000, ID)) <= PREVIEW_BYTES_MAX


@given(text=texts, room_bytes=st.integers(0, 400))
def test_cuts_lie_between_characters_and_outside_of_markers(text: str, room_bytes: int) -> None:
    start, end = cut_after(text, room_bytes), cut_before(text, room_bytes)
    assert text.startswith(start)
    assert text.endswith(end)
    for cut in (start, end):
        assert size(cut) <= room_bytes
        assert len(MARKER.findall(cut)) == cut.count("‹") == cut.count("›")
