"""Claims about redaction that hold for every text: exact restoring, idempotence, streaming, linear work."""

import os
import re
import string
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.core.redaction import Json, RedactionStream, Redactor, find_markers, restore
from palyra.core.redaction.known import SeenSecrets
from palyra.core.redaction.redactor import Redacted
from palyra.core.redaction.scan import Memory, is_leading, stays_clean

KEY = bytes(range(32))
REDACTOR = Redactor(KEY)

_RANDOM = "q7Zk2Vw9" + "Lx4Tn8Rb" + "3Hd6Yc1M" + "s5Jf0Gp2"
SECRETS = (
    "gh" + "p_" + _RANDOM + "Ab12",
    "AK" + "IA" + "Q4RT7YHN2MPL9XZC",
    "xo" + "xb-" + "1234567890-1234567890123-" + _RANDOM[:24],
    "ey" + "JhbGciOiJIUzI1NiJ9." + "ey" + "JzdWIiOiIxMjM0NTYifQ." + _RANDOM,
    "hunter2!x",
    _RANDOM,
    "-----BEGIN " + "PRIVATE KEY-----\n" + _RANDOM * 2 + "\n" + _RANDOM + "\n-----END " + "PRIVATE KEY-----",
)
FRAMES = (
    "{}",
    "password={}",
    'token = "{}"',
    "api_key: '{}'",
    '{{"client_secret": "{}", "n": 1}}',
    "Authorization: Bearer {}",
    "<apiKey>\n  {}\n</apiKey>",
    "curl -u admin:{} http://h/",
    "postgres://app:{}@db/x",
    "var dbToken string = `{}`",
    "--token {} --verbose",
    "- name: DB_PASSWORD\n  value: {}",
    'set("API_KEY", "{}")',
    "the password is {}.",
    "?access_token={}&x=1",
    'password = "{} and more',
)
WORDS = (
    "the",
    "key",
    "token",
    "is",
    "=",
    ":",
    '"',
    "\n",
    "\n\n",
    " ",
    "  ",
    "password",
    "-u",
    "a:b",
    "value:",
    "https://",
    "@",
    "naïve",
    "密码",
    "‹",
    "›",
    "-----BEGIN",
    "PRIVATE KEY-----",
    "\\n",
    "string",
    "İ",
    ",",
    "9f8e7d6c5b4a",
    "‹secret:token:0123456789ab›",
    "bearer",
    "<",
    ">",
    '\\"',
    "\t",
)

secret_text = st.builds(lambda frame, secret: frame.format(secret), st.sampled_from(FRAMES), st.sampled_from(SECRETS))
parts = st.lists(
    st.one_of(st.sampled_from(WORDS), secret_text, st.text(max_size=6), st.sampled_from(SECRETS)), max_size=14
)
soup = parts.flatmap(lambda parts: st.sampled_from(("", " ")).map(lambda glue: glue.join(parts)))
# A name that is glued to the end of a secret is none until a marker stands in the secret's place.
apart = parts.map(" ".join)
clean_text = soup.map(lambda text: text.replace("‹", "<"))
json_value = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), clean_text),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(st.sampled_from(("password", "name", "value", "Authorization", "tokens", *SECRETS)), clean_text),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=8,
)


def _values(secrets: object) -> dict[str, str]:
    return {secret.id: secret.value for secret in secrets}  # type: ignore[attr-defined]


def _stream(text: str, cuts: list[int]) -> tuple[list[str], RedactionStream]:
    stream = REDACTOR.stream()
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    outputs = [stream.feed(text[start:end]) for start, end in pairwise(places)]
    return [*outputs, stream.finish()], stream


@given(clean_text)
@settings(max_examples=120, deadline=None)
def test_restoring_a_redacted_text_gives_the_text(text: str) -> None:
    redacted = REDACTOR.text(text)
    assert restore(redacted.text, _values(redacted.secrets)) == text


@given(json_value)
@settings(max_examples=100, deadline=None)
def test_restoring_a_redacted_value_gives_the_value(value: Json) -> None:
    redacted = REDACTOR.value(value)
    assert restore(redacted.value, _values(redacted.secrets)) == value


