"""Long answers in parts: nothing is lost, and code stays code."""

import re

from hypothesis import given
from hypothesis import strategies as st

from palyra.core.channels.answer_parts import FENCE, split_answer, without_broadcast

WORDS = st.text(alphabet="ab \n`", max_size=400)


@given(WORDS, st.integers(min_value=60, max_value=200))
def test_no_part_is_too_long_and_every_letter_is_there_in_order(text: str, length_max: int) -> None:
    parts = split_answer(text, length_max)
    assert all(len(part) <= length_max for part in parts)
    assert "".join(re.findall("[ab]", "".join(parts))) == "".join(re.findall("[ab]", text))


@given(st.lists(st.sampled_from(["word " * 20, f"{FENCE}python\n" + "x = 1\n" * 30 + FENCE, "short"]), max_size=12))
def test_every_part_closes_the_block_it_opens(pieces: list[str]) -> None:
    for part in split_answer("\n\n".join(pieces), 400):
        assert sum(line.startswith(FENCE) for line in part.splitlines()) % 2 == 0


def test_a_block_that_fits_stays_whole() -> None:
    block = f"{FENCE}python\n" + "x = 1\n" * 20 + FENCE
    parts = split_answer("intro " * 40 + "\n\n" + block + "\n\nend", 300)
    assert any(block in part for part in parts)


def test_a_cut_block_is_opened_again_with_its_language() -> None:
    parts = split_answer(f"{FENCE}python\n" + "x = 1\n" * 200 + FENCE, 300)
    assert len(parts) > 2
    assert all(part.startswith(f"{FENCE}python") and part.endswith(FENCE) for part in parts)


def test_a_flood_is_bounded_and_says_so() -> None:
    parts = split_answer("word " * 20_000, 500)
    assert len(parts) == 20
    assert "more characters are in the session" in parts[-1]


def test_nobody_is_called_by_an_answer() -> None:
    said = without_broadcast("@everyone @here <!channel> and bob@everyoneshop.com, @Everyone")
    assert not re.search(r"@(everyone|here)\b|<!channel", said, re.IGNORECASE)
    assert said.replace("\u200b", "") == "@everyone @here <!channel> and bob@everyoneshop.com, @Everyone"
