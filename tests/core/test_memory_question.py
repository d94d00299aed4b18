"""Questions to memory: which words are looked for, whom they name, and which time."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.core.memory.question import TERM_LENGTH_MAX, TERMS_MAX, named_words, plain_words, spaced, take_apart
from palyra.core.memory.time_words import (
    YEARS_MAX,
    Period,
    asks_for_time,
    day_of,
    days_of,
    find_period,
    has_time_words,
    is_in,
    nearness,
    said_at,
)
from tests.support.examples import examples

NOW_MS = int(datetime(2023, 6, 15, 12, tzinfo=UTC).timestamp() * 1000)
GRETA = (("greta", "Greta"),)


def day(year: int, month: int, day_number: int) -> int:
    return int(datetime(year, month, day_number, tzinfo=UTC).timestamp() * 1000)


def test_words_that_say_nothing_are_not_looked_for() -> None:
    assert take_apart("What is the name of my dog?", (), NOW_MS).terms == ("name", "dog")


def test_a_question_of_such_words_alone_keeps_them() -> None:
    assert take_apart("Who am I?", (), NOW_MS).terms == ("who", "am", "i")


def test_a_speaker_is_whom_it_asks_about_and_no_word() -> None:
    asked = take_apart("What is Greta's dream, and why does Greta paint?", GRETA, NOW_MS)
    assert asked.terms == ("dream", "paint")
    assert asked.speakers == {"Greta"}
    assert asked.vector_text == "What is my dream, and why does I paint?"


def test_a_question_of_a_name_alone_is_still_answered() -> None:
    assert take_apart("Greta?", GRETA, NOW_MS).terms == ("greta",)


def test_scripts_without_spaces_become_pairs_of_signs() -> None:
    assert plain_words("我喜欢猫 and cats") == ["我喜", "喜欢", "欢猫", "and", "cats"]
    assert plain_words("猫") == ["猫"]


@settings(max_examples=examples(200))
@given(st.text(max_size=300))
def test_any_text_becomes_a_bounded_question(text: str) -> None:
    asked = take_apart(text, [(word, "X") for word in named_words(text)[:1]], NOW_MS)
    assert len(asked.terms) <= TERMS_MAX
    assert all(0 < len(term) <= TERM_LENGTH_MAX and '"' not in term for term in asked.terms)
    spaced(text).encode()


@pytest.mark.parametrize(
    ("text", "first", "end"),
    [
        ("What happened on 7 May 2023?", (2023, 5, 7), (2023, 5, 8)),
        ("What did she do on May 7th, 2023?", (2023, 5, 7), (2023, 5, 8)),
        ("Where was I in May 2023?", (2023, 5, 1), (2023, 6, 1)),
        ("and in December 2022?", (2022, 12, 1), (2023, 1, 1)),
        ("Who visited in 2022?", (2022, 1, 1), (2023, 1, 1)),
        ("2023-05-07", (2023, 5, 7), (2023, 5, 8)),
        ("What did I say yesterday?", (2023, 6, 14), (2023, 6, 15)),
        ("What did I do last week?", (2023, 6, 1), (2023, 6, 15)),
    ],
)
def test_a_question_names_a_period(text: str, first: tuple[int, int, int], end: tuple[int, int, int]) -> None:
    assert find_period(text, NOW_MS) == Period(day(*first), day(*end))


def test_a_month_without_a_year_is_in_every_year() -> None:
    asked = find_period("What did he do in May?", NOW_MS)
    assert asked == Period(month=5)
    assert is_in(Period(day(2021, 5, 3), day(2021, 5, 4)), asked)
    assert not is_in(Period(day(2021, 6, 3), day(2021, 6, 4)), asked)


def test_what_is_told_soon_after_an_event_counts_in_part() -> None:
    asked = find_period("What did she do on 7 May 2023?", NOW_MS)
    assert asked is not None
    said = [Period(day(2023, 5, number), day(2023, 5, number + 1)) for number in (6, 7, 9, 20)]
    assert [nearness(one, asked) for one in said] == [0.0, 1.0, 0.5, 0.0]


def test_the_days_of_a_month_without_a_year_are_those_of_every_year_there_is() -> None:
    first, last = day_of(day(2021, 8, 3)), day_of(day(2023, 2, 1))
    spans = days_of(Period(month=5), first, last)
    assert spans == [(day_of(day(year, 5, 1)), day_of(day(year, 6, 1))) for year in (2023, 2022, 2021)]
    assert len(days_of(Period(month=5), -(10**6), 2 * 10**6)) <= YEARS_MAX


@pytest.mark.parametrize("text", ["What may I eat?", "She may march on", "31 February 2023", "", "99 May 2023"])
def test_words_that_only_look_like_a_date_name_none(text: str) -> None:
    assert find_period(text, NOW_MS) is None


@pytest.mark.parametrize("at", ["1:56 pm on 8 May, 2023", "2023-05-08T13:56:00Z", "May 8, 2023"])
def test_an_items_own_time_is_read(at: str) -> None:
    assert said_at(at) == Period(day(2023, 5, 8), day(2023, 5, 9))


@settings(max_examples=examples(200))
@given(st.text(max_size=100), st.integers(min_value=-(10**18), max_value=10**18))
def test_no_text_and_no_clock_breaks_a_date(text: str, at_ms: int) -> None:
    said_at(text)
    find_period(text, at_ms)


def test_when_asks_for_a_time_and_texts_tell_one() -> None:
    assert asks_for_time("When did she leave?")
    assert asks_for_time("In which year was that?")
    assert not asks_for_time("What do you do when it rains?")
    assert has_time_words("I went camping last Saturday")
    assert has_time_words("We deploy on Tuesdays")
    assert not has_time_words("I went camping")
