"""Lines are broken between words, however the text arrives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.cli.terminal.style import cells
from palyra.cli.terminal.word_wrap import WordWrap, wrap_lines

WORDS = "The quick brown fox jumps over the lazy dog and goes on"


def streamed(text: str, columns: int, size: int) -> str:
    lines = WordWrap(lambda: columns)
    pieces = [text[place : place + size] for place in range(0, len(text), size)]
    return "".join(map(lines.add, pieces)) + lines.end()


@pytest.mark.parametrize("columns", [10, 13, 20, 55])
@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_no_word_is_split_and_no_line_is_too_wide(columns: int, size: int) -> None:
    lines = streamed(WORDS, columns, size).split("\n")
    assert " ".join(lines) == WORDS
    assert all(len(line) <= columns for line in lines)


def test_lines_are_as_full_as_they_can_be() -> None:
    assert wrap_lines("aaa bbb ccc", 7) == "aaa bbb\nccc"
    assert wrap_lines("aaa bbbb ccc", 7) == "aaa\nbbbb\nccc"


def test_the_held_word_fits_into_its_line() -> None:
    lines = WordWrap(lambda: 7)
    assert (lines.add("aaa bb"), lines.held) == ("aaa", " bb")
    assert (lines.add("b"), lines.held) == ("", " bbb")
    assert (lines.add("b"), lines.held) == ("\n", "bbbb")


def test_an_address_that_fits_no_line_stays_whole() -> None:
    address = "https://example.com/a/very/long/path?with=a&query=too"
    assert wrap_lines(f"see {address} for more words", 20) == f"see\n{address} for\nmore words"


def test_wide_characters_fill_lines_and_punctuation_stays_with_its_word() -> None:
    assert wrap_lines("日本語日本語", 6) == "日本語\n日本語"
    assert wrap_lines("日本語。日本", 6) == "日本\n語。日\n本"
    assert wrap_lines("text 日本語", 8) == "text 日\n本語"


def test_an_emoji_of_several_characters_is_not_taken_apart() -> None:
    family = "👩\u200d👩\u200d👧"
    assert wrap_lines(f"words {family}", 9) == f"words\n{family}"


def test_code_blocks_are_left_as_they_are() -> None:
    code = "```python\nprint('a line of code that is wider than the terminal')\n```\n"
    assert wrap_lines(f"{code}some words after it", 12) == f"{code}some words\nafter it"
    assert wrap_lines("```one line``` and words", 12) == "```one\nline``` and\nwords"


def test_the_next_answer_is_outside_the_code_block_of_one_that_broke_off() -> None:
    lines = WordWrap(lambda: 12)
    assert lines.add("```\ncode code code") + lines.end() == "```\ncode code code"
    assert lines.add("some words after it") + lines.end() == "some words\nafter it"


def test_further_lines_of_a_list_item_begin_below_its_text() -> None:
    assert wrap_lines("- one two three", 10) == "- one two\n  three"
    assert wrap_lines("  12. one two", 12) == "  12. one\n      two"
    assert wrap_lines("    one two", 8) == "    one\n    two"


def test_colours_take_no_room() -> None:
    assert wrap_lines("\x1b[2maaa\x1b[0m bbb ccc", 7) == "\x1b[2maaa\x1b[0m bbb\nccc"


@given(st.text(alphabet="ab -1.`\t\n日。é👩\u200d", max_size=60), st.integers(1, 12), st.integers(1, 9))
def test_nothing_is_lost_and_pieces_make_no_difference(text: str, columns: int, size: int) -> None:
    whole = wrap_lines(text, columns)
    assert "".join(whole.split()) == "".join(text.split())
    assert streamed(text, columns, size) == whole
    if "`" not in text:
        for line in whole.split("\n"):
            is_indented_far = cells(line) - cells(line.lstrip()) > columns // 2
            long_words = [word for word in line.split() if cells(word) > max(1, columns // 2)]
            is_left = is_indented_far or long_words or not line.rstrip("\t ") or "\t" in line
            assert cells(line.rstrip().expandtabs()) <= columns or is_left
