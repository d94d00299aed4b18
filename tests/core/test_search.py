"""Expressions for the index: whatever is typed is words, and none of it an operator."""

import re

from hypothesis import given
from hypothesis import strategies as st

from palyra.core.search import WORDS_MAX, all_words, any_word

EXPRESSION = re.compile(r'"[^"\x00]+"(?: (?:AND|OR) "[^"\x00]+")*')


def test_words_are_quoted_and_joined() -> None:
    assert all_words("red apple") == '"red" AND "apple"'
    assert any_word("red apple") == '"red" OR "apple"'
    assert all_words('"red apple" pie') == '"red apple" AND "pie"'


def test_operators_are_words() -> None:
    assert all_words("a OR b NOT text:c*") == '"a" AND "OR" AND "b" AND "NOT" AND "text:c*"'


def test_what_holds_no_word_is_nothing_to_look_for() -> None:
    assert [all_words(query) for query in ("", "  ", '""', "*** -", '"')] == [None] * 5


def test_words_are_bounded() -> None:
    assert (all_words("w " * 1000) or "").count('"w"') == WORDS_MAX


@given(query=st.text(st.characters(codec=None), max_size=500))
def test_every_query_gives_a_well_formed_expression_or_none(query: str) -> None:
    for match in (all_words(query), any_word(query)):
        assert match is None or EXPRESSION.fullmatch(match)