@given(apart)
@settings(max_examples=100, deadline=None)
def test_redacting_redacted_text_changes_nothing(text: str) -> None:
    once = REDACTOR.text(text).text
    assert REDACTOR.text(once).text == once


@given(json_value)
@settings(max_examples=80, deadline=None)
def test_redacting_a_redacted_value_changes_nothing(value: Json) -> None:
    once = REDACTOR.value(value).value
    assert REDACTOR.value(once).value == once


@given(st.integers(min_value=600, max_value=1_500), clean_text, st.integers(min_value=1, max_value=40), st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_long_clean_beginning_changes_nothing_of_what_comes_after(
    clean_length: int, text: str, width: int, is_eager: bool
) -> None:
    whole = ("clean words only " * 100)[:clean_length] + " " + text + " and clean words again"
    stream = REDACTOR.stream(is_eager=is_eager)
    pieces = [stream.feed(whole[at : at + width]) for at in range(0, len(whole), width)]
    joined, redacted = "".join([*pieces, stream.finish()]), REDACTOR.text(whole)
    assert stream.secrets == redacted.secrets
    if is_eager:
        _require_but_for_leads(joined, redacted)
    else:
        assert joined == redacted.text


def _require_but_for_leads(joined: str, whole: Redacted) -> None:
    """Joined it is the redaction of the whole, but for the letters before a marker that went ahead."""
    values = {secret.id: secret.value for secret in whole.secrets}
    at = 0
    for piece in re.split(r"(‹[^›]*›)", whole.text):
        if not joined.startswith(piece, at) and piece.startswith("‹"):
            lead = joined[at : joined.index("‹", at)]
            assert 1 <= len(lead) <= 3
            assert values[find_markers(piece)[0]].startswith(lead)
            at += len(lead)
        assert joined.startswith(piece, at)
        at += len(piece)
    assert at == len(joined)


@given(soup, st.lists(st.integers(min_value=0, max_value=10_000), max_size=12))
@settings(max_examples=100, deadline=None)
def test_a_stream_in_any_pieces_equals_the_whole(text: str, cuts: list[int]) -> None:
    outputs, stream = _stream(text, cuts)
    whole = REDACTOR.text(text)
    assert "".join(outputs) == whole.text
    assert stream.secrets == whole.secrets


@given(soup)
@settings(max_examples=80, deadline=None)
def test_a_stream_of_single_characters_equals_the_whole(text: str) -> None:
    outputs, _ = _stream(text, list(range(len(text))))
    assert "".join(outputs) == REDACTOR.text(text).text


@given(st.sampled_from(FRAMES[1:]), st.integers(min_value=1, max_value=9))
@settings(max_examples=80, deadline=None)
def test_no_prefix_of_a_stream_holds_a_part_of_a_secret(frame: str, width: int) -> None:
    text = "Here it is: " + frame.format(_RANDOM) + " and on.\n"
    stream, sent = REDACTOR.stream(), ""
    for start in range(0, len(text), width):
        sent += stream.feed(text[start : start + width])
        assert _RANDOM[:4] not in sent
    assert find_markers(sent + stream.finish())


@given(st.lists(st.text(string.ascii_lowercase, min_size=1, max_size=12), min_size=1, max_size=40))
@settings(max_examples=100, deadline=None)
def test_clean_prose_is_held_back_by_its_last_word_alone(words: list[str]) -> None:
    stream, fed, sent = REDACTOR.stream(), "", ""
    for word in words:
        if re.search(
            "pass|pwd|psw|secret|signature|senha|token|tkn|jwt|key|kenn|cred|cook|auth|access|bearer|login", word
        ):
            continue
        fed += word + " "
        sent += stream.feed(word + " ")
        assert sent == fed


def _eagerly(text: str, width: int) -> list[str]:
    stream = REDACTOR.stream(is_eager=True)
    outputs = [stream.feed(text[start : start + width]) for start in range(0, len(text), width)]
    return [*outputs, stream.finish()]


@given(clean_text, st.integers(min_value=1, max_value=9))
@settings(max_examples=150, deadline=None)
def test_an_eager_stream_gives_at_most_the_first_letters_of_a_secret_ahead(text: str, width: int) -> None:
    _require_but_for_leads("".join(_eagerly(text, width)), REDACTOR.text(text))


@given(st.lists(st.text(string.ascii_lowercase, min_size=1, max_size=12), min_size=1, max_size=40))
@settings(max_examples=100, deadline=None)
def test_an_eager_stream_of_clean_words_keeps_nobody_waiting(words: list[str]) -> None:
    text = " ".join(words)
    if (
        not is_leading(words[0], 0)
        or not stays_clean(words[0], 0, Memory(None, SeenSecrets()))
        or REDACTOR.text(text).text != text
    ):
        return
    stream = REDACTOR.stream(is_eager=True)
    first = stream.feed(words[0])
    assert first == words[0][:3]
    assert first + "".join(stream.feed(f" {word}") for word in words[1:]) + stream.finish() == text


@given(
    st.integers(min_value=3_000, max_value=9_000),
    st.sampled_from(SECRETS[:6]),
    st.integers(min_value=200, max_value=5_000),
)
@settings(max_examples=20, deadline=None)
def test_a_run_too_long_for_one_piece_streams_as_the_whole(lead_chars: int, secret: str, width: int) -> None:
    """Minified JSON, a long URL, a blob: no blank for thousands of characters."""
    lead = '{"a":1,"key":"b"},' * (lead_chars // 18) + "x" * (lead_chars % 18)
    text = f'{lead}{{"password":"{secret}"}}{"Zm9v" * 2000}token={secret}'
    outputs, _ = _stream(text, list(range(0, len(text), width)))
    assert "".join(outputs) == REDACTOR.text(text).text
    assert secret not in "".join(outputs)


@pytest.mark.parametrize("lead_chars", range(4_170, 4_240))
def test_a_forced_cut_divides_no_secret(lead_chars: int) -> None:
    """Wherever in the name or the value the cut of a run without blanks would fall."""
    secret = SECRETS[0]
    lead = '{"a":1,"key":"b"},' * (lead_chars // 18) + "x" * (lead_chars % 18)
    told = REDACTOR.text(f'{lead}{{"password":"{secret}"}}{"Zm9v" * 2000}token={secret}').text
    assert not any(secret[start : start + 8] in told for start in range(len(secret) - 8))


def test_a_script_without_blanks_is_not_held_back() -> None:
    stream = REDACTOR.stream()
    assert stream.feed("これは普通の文章です。秘密はありません") == "これは普通の文章です。秘密はありません"


def test_hold_back_is_bounded_whatever_comes() -> None:
    for piece in (
        "x",
        "ab1c",
        "token ",
        'password = "',
        "-----BEGIN " + "PRIVATE KEY-----\n",
        "a=1,",
        "key\n",
        "A1b2C3d4" * 4 + "\n",
    ):
        stream, held_chars = REDACTOR.stream(), 0
        for _ in range(9_000 // len(piece)):
            held_chars = 0 if stream.feed(piece) else held_chars + len(piece)
            assert held_chars <= 4_096


ADVERSARIAL = (
    *(
        "a",
        "token=",
        "token ",
        "token=a=",
        "password: ",
        '"',
        "key\\",
        "-----BEGIN ",
        "-----BEGIN PRIVATE KEY-----\n",
        "eyJ",
    ),
    *(
        "eyJaaaaaaaa.",
        "https://a:",
        "://",
        "@",
        "xoxb-1-",
        "‹secret:",
        "‹secret:a:0123456789ab›",
        "-u ",
        "9a-",
        "A1b2",
        "[[[[",
    ),
    *(
        "is ",
        '\\"',
        " ",
        "\n",
        "login a password ",
        "pat",
        "a.b.",
        "gl-",
        "\\/",
        "token string ",
        "secret_secret_",
        "0|",
        "t1.",
    ),
    *("fm2_", ",;&", "password=,", "key: value: ", "密"),
)


@pytest.mark.parametrize("piece", ADVERSARIAL)
def test_adversarial_text_is_scanned_to_its_end(piece: str) -> None:
    """No timing assertion: a pattern that backtracks badly would never come back. ADVERSARIAL_CHARS=1000000 tries a megabyte."""
    text = piece * (int(os.environ.get("ADVERSARIAL_CHARS", "30000")) // len(piece))
    REDACTOR.text(text)
