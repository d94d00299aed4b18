"""Reads a mail into a message: who sent it, what that sender typed, and what in it somebody else wrote.

Owns: MIME, charsets, HTML and file names, and putting the rules of core.channels.mail_trust and mail_words together.
Does not own: those rules, the mailbox (email), what becomes of a message (core.channels).
A mail without one clear sender raises Invalid. Odd charsets, names and trees are read as far as they go.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from email import message_from_bytes
from email.errors import MessageError
from email.header import decode_header
from email.message import Message
from typing import TypeVar

import msgspec

from palyra.core.channels.identity import UNPROVEN
from palyra.core.channels.mail_trust import (
    MailHeaders,
    answers_ours,
    is_refuted,
    is_vouched_for,
    read_headers,
    sender_of,
)
from palyra.core.channels.mail_words import command_alone, is_forward_subject, is_own_quote, mark_html, split_words
from palyra.core.channels.model import (
    ATTACHMENTS_MAX,
    DISPLAY_LENGTH_MAX,
    ID_LENGTH_MAX,
    TEXT_LENGTH_MAX,
    InboundAttachment,
    InboundMessage,
)
from palyra.core.channels.unread import plain_text
from palyra.core.errors import Invalid
from palyra.core.pages.readable import make_readable
from palyra.core.taint import label
from palyra.core.trust import Trust

SUBJECT = "Your message"
SUBJECT_LENGTH_MAX = 200
NAME_LENGTH_MAX = 200
TYPE_LENGTH_MAX = 100
TEXT_READ_MAX = 2 * TEXT_LENGTH_MAX  # Own words and those of others; no more of either is taken.
PARTS_MAX = 200  # Of one mail, inner ones included.
OTHERS_NAME = "quoted.txt"
_ROBOTS = ("bulk", "list", "junk", "auto_reply")

Found = TypeVar("Found")


class FetchedMail(msgspec.Struct, frozen=True, kw_only=True):
    """A mail as the mailbox has it. `arrived_at_ms` is the server's own time; None if it did not say."""

    uid: str
    raw: bytes
    arrived_at_ms: int | None = None


class ReadMail(msgspec.Struct, frozen=True, kw_only=True):
    message: InboundMessage
    subject: str


class MailReader(msgspec.Struct, frozen=True, kw_only=True):
    """What reading needs to know. `key` marks our own mails; without `authserv_id` no server vouches for a sender."""

    channel: str
    address: str
    key: bytes
    authserv_id: str | None = None

    def read(self, mail: FetchedMail) -> ReadMail | None:
        """Returns the message and its subject. None if a program sent the mail, or we did."""
        headers = read_headers(mail.raw)
        if _is_robot(headers):
            return None
        address = sender_of(headers)
        if address is None:
            raise Invalid("mail_sender_unclear", "its From header does not name exactly one address")
        if address == self.address.lower():
            return None
        # Whoever was sent a copy of an answer knows its id. Where the server sees that it is not the sender, that decides.
        is_answer = answers_ours(headers, self.key, self.channel, address, mail.arrived_at_ms) and not is_refuted(
            headers, self.authserv_id
        )
        is_known = is_answer or is_vouched_for(headers, self.authserv_id, address)
        subject = _unfolded(headers, "subject") or SUBJECT
        named = _first_id(headers, "message-id") or f"uid-{mail.uid}"
        root = _first_id(headers, "references") or _first_id(headers, "in-reply-to") or named
        thread = hashlib.sha256(root.encode()).hexdigest()[:12]
        text, attachments = self._words(mail.raw, headers, address, is_answer)
        message = InboundMessage(
            envelope_id=hashlib.sha256(f"{address} {named} {is_known}".encode()).hexdigest(),
            channel=self.channel,
            conversation_id=f"{'' if is_known else UNPROVEN}{address}#{thread}",
            thread_id=root,
            sender_id=address,
            sender_display=_display(headers),
            sender_verified=is_known,
            text=text,
            is_direct=True,
            attachments=attachments,
            message_id=named,
            written_at_ms=mail.arrived_at_ms or 0,
            may_command=is_answer,
        )
        return ReadMail(message=message, subject=subject)

    def _words(
        self, raw: bytes, headers: MailHeaders, address: str, is_answer: bool
    ) -> tuple[str, tuple[InboundAttachment, ...]]:
        """Returns what the sender typed, and everything else as attachments."""
        body = _Body()
        _collect(message_from_bytes(raw), body)
        is_forward = bool(body.forwards) or is_forward_subject(_unfolded(headers, "subject"))
        goes_on = bool(headers.all("in-reply-to") or headers.all("references")) and not is_answer
        words = split_words(body.text[:TEXT_READ_MAX], is_continued=is_forward or goes_on)
        is_others = is_forward or goes_on
        found = (
            [] if is_answer and not is_forward and is_own_quote(words, self.address) else [(words.others, words.writer)]
        )
        found += [(_told(inner), sender_of(_headers_of(inner))) for inner in body.forwards]
        others = [_others(text, writer or address) for text, writer in found if text.strip()]
        files = [_of_others(each, address) if is_others else each for each in body.files]
        own = command_alone(words.own)[:TEXT_LENGTH_MAX]
        return plain_text(own, TEXT_LENGTH_MAX), tuple((others + files)[:ATTACHMENTS_MAX])


@dataclass(slots=True)
class _Body:
    """What a mail consists of. `forwards` are whole mails in it."""

    text: str = ""
    files: list[InboundAttachment] = field(default_factory=list)
    forwards: list["Message"] = field(default_factory=list)
    count: int = 0


