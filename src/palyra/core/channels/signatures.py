"""Signatures of inbound requests: our own webhook form, Slack's, and Telegram's secret header.

Owns: which bytes are signed, and how old a request may be. The time and the secret arrive as arguments.
Does not own: duplicates within the window (the journal knows envelopes), reading requests (gateway).
Invariant: everything is compared in constant time. Whatever is missing or unreadable is refused like a forgery.
"""

import hashlib
import hmac
from collections.abc import Mapping

from palyra.core.errors import Unauthorized

WINDOW_S = 300
TIMESTAMP_HEADER = "x-palyra-timestamp"
SIGNATURE_HEADER = "x-palyra-signature"
SLACK_TIMESTAMP_HEADER = "x-slack-request-timestamp"
SLACK_SIGNATURE_HEADER = "x-slack-signature"
TELEGRAM_HEADER = "x-telegram-bot-api-secret-token"
REFUSED = "signature_invalid"

_DIGITS_MAX = 12


def sign_webhook(secret: str, timestamp_s: int, body: bytes) -> str:
    signed = f"{timestamp_s}.".encode() + body
    return f"v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


def check_webhook(headers: Mapping[str, str], body: bytes, secret: str, now_s: int) -> None:
    """Unauthorized unless the body is signed with the secret, within the window."""
    timestamp = _timestamp(headers.get(TIMESTAMP_HEADER, ""), now_s)
    _compare(headers.get(SIGNATURE_HEADER, ""), sign_webhook(secret, timestamp, body), secret)


def check_slack(headers: Mapping[str, str], body: bytes, signing_secret: str, now_s: int) -> None:
    timestamp = _timestamp(headers.get(SLACK_TIMESTAMP_HEADER, ""), now_s)
    signed = f"v0:{timestamp}:".encode() + body
    expected = f"v0={hmac.new(signing_secret.encode(), signed, hashlib.sha256).hexdigest()}"
    _compare(headers.get(SLACK_SIGNATURE_HEADER, ""), expected, signing_secret)


def check_telegram(headers: Mapping[str, str], secret_token: str) -> None:
    _compare(headers.get(TELEGRAM_HEADER, ""), secret_token, secret_token)


def refusal() -> Unauthorized:
    """The one answer to everything that does not prove itself."""
    return Unauthorized(REFUSED, "the request is not signed for this channel, or is too old; see docs/channels.md")


def _timestamp(text: str, now_s: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX) or abs(now_s - int(text)) > WINDOW_S:
        raise refusal()
    return int(text)


def _compare(given: str, expected: str, secret: str) -> None:
    is_equal = hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())
    if not secret or not is_equal:
        raise refusal()
