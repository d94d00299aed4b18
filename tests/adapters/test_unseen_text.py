"""One list of characters that are not seen: whoever shows text to a model or a person removes or shows each of them."""

import re
from collections.abc import Callable

import pytest

from palyra.adapters.browser.outline import cleaned, one_line
from palyra.adapters.browser.outline_script import SCRIPT
from palyra.adapters.runtimes.mcp.server_text import clean, clean_line
from palyra.adapters.skills.front_matter import read_manifest
from palyra.cli.terminal.style import in_one_line, shown
from palyra.cli.terminal.word_wrap import wrap
from palyra.core.pages.readable import make_readable
from palyra.core.spelling import BLANK_RANGES, is_seen

BLANKS = [chr(code) for first, last in BLANK_RANGES for code in {first, last}]
# fmt: off
OTHERS = [chr(code) for code in (
    0x00, 0x07, 0x0B, 0x0C, 0x1B, 0x1F, 0x7F, 0x85, 0x9B, 0xAD, 0x061C, 0x180E, 0x200B, 0x200C, 0x200D, 0x200E, 0x200F,
    0x202A, 0x202E, 0x2060, 0x2065, 0x206F, 0xE000, 0xFEFF, 0xFFF0, 0xFFF9, 0xFFFB, 0x1BCA0, 0x1D173, 0xE0001, 0xE0041,
    0xE007F, 0xE0FFF, 0xF0000, 0x10FFFF,
)]
# fmt: on
UNSEEN = [*BLANKS, *OTHERS]


def page(text: str) -> str:
    return make_readable(f"<p>{text}</p>", "http://a.example/").text


TO_MODELS: dict[str, Callable[[str], str]] = {
    "MCP text": lambda text: clean(text, 50),
    "MCP line": lambda text: clean_line(text, 50),
    "page": page,
    "title of a page": lambda text: make_readable(f"<title>{text}</title>", "http://a.example/").title,
    "outline": cleaned,
    "name in an outline": lambda text: one_line(text, 50),
}
TO_PEOPLE: dict[str, Callable[[str], str]] = {
    "lines": shown,
    "line": lambda text: in_one_line(text, 80),
    "card": lambda text: "".join(wrap(text, 80, "")),
}


@pytest.mark.parametrize("letter", UNSEEN, ids=ascii)
@pytest.mark.parametrize("reader", TO_MODELS)
def test_no_model_reads_what_nobody_sees(reader: str, letter: str) -> None:
    read = TO_MODELS[reader](f"be{letter}fore")
    assert letter not in read
    assert re.fullmatch(r"be ?(\ufffd)?fore", read.strip()), ascii(read)


@pytest.mark.parametrize("letter", UNSEEN, ids=ascii)
@pytest.mark.parametrize("reader", TO_PEOPLE)
def test_people_see_the_code_of_what_nobody_sees(reader: str, letter: str) -> None:
    assert TO_PEOPLE[reader](f"be{letter}fore") == f"be{letter.encode('unicode_escape').decode()}fore"


@pytest.mark.parametrize("letter", [each for each in UNSEEN if not each.isspace()], ids=ascii)
def test_skill_with_what_nobody_sees_is_not_used_or_says_so(letter: str) -> None:
    text = "---\nname: tidy\ndescription: {}\n---\n{}\n"
    spoiled = read_manifest(text.format(f"It {letter}tidies.", "Do it.").encode("utf-8", "surrogatepass"), "tidy")
    assert spoiled.problems
    noted = read_manifest(text.format("It tidies.", f"Do {letter}it.").encode("utf-8", "surrogatepass"), "tidy")
    assert noted.problems or any("cannot be seen" in note for note in noted.notes)


def test_script_of_the_browser_has_the_list_of_python() -> None:
    for first, last in BLANK_RANGES:
        assert rf"\u{{{first:x}}}-\u{{{last:x}}}" in SCRIPT


def test_nothing_on_the_list_is_seen() -> None:
    assert not any(map(is_seen, UNSEEN))