def ids_of(mail: FetchedMail) -> tuple[str, ...]:
    """Returns what finds a mail in its mailbox."""
    named = _first_id(read_headers(mail.raw), "message-id")
    return (f"uid {mail.uid}", *((named,) if named else ()))


def _collect(part: "Message", body: _Body) -> None:
    """Reads a tree of parts. Of alternatives the plain text is read, else the first that is not."""
    body.count += 1
    if body.count > PARTS_MAX:
        return
    kind, payload = part.get_content_type(), part.get_payload()
    inner = [each for each in payload if isinstance(each, Message)] if isinstance(payload, list) else []
    if kind.startswith("message/") and inner:
        body.forwards += inner
    elif inner and kind == "multipart/alternative":
        plain = (each for each in inner if each.get_content_type() in ("text/plain", "multipart/related"))
        shown = next(plain, inner[0])
        _collect(shown, body)
        for each in inner:
            _collect_files(each, shown, body)
    elif inner:
        for each in inner:
            _collect(each, body)
    elif kind in ("text/plain", "text/html") and not _is_file(part):
        text = _decoded(part)
        body.text += "\n" * bool(body.text) + (make_readable(mark_html(text), "").text if kind == "text/html" else text)
    elif (content := part.get_payload(decode=True)) and isinstance(content, bytes):
        fits = len(kind) <= TYPE_LENGTH_MAX and kind.isascii() and kind.isprintable()
        media_type = kind if fits else "application/octet-stream"
        body.files.append(InboundAttachment(name=_file_name(part), media_type=media_type, body=content))


def _collect_files(other: "Message", shown: "Message", body: _Body) -> None:
    """Takes the files of an alternative that is not read: Apple Mail has them beside the HTML."""
    if other is not shown and other.is_multipart():
        words = body.text
        _collect(other, body)
        body.text = words


def _is_file(part: "Message") -> bool:
    is_attached = _tolerant(lambda: part.get_content_disposition(), None) == "attachment"
    return is_attached or bool(_tolerant(lambda: part.get_filename() or "", "odd"))


def _decoded(part: "Message") -> str:
    """Decodes a text. A charset that nobody knows is read as UTF-8, with marks where it is not."""
    content = part.get_payload(decode=True)
    if not isinstance(content, bytes):
        return ""
    charset = str(_tolerant(lambda: part.get_content_charset(), None) or "utf-8")
    return plain_text(_tolerant(lambda: str(content, charset, "replace"), str(content, "utf-8", "replace")))


def _file_name(part: "Message") -> str:
    name = plain_text(str(_tolerant(lambda: part.get_filename(), None) or ""), NAME_LENGTH_MAX)
    return "".join(letter for letter in _words_of(name) if letter.isprintable()).strip() or "attachment"


def _told(inner: "Message") -> str:
    """Returns a mail within a mail as text: who it says that wrote it, and its words."""
    headers, body = _headers_of(inner), _Body()
    _collect(inner, body)
    head = [f"{name.title()}: {_unfolded(headers, name)}" for name in ("from", "date", "subject")]
    return "\n".join((*head, "", body.text, *(f"(attached: {each.name})" for each in body.files)))


def _headers_of(inner: "Message") -> MailHeaders:
    fields = tuple((name.lower(), plain_text(str(value))) for name, value in inner.items())
    return MailHeaders(fields=fields)


def _others(text: str, writer: str) -> InboundAttachment:
    body = plain_text(text, TEXT_LENGTH_MAX).encode()
    source = label("mail", writer)
    return InboundAttachment(name=OTHERS_NAME, media_type="text/plain", body=body, trust=Trust.EXTERNAL, source=source)


def _of_others(file: InboundAttachment, address: str) -> InboundAttachment:
    return msgspec.structs.replace(file, trust=Trust.EXTERNAL, source=label("mail", address))


def _display(headers: MailHeaders) -> str:
    """Returns the name that a sender gives itself. It proves nothing and is only shown."""
    name = _unfolded(headers, "from").rpartition("<")[0].strip().strip('"')
    return "".join(letter for letter in name if letter.isprintable())[:DISPLAY_LENGTH_MAX]


def _unfolded(headers: MailHeaders, name: str) -> str:
    values = headers.all(name)
    return " ".join(_words_of(values[0]).split())[:1_000] if values else ""


def _words_of(text: str) -> str:
    """Decodes encoded words, or leaves them as they are."""
    return plain_text(_tolerant(lambda: _joined(text), text), 4_000)


def _joined(text: str) -> str:
    read = decode_header(text)
    return "".join(
        each if isinstance(each, str) else each.decode(charset or "ascii", "replace") for each, charset in read
    )


def _first_id(headers: MailHeaders, name: str) -> str | None:
    found = " ".join(headers.all(name)).split()
    return plain_text(found[0], ID_LENGTH_MAX) if found else None


def _tolerant(read: Callable[[], Found], otherwise: Found) -> Found:
    """Python's parsers raise many kinds of errors at what nobody should have sent."""
    try:
        return read()
    except (MessageError, ValueError, LookupError, TypeError, AttributeError, AssertionError, RecursionError):
        return otherwise


def _is_robot(headers: MailHeaders) -> bool:
    return (
        _unfolded(headers, "auto-submitted").lower() not in ("", "no")
        or _unfolded(headers, "precedence").lower() in _ROBOTS
        or bool(headers.all("list-id"))
        or _unfolded(headers, "return-path") == "<>"
    )
