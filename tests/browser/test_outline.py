"""The outline's words, without a browser: bounded, clean, and only our own refs in them."""

import re
from string import printable

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from palyra.adapters.browser.outline import (
    PAGES_REMEMBERED,
    TEXT_BYTES_MAX,
    PageContent,
    Refs,
    controls_of,
    number_of,
    one_line,
    read_seen,
    render,
)
from palyra.adapters.browser.outline_script import CONTROLS_MAX
from tests.support.strategies import json_objects

CONTROLS = st.fixed_dictionaries(
    {"role": st.text(max_size=30), "name": st.text(max_size=300)},
    optional={"value": st.text(max_size=50), "href": st.text(max_size=50), "checked": st.booleans()},
)
SHARDS = st.sampled_from(["[", "e", "[e", "12", "5]", "]", "\u200b", "\x00", "\x01", "\x00e5\x01", "\n"])
PIECES = st.lists(SHARDS | st.text(max_size=200) | CONTROLS | json_objects, max_size=20)


@given(pieces=PIECES)
def test_every_ref_in_the_text_is_one_that_was_given(pieces: list[str | dict[str, object]]) -> None:
    seen = PageContent(pieces=tuple(pieces), count=len(pieces))
    text = render(seen, range(500, 500 + len(pieces)))
    refs = [int(ref) for ref in re.findall(r"\[e(\d+)\]", text)]
    assert refs == list(range(500, 500 + len(refs)))
    assert len(refs) == len(controls_of(seen))
    assert all(letter == "\n" or letter.isprintable() for letter in text)
    assert len(text.encode()) < TEXT_BYTES_MAX + 100


@given(raw=json_objects | st.none() | st.text() | st.lists(st.integers()))
def test_whatever_a_page_gives_back_is_an_outline(raw: object) -> None:
    render(read_seen(raw), range(0))


def test_text_beyond_the_limit_is_cut_at_a_line_with_a_note() -> None:
    lines = tuple(f"line {number}\n" for number in range(20_000))
    text = render(PageContent(pieces=lines), range(0))
    assert len(text.encode()) < TEXT_BYTES_MAX + 100
    assert text.endswith("\n[the page is longer than what is shown here]")
    exact = "x" * TEXT_BYTES_MAX
    assert render(PageContent(pieces=(exact,)), range(0)) == exact


def test_controls_beyond_the_limit_are_shown_without_a_ref() -> None:
    control: dict[str, object] = {"role": "link", "name": "x"}
    text = render(PageContent(pieces=(control, control), count=1), range(7, 8))
    assert text == '[e7] link "x" link "x"'


def test_refs_are_never_shared_by_pages_of_lately() -> None:
    refs = Refs()
    given_out = [refs.take(CONTROLS_MAX) for _ in range(PAGES_REMEMBERED)]
    assert len({number for each in given_out for number in each}) == CONTROLS_MAX * PAGES_REMEMBERED


@given(text=st.text() | st.text(alphabet=printable) | st.from_regex(r"\[?e\d{1,12}\]?"))
def test_ref_is_read_strictly(text: str) -> None:
    number = number_of(text)
    assert number is None or f"e{number}" == text.strip().strip("[]")
    assert number_of(None) is None


@given(text=st.text(max_size=400))
def test_one_line_is_one_line_of_bounded_length(text: str) -> None:
    line = one_line(text, 100)
    assert len(line) <= 100
    assert len(line.splitlines()) <= 1


def test_pieces_are_told_in_their_order() -> None:
    raw = {
        "title": "t",
        "pieces": ["\n", "# ", "Head", "\n", {"role": "button", "name": 'a "b"'}, "\n", {"frame": "x"}],
    }
    seen = read_seen(msgspec.json.decode(msgspec.json.encode({**raw, "isCut": False, "count": 1})))
    assert render(seen, range(5, 6)) == "# Head\n[e5] button \"a 'b'\"\n[frame of another site, not read: x]"
