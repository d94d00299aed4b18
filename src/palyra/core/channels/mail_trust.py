"""Who sent a mail: its headers as they stand, its one sender, and the proofs that the sender is who it says.

Owns: reading the header block, the From header, which header of the mailbox's server counts, and ids of our own mails.
Does not own: the grammar of results (authentication_results), the key and the clock, which arrive as arguments.
Invariants: what is odd proves nothing. Only the topmost Authentication-Results counts: those below may be the sender's.
An id of ours holds a keyed mark of the address that it went to, so only a reader of that mailbox can answer it.
"""

import hashlib
import hmac
import re
from base64 import b32encode

import msgspec

from palyra.core.channels.authentication_results import (
    parse_authentication_results,
    says_dmarc_failed,
    says_dmarc_passed,
    without_comments,
)
from palyra.core.ids import length_prefixed

HEADERS_BYTES_MAX = 256 * 1024
ADDRESS_LENGTH_MAX = 200
ANSWERED_WITHIN_S = 30 * 86_400  # A thread that rests longer begins anew; its ids may have been forwarded meanwhile.
CLOCKS_APART_S = 600
IDS_MAX = 50  # Of a mail's In-Reply-To and References.
MARK_BYTES = 16
NAME_BYTES = 8  # Of what names a mail among those of one second; programs break lines that are much longer.
RESULTS = "authentication-results"

_FIELD = re.compile(rb"([!-9;-~]+):(.*)", re.DOTALL)
_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_ADDRESS = re.compile(rf"[a-z0-9!#$%&'*+/=?^_`{{|}}~-]+(?:\.[a-z0-9!#$%&'*+/=?^_`{{|}}~-]+)*@{_LABEL}(?:\.{_LABEL})*")
_OWN_ID = re.compile(r"<p\.([a-z2-7]{13})\.([0-9a-f]{1,12})\.([a-z2-7]{26})@[^<>@\s]+>")


class MailHeaders(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a header block in their order, names in lower case. `is_odd` if some line is none of a header's."""

    fields: tuple[tuple[str, str], ...]
    is_odd: bool = False

    def all(self, name: str) -> tuple[str, ...]:
        return tuple(value for each, value in self.fields if each == name)


def read_headers(raw: bytes) -> MailHeaders:
    """Reads the header block of a mail, up to the first empty line."""
    fields: list[tuple[str, str]] = []
    block = re.split(rb"\r?\n\r?\n", raw[:HEADERS_BYTES_MAX], maxsplit=1)[0]
    is_odd = re.search(rb"\r(?!\n)|\x00", block) is not None or len(block) == HEADERS_BYTES_MAX
    for line in re.split(rb"\r?\n", block):
        found = _FIELD.fullmatch(line)
        if line[:1] in (b" ", b"\t") and fields:
            fields[-1] = (fields[-1][0], f"{fields[-1][1]}\n{_decoded(line)}")
        elif found is None:
            is_odd = is_odd or bool(block)
        else:
            fields.append((found[1].decode("ascii").lower(), _decoded(found[2])))
    return MailHeaders(fields=tuple(fields), is_odd=is_odd)


def sender_of(headers: MailHeaders) -> str | None:
    """Returns the address of exactly one From header with exactly one address, in lower case. Else None."""
    values = headers.all("from")
    return _single_address(values[0]) if len(values) == 1 else None


def is_vouched_for(headers: MailHeaders, authserv_id: str | None, address: str) -> bool:
    """Tells whether the mailbox's own server says that DMARC passed for the sender."""
    results = headers.all(RESULTS)
    return (
        bool(authserv_id and results)
        and not headers.is_odd
        and says_dmarc_passed(results[0], authserv_id or "", address)
    )


def is_refuted(headers: MailHeaders, authserv_id: str | None) -> bool:
    """Tells whether the mailbox's own server says that somebody else sent the mail.

    Every header with its name counts: a sender who adds one can only harm themselves.
    """
    return bool(authserv_id) and any(says_dmarc_failed(each, authserv_id or "") for each in headers.all(RESULTS))


def topmost_authserv_id(headers: MailHeaders) -> str | None:
    """Returns whose the topmost results are. None if there are none, or none that can be read."""
    results = headers.all(RESULTS)
    read = parse_authentication_results(results[0]) if results else None
    return None if read is None else read.authserv_id


def make_mail_id(key: bytes, channel: str, part_key: str, address: str, sent_at_ms: int) -> str:
    """Returns the id of a mail that goes to one address, without `<` and host. It needs no memory to be known again."""
    sent = f"{max(sent_at_ms, 0) // 1000:x}"
    name = _shown(hashlib.sha256(part_key.encode()).digest()[:NAME_BYTES])
    return f"p.{name}.{sent}.{_mark(key, (channel, name, sent, address.lower()))}"


def answers_ours(headers: MailHeaders, key: bytes, channel: str, address: str, arrived_at_ms: int | None) -> bool:
    """Tells whether a mail answers one that we sent to its sender alone, not long before the server got it."""
    if arrived_at_ms is None or not key or headers.is_odd:
        return False
    said = " ".join((*headers.all("in-reply-to"), *headers.all("references")))
    for found in list(_OWN_ID.finditer(said))[-IDS_MAX:]:
        name, sent, mark = found.groups()
        age_s = arrived_at_ms // 1000 - int(sent, 16)
        wanted = _mark(key, (channel, name, sent, address.lower()))
        if hmac.compare_digest(mark, wanted) and -CLOCKS_APART_S <= age_s <= ANSWERED_WITHIN_S:
            return True
    return False


def _mark(key: bytes, parts: tuple[str, ...]) -> str:
    bound = length_prefixed(b"mail id", *(part.encode() for part in parts))
    return _shown(hmac.new(key, bound, hashlib.sha256).digest()[:MARK_BYTES])


def _shown(raw: bytes) -> str:
    return b32encode(raw).decode().rstrip("=").lower()


def _single_address(value: str) -> str | None:
    """Reads `Name <address>`, or an address alone. Names are not decoded: `=40` and the like make no address.

    Letters beyond ASCII stand in names only. What stands for them here is in no address, so none is read as another.
    """
    bare = without_comments("".join(letter if letter.isascii() else "[" for letter in value))
    if bare is None:
        return None
    shape = bare[0].strip().lower()
    if any(letter in shape for letter in ",:;"):
        return None
    if shape.endswith(">") and shape.count("<") == shape.count(">") == 1:
        shape = shape.partition("<")[2][:-1].strip()
    return shape if is_address(shape) else None


def is_address(text: str) -> bool:
    """Tells whether this is a plain address. One with an encoded word would be another one once a program decodes it."""
    return len(text) <= ADDRESS_LENGTH_MAX and "=?" not in text and _ADDRESS.fullmatch(text.lower()) is not None


def _decoded(value: bytes) -> str:
    return value.decode("utf-8", "replace").strip()
