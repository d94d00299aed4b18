"""Secrets known by their value: caught whatever they look like, whole or in pieces, and nothing else with them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.redaction import KnownSecrets, Redactor, restore

PLAIN = "correcthorsebattery"
SIGNED = "a1,b2;c3&d4=e5?f6"
MIXED = "tulip-42"
KEY = bytes(range(32))


def redactor(*values: str) -> Redactor:
    known = KnownSecrets()
    for value in values:
        known.add(value)
    return Redactor(KEY, known)


OURS = redactor(PLAIN, SIGNED, MIXED)
texts = st.lists(
    st.sampled_from([PLAIN, SIGNED, MIXED, " ", "\n", "the ", "x", ".", "token=", "日本"]), max_size=20
).map("".join)


@pytest.mark.parametrize("value", [PLAIN, SIGNED, MIXED])
@pytest.mark.parametrize("frame", ["{}", "Your key is {}, I think.", 'error: "{}"', "a{}b", "{}{}"])
def test_a_known_value_is_caught_in_any_place(value: str, frame: str) -> None:
    text = frame.format(value, value)
    redacted = OURS.text(text)
    assert value not in redacted.text
    assert restore(redacted.text, {secret.id: secret.value for secret in redacted.secrets}) == text


@pytest.mark.parametrize("value", ["ollama", "password", "dummy", "two words 12", "short1"])
def test_words_that_people_use_are_not_taken_for_keys(value: str) -> None:
    assert redactor(value).text(f"We said {value} twice.").text == f"We said {value} twice."


@given(texts, st.lists(st.integers(1, 7), min_size=1, max_size=8))
def test_a_stream_decides_as_the_whole_text_does(text: str, widths: list[int]) -> None:
    stream = OURS.stream()
    sent, at, turn = "", 0, 0
    while at < len(text):
        width = widths[turn % len(widths)]
        sent += stream.feed(text[at : at + width])
        assert not any(value in sent for value in (PLAIN, SIGNED, MIXED))
        at, turn = at + width, turn + 1
    sent += stream.finish()
    assert sent == OURS.text(text).text
    assert not any(value in sent for value in (PLAIN, SIGNED, MIXED))


@given(texts)
def test_what_is_redacted_stays_as_it_is(text: str) -> None:
    once = OURS.text(text).text
    assert OURS.text(once).text == once


def test_a_key_that_was_replaced_stays_known() -> None:
    known = KnownSecrets()
    ours = Redactor(KEY, known)
    known.add(PLAIN)
    known.add("another-key-of-ours")
    assert PLAIN not in ours.text(PLAIN).text


def test_values_inside_of_records_and_names_are_caught() -> None:
    value = OURS.value({"a": [PLAIN], PLAIN: {"b": f"x {SIGNED}"}}).value
    assert PLAIN not in str(value)
    assert SIGNED not in str(value)
