"""Text for eyes: whatever is not seen becomes its code, and nothing else changes."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.spelling import hides_something, is_seen, spell_json, spell_out, strip_unseen

UNSEEN = (
    "\x00\x07\x1b\x7f\x85\x9b\xa0\xad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b\u180e\u2000\u200b\u200d\u200e\u2028\u2029"
    "\u202e\u202f\u2060\u2066\u2800\u3000\u3164\ud800\ue000\ufe00\ufe0f\ufeff\uffa0\ufff9\U0001d159\U000e0041\U000e0101"
    "\U000f0000\U0010ffff"
)
SEEN = 'aZ09 ~\\"éßЖ日本한ि\u0301👍€—…'


@pytest.mark.parametrize("letter", UNSEEN, ids=ascii)
def test_character_that_is_not_seen_is_spelled_out(letter: str) -> None:
    assert not is_seen(letter)
    spelled = spell_out(f"a{letter}b")
    assert spelled == f"a{letter.encode('unicode_escape').decode()}b"
    assert spelled.isascii()


def test_what_is_seen_stays_and_so_does_what_is_kept() -> None:
    assert spell_out(SEEN) == SEEN
    assert spell_out("a\n\tb") == "a\\n\\tb"
    assert spell_out("a\n\tb\u3164", kept="\n\t") == "a\n\tb\\u3164"


def test_no_category_that_hides_is_seen() -> None:
    hiding = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}
    for code in [*range(0x3100), *range(0xD7F0, 0xE010), *range(0xF8F0, 0x10010), *range(0xE0000, 0xE0200)]:
        letter = chr(code)
        assert letter == " " or unicodedata.category(letter) not in hiding or not is_seen(letter), ascii(letter)


@given(st.text(st.characters() | st.sampled_from(UNSEEN)), st.text(st.characters() | st.sampled_from(UNSEEN)))
def test_spelled_text_is_all_seen_and_may_be_spelled_in_parts(one: str, other: str) -> None:
    assert all(is_seen(letter) for letter in spell_out(one))
    assert spell_out(one) + spell_out(other) == spell_out(one + other)
    assert spell_out(spell_out(one)) == spell_out(one)


@pytest.mark.parametrize("letter", UNSEEN, ids=ascii)
def test_character_that_is_not_seen_is_stripped_and_words_stay_apart(letter: str) -> None:
    between = "\n" if letter in "\u2028\u2029" else " " if letter.isspace() else ""
    assert strip_unseen(f"a{letter}b") == f"a{between}b"


def test_stripping_leaves_what_is_seen_and_lines() -> None:
    assert strip_unseen(f"{SEEN}\n\t{SEEN}") == f"{SEEN}\n\t{SEEN}"
    assert strip_unseen("a\r\nb\rc") == "a\nb\nc"


@given(st.text(st.characters() | st.sampled_from(UNSEEN)))
def test_stripped_text_is_all_seen(text: str) -> None:
    stripped = strip_unseen(text)
    assert all(is_seen(letter) or letter in "\n\t" for letter in stripped)
    assert strip_unseen(stripped) == stripped


@pytest.mark.parametrize("letter", UNSEEN, ids=ascii)
def test_text_hides_something_unless_it_is_a_space_or_the_joint_of_an_emoji(letter: str) -> None:
    is_space = letter.isspace() and letter not in "\x85"
    assert hides_something(f"a {letter}b") is not is_space
    assert hides_something(f"a{letter}{letter}b") is not is_space


@pytest.mark.parametrize("text", [SEEN, "a\n\tb", "⚠\ufe0f 1\ufe0f\u20e3", "❤\ufe0f\u200d🔥", "👩\u200d💻"])
def test_text_with_emoji_and_lines_hides_nothing(text: str) -> None:
    assert not hides_something(text)


@given(st.recursive(st.text(st.characters(codec="utf-8")), lambda inner: st.dictionaries(st.text(), inner, max_size=3)))
def test_json_means_the_same_and_is_all_seen(value: object) -> None:
    spelled = spell_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(spelled) == json.loads(json.dumps(value))
    assert all(is_seen(letter) for letter in spelled)


def test_json_leaves_letters_and_escapes_beyond_the_first_plane_in_two() -> None:
    assert spell_json('{"é":"\u202e\x9b\U000e0041日"}') == '{"é":"\\u202e\\u009b\\udb40\\udc41日"}'
