"""Pairing codes: their form, their life, and what guessing costs."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palyra.core.channels.pairing_codes import (
    ATTEMPTS_MAX,
    CODE_LIFE_MS,
    LOCK_MS,
    PairingAttempts,
    PairingCode,
    after_wrong,
    find_code,
    hash_code,
    is_locked,
    is_usable,
    make_code,
    shown_code,
)
from palyra.core.ids import Principal

CODE = PairingCode(id="c", code_hash="h", made_by=Principal("user:owner"), created_at_ms=0, expires_at_ms=CODE_LIFE_MS)


@given(st.binary(min_size=5, max_size=5))
def test_every_code_has_8_characters_and_is_read_back_as_people_write_it(entropy: bytes) -> None:
    code = make_code(entropy)
    assert len(code) == 8
    for written in (code, shown_code(code), code.lower(), f"/pair {shown_code(code)}", f"code {code}"):
        assert find_code(written) == code


@given(st.text(max_size=60))
def test_no_text_breaks_the_reader(text: str) -> None:
    code = find_code(text)
    assert code is None or len(code) == 8


def test_a_sentence_is_no_code() -> None:
    assert find_code("please remember the milk and the password") is None


def test_a_code_is_used_once_within_its_time_and_place() -> None:
    assert is_usable(CODE, "team", CODE_LIFE_MS - 1)
    assert not is_usable(CODE, "team", CODE_LIFE_MS)
    assert not is_usable(replace(CODE, used_at_ms=1), "team", 2)
    assert not is_usable(replace(CODE, channel="other"), "team", 2)


def test_five_wrong_codes_lock_for_an_hour() -> None:
    attempts = PairingAttempts(channel="team", sender_id="s1")
    for count in range(1, ATTEMPTS_MAX + 1):
        assert not is_locked(attempts, 1_000)
        attempts = after_wrong(attempts, 1_000)
        assert attempts.wrong_count == count
    assert is_locked(attempts, 1_000 + LOCK_MS - 1)
    assert not is_locked(attempts, 1_000 + LOCK_MS)
    assert after_wrong(attempts, 1_000 + LOCK_MS).wrong_count == 1


def test_the_hash_depends_on_the_key() -> None:
    assert hash_code(b"a", "ABCDEFGH") != hash_code(b"b", "ABCDEFGH")
