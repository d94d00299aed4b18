"""Pairing: single-use codes by which a stranger's account is linked to a principal.

Owns: the form of codes, how long they hold, and when a sender is locked out.
Does not own: randomness and keys, which arrive as arguments; storing (core.writes); the link itself (identity).
Invariant: a wrong, an expired and a used code are answered alike, so that an answer reveals nothing.
"""

import hashlib
import hmac
import re

import msgspec
from msgspec.structs import replace

from palyra.core.ids import ApprovalId, Principal

CODE_LENGTH = 8
CODE_RANDOM_BYTES = 5  # 40 bits are exactly 8 characters of base32.
CODE_LIFE_MS = 10 * 60_000
ATTEMPTS_MAX = 5
LOCK_MS = 3_600_000
CHANNEL_ATTEMPTS_MAX = 100  # Wrong codes of all senders of a channel within LOCK_MS; new accounts are cheap.
CODES_OPEN_MAX = 32
LINK_DAYS_DEFAULT = 180
LINK_DAYS_MAX = 3_650
DAY_MS = 86_400_000

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_READ_AS = str.maketrans({"I": "1", "L": "1", "O": "0"})
_CODE = re.compile(rf"[{_ALPHABET}]{{{CODE_LENGTH}}}")
_SHOWN = re.compile(r"(?:/pair\s+)?(\w{4}-\w{4})", re.ASCII)
_WORDS_MAX = 3


class PairingCode(msgspec.Struct, frozen=True, kw_only=True):
    """A code that waits to be used. Only its keyed hash is stored.

    `channel` limits it to one channel. `principal` and `role` are what the operator had in mind, to be confirmed.
    """

    id: str
    code_hash: str
    made_by: Principal
    created_at_ms: int
    expires_at_ms: int
    channel: str | None = None
    principal: Principal | None = None
    role: str | None = None
    used_at_ms: int | None = None


class PairingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An account that gave a right code, and waits for a person to link it. The question is the approval."""

    approval_id: ApprovalId
    channel: str
    sender_id: str
    display: str
    conversation_id: str
    digest: str
    created_at_ms: int
    expires_at_ms: int
    principal: Principal | None = None
    role: str | None = None


class PairingAttempts(msgspec.Struct, frozen=True, kw_only=True):
    """Wrong codes of one sender, or of a whole channel (empty sender), since `since_ms`."""

    channel: str
    sender_id: str
    wrong_count: int = 0
    since_ms: int = 0
    locked_until_ms: int = 0


def make_code(random_bytes: bytes) -> str:
    number = int.from_bytes(random_bytes, "big")
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(5 * (CODE_LENGTH - 1), -1, -5))


def find_code(text: str) -> str | None:
    """Returns the code in a short message, read as Crockford's base32 is: any case, and with dashes."""
    words = text.split()
    if len(words) > _WORDS_MAX:
        return None
    for word in words:
        read = word.replace("-", "").upper().translate(_READ_AS)
        if _CODE.fullmatch(read):
            return read
    return None


def find_shown_code(text: str) -> str | None:
    """Returns a code that is written as it is shown, with nothing beside it but `/pair`.

    It is for people who may speak anyway: most words of eight letters could be a code, and theirs are words.
    """
    found = _SHOWN.fullmatch(text.strip())
    return find_code(found[1]) if found is not None else None


def shown_code(code: str) -> str:
    return f"{code[:4]}-{code[4:]}"


def hash_code(key: bytes, code: str) -> str:
    """A short code could be found again from a plain hash. The key is the node's own."""
    return hmac.new(key, b"pairing:" + code.encode(), hashlib.sha256).hexdigest()


def is_usable(code: PairingCode, channel: str, now_ms: int) -> bool:
    is_here = code.channel is None or code.channel == channel
    return is_here and code.used_at_ms is None and now_ms < code.expires_at_ms


def is_locked(attempts: PairingAttempts | None, now_ms: int) -> bool:
    return attempts is not None and now_ms < attempts.locked_until_ms


def after_wrong(attempts: PairingAttempts, now_ms: int, attempts_max: int = ATTEMPTS_MAX) -> PairingAttempts:
    """Counts a wrong code. The last one that is allowed locks; the count begins anew after an hour."""
    is_old = now_ms - attempts.since_ms >= LOCK_MS
    count = 1 if is_old else attempts.wrong_count + 1
    since_ms = now_ms if is_old else attempts.since_ms
    if count < attempts_max:
        return replace(attempts, wrong_count=count, since_ms=since_ms)
    return replace(attempts, wrong_count=count, since_ms=since_ms, locked_until_ms=now_ms + LOCK_MS)
