"""Signatures and mapping of inbound requests: what proves itself, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.channels.signatures import (
    SLACK_SIGNATURE_HEADER,
    SLACK_TIMESTAMP_HEADER,
    TELEGRAM_HEADER,
    check_slack,
    check_telegram,
    check_webhook,
    sign_webhook,
)
from palyra.core.channels.webhook_fields import find_at, read_message
from palyra.core.errors import Invalid, Unauthorized

NOW_S = 1_800_000_000
BODY = b'{"text":"hi"}'


def headers(timestamp: object = NOW_S, signature: str | None = None) -> dict[str, str]:
    told = sign_webhook("secret", NOW_S, BODY) if signature is None else signature
    return {"x-palyra-timestamp": str(timestamp), "x-palyra-signature": told}


def test_a_signed_body_is_accepted_within_the_window() -> None:
    for now_s in (NOW_S - 300, NOW_S, NOW_S + 300):
        check_webhook(headers(), BODY, "secret", now_s)


@pytest.mark.parametrize(
    ("given_headers", "body", "secret", "now_s"),
    [
        (headers(), BODY + b" ", "secret", NOW_S),
        (headers(), BODY, "other", NOW_S),
        (headers(), BODY, "", NOW_S),
        (headers(), BODY, "secret", NOW_S + 301),
        (headers(), BODY, "secret", NOW_S - 301),
        (headers(timestamp=NOW_S + 1), BODY, "secret", NOW_S),
        (headers(timestamp="١٢"), BODY, "secret", NOW_S),
        (headers(timestamp=""), BODY, "secret", NOW_S),
        (headers(signature=""), BODY, "secret", NOW_S),
        (headers(signature="v1=é"), BODY, "secret", NOW_S),
        ({}, BODY, "secret", NOW_S),
    ],
)
def test_forged_stale_and_unsigned_requests_are_refused_alike(
    given_headers: dict[str, str], body: bytes, secret: str, now_s: int
) -> None:
    with pytest.raises(Unauthorized) as refused:
        check_webhook(given_headers, body, secret, now_s)
    assert refused.value.code == "signature_invalid"


def test_slack_signatures_are_judged_as_slack_does() -> None:
    """The example of Slack's own documentation."""
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name="
        b"foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2F"
        b"hooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.474"
        b"45629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    told = {
        SLACK_TIMESTAMP_HEADER: "1531420618",
        SLACK_SIGNATURE_HEADER: "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    }
    secret = "8f742231b10e8888abcd99yyyzzz85a5"
    check_slack(told, body, secret, 1_531_420_618)
    for changed, now_s in ((body + b"-", 1_531_420_618), (body, 1_531_420_618 + 301)):
        with pytest.raises(Unauthorized):
            check_slack(told, changed, secret, now_s)


def test_telegram_needs_its_secret_header() -> None:
    check_telegram({TELEGRAM_HEADER: "token"}, "token")
    for told, secret in (({}, "token"), ({TELEGRAM_HEADER: "x"}, "token"), ({TELEGRAM_HEADER: ""}, "")):
        with pytest.raises(Unauthorized):
            check_telegram(told, secret)


def test_a_mapping_finds_members_and_items() -> None:
    body = {
        "ticket": {"author": 7, "body": "hi", "tags": ["a", {"id": "x"}]},
        "envelope_id": "e",
        "conversation_id": "c",
    }
    said = read_message(body, "tickets", {"text": "ticket.body", "sender_id": "ticket.author"})
    assert (said.text, said.sender_id, said.is_direct) == ("hi", "7", False)
    assert find_at(body, "ticket.tags.1.id") == "x"
    assert find_at(body, "ticket.tags.9") is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


@given(JSON, st.dictionaries(st.sampled_from(["text", "sender_id", "envelope_id"]), st.text(max_size=20), max_size=3))
def test_no_body_and_no_mapping_break_the_reader(body: object, mapping: dict[str, str]) -> None:
    try:
        said = read_message(body, "tickets", mapping)
    except Invalid:
        return
    assert said.envelope_id
    assert said.sender_id
