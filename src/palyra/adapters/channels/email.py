"""E-mail: a mailbox read by IMAP, answers sent by SMTP, threads kept by their headers.

Owns: reading mails into messages, who a sender is, and the headers of answers.
Does not own: what becomes of a message (core.channels).
A From header can be forged, so a sender counts as verified only if the mailbox's own server recorded that DMARC passed.
A mail is marked as seen only after it was taken. Mails of programs are never answered, so that no two robots talk.
The libraries are Python's own; they block, so they run in threads.
"""

import asyncio
import hashlib
import imaplib
import smtplib
import ssl
from collections import OrderedDict
from collections.abc import Callable
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default as default_policy
from email.utils import formatdate, parseaddr, parsedate_to_datetime
from functools import partial
from typing import TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec
import structlog

from palyra.core.channels.commands import parse_command
from palyra.core.channels.file_names import file_name
from palyra.core.channels.model import (
    ATTACHMENTS_MAX,
    DISPLAY_LENGTH_MAX,
    ID_LENGTH_MAX,
    TEXT_LENGTH_MAX,
    ChannelKind,
    InboundAttachment,
    InboundMessage,
)
from palyra.core.channels.pairing_codes import find_shown_code
from palyra.core.channels.signatures import refusal
from palyra.core.errors import Invalid, Unavailable
from palyra.core.pages.readable import make_readable
from palyra.ports.channels import (
    Arrival,
    ChannelCheck,
    ChannelTraits,
    ConnectionReport,
    Deliver,
    HttpReply,
    HttpRequestPart,
    OutgoingPart,
    Redelivery,
    SendFailed,
    SentMessage,
)

POLL_S = 15.0
TIMEOUT_S = 20.0
LENGTH_MAX = 60_000
MAIL_BYTES_MAX = 10 * 1024 * 1024
FILES_BYTES_MAX = 10_000_000  # Of one mail. Most servers take 25 MB, and base64 makes a file a third larger.
MAILS_AT_ONCE_MAX = 50
SUBJECTS_MAX = 1_000
SUBJECT = "Your message"
PORTS = {"imap": 143, "imaps": 993, "smtp": 25, "smtps": 465}
LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
_ROBOTS = ("bulk", "list", "junk", "auto_reply")

log = structlog.get_logger()
Found = TypeVar("Found")


class EmailSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`imap` and `smtp` are addresses such as `imaps://palyra@mail.example.com`; the user's name is the mailbox."""

    name: str
    imap: str
    smtp: str
    password: Callable[[], str | None]
    poll_s: float = POLL_S


class EmailChannel:
    def __init__(self, settings: EmailSettings) -> None:
        self._settings = settings
        self._imap, self._smtp = urlsplit(settings.imap), urlsplit(settings.smtp)
        self._subjects: OrderedDict[str, str] = OrderedDict()
        self.traits = ChannelTraits(
            kind=ChannelKind.EMAIL,
            length_max=LENGTH_MAX,
            redelivery=Redelivery.UNKNOWN,
            file_bytes_max=FILES_BYTES_MAX,
            joins_files=True,
        )

    async def run(self, deliver: Deliver, report: ConnectionReport) -> None:
        while True:
            for uid, raw in await self._asked(self._unseen):
                await self._take(deliver, self._read(uid, raw))
                await self._asked(partial(self._mark_seen, uid))
            report.up()
            await asyncio.sleep(self._settings.poll_s)

    async def _take(self, deliver: Deliver, message: InboundMessage | None) -> None:
        if message is None:
            return
        try:
            await deliver(message)
        except Invalid as error:
            log.warning("channel_message_refused", channel=self._settings.name, code=error.code)

    async def send(self, part: OutgoingPart) -> SentMessage:
        mail = self._answer(part)
        try:
            await asyncio.to_thread(self._submit, mail)
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _ in error.recipients.values()]
            raise SendFailed(f"the mail server refused the recipient ({codes})", is_final=min(codes) >= 500) from error
        except smtplib.SMTPResponseException as error:
            raise SendFailed(f"the mail server answered {error.smtp_code}", is_final=error.smtp_code >= 500) from error
        except (OSError, smtplib.SMTPException) as error:
            raise SendFailed("the connection to the mail server broke off", is_unknown=True) from error
        return SentMessage(str(mail["Message-ID"]))

    async def edit(self, part: OutgoingPart, message_id: str) -> SentMessage:
        """Is not asked: what was mailed stays as it is."""
        raise SendFailed("a mail cannot be changed", is_final=True)

    async def show_typing(self, conversation_id: str, thread_id: str | None) -> None:
        """Does nothing: there is no such sign."""

    async def find(self, part: OutgoingPart) -> SentMessage | None:
        """Is not asked: SMTP cannot tell what was sent."""
        return None

    async def read_request(self, request: HttpRequestPart) -> tuple[Arrival, ...] | HttpReply:
        """Mails come by IMAP, so no request can prove itself."""
        raise refusal()

    async def check(self) -> ChannelCheck:
        await self._asked(lambda: self._with_inbox(lambda inbox: None))
        return ChannelCheck(known_as=self._address)

    @property
    def _address(self) -> str:
        """The address of the mailbox: the user's name, with the host's if it has none."""
        user = unquote(self._imap.username or "")
        return user if "@" in user else f"{user}@{(self._imap.hostname or '').removeprefix('mail.')}"

    async def _asked(self, ask: Callable[[], Found]) -> Found:
        try:
            return await asyncio.to_thread(ask)
        except imaplib.IMAP4.error as cause:
            raise Unavailable("mailbox_refused", f"the mailbox refused: {str(cause)[:200]}") from cause
        except OSError as cause:
            raise Unavailable("connect_failed", f"the mailbox cannot be reached: {cause.strerror or cause}") from cause

    def _with_inbox(self, use: Callable[[imaplib.IMAP4], Found]) -> Found:
        host, port = _endpoint(self._imap)
        inbox: imaplib.IMAP4
        if self._imap.scheme == "imaps":
            inbox = imaplib.IMAP4_SSL(host, port, ssl_context=ssl.create_default_context(), timeout=TIMEOUT_S)
        else:
            inbox = imaplib.IMAP4(host, port, timeout=TIMEOUT_S)
        try:
            inbox.login(unquote(self._imap.username or ""), self._settings.password() or "")
            inbox.select("INBOX")
            return use(inbox)
        finally:
            inbox.shutdown()

    def _unseen(self) -> list[tuple[str, bytes]]:
        def read(inbox: imaplib.IMAP4) -> list[tuple[str, bytes]]:
            _, found = inbox.uid("SEARCH", "UNSEEN", "SMALLER", str(MAIL_BYTES_MAX))
            uids = (found[0] or b"").decode().split()[:MAILS_AT_ONCE_MAX]
            mails = []
            for uid in uids:
                _, parts = inbox.uid("FETCH", uid, "(BODY.PEEK[])")
                mails += [(uid, part[1]) for part in parts if isinstance(part, tuple)][:1]
            return mails

        return self._with_inbox(read)

    def _mark_seen(self, uid: str) -> None:
        self._with_inbox(lambda inbox: inbox.uid("STORE", uid, "+FLAGS", "(\\Seen)"))

    def _submit(self, mail: EmailMessage) -> None:
        with self._mail_server() as server:
            server.send_message(mail)

    def _mail_server(self) -> smtplib.SMTP:
        """Connects and logs in. Whatever breaks off here, no mail was given to the server yet."""
        try:
            server = _connected(self._smtp)
        except smtplib.SMTPResponseException:
            raise
        except (OSError, smtplib.SMTPException) as error:
            raise SendFailed("the mail server cannot be reached") from error
        try:
            password = self._settings.password()
            if password and self._smtp.username and server.has_extn("auth"):
                _require_private(server, self._smtp)
                server.login(unquote(self._smtp.username), password)
        except (OSError, smtplib.SMTPException, SendFailed):
            server.close()
            raise
        return server

    def _read(self, uid: str, raw: bytes) -> InboundMessage | None:
        """Reads a mail. None if a program sent it, or we did."""
        mail = message_from_bytes(raw, policy=default_policy)
        display, address = parseaddr(str(mail.get("From", "")))
        address = address.lower()
        if "@" not in address or address == self._address.lower() or _is_robot(mail):
            return None
        message_id = str(mail.get("Message-ID", f"uid-{uid}")).strip()[:ID_LENGTH_MAX]
        root = (str(mail.get("References", "")).split() or [str(mail.get("In-Reply-To", "")).strip() or message_id])[0]
        conversation_id = f"{address[:200]}#{hashlib.sha256(root.encode()).hexdigest()[:12]}"
        self._remember(conversation_id, str(mail.get("Subject", SUBJECT)))
        return InboundMessage(
            envelope_id=hashlib.sha256(f"{address} {message_id}".encode()).hexdigest(),
            channel=self._settings.name,
            conversation_id=conversation_id,
            thread_id=root[:ID_LENGTH_MAX],
            sender_id=address[:ID_LENGTH_MAX],
            sender_display=display[:DISPLAY_LENGTH_MAX],
            sender_verified=_is_verified(mail),
            text=_text(mail)[:TEXT_LENGTH_MAX],
            is_direct=True,
            attachments=_attachments(mail),
            message_id=message_id,
            written_at_ms=_written_at_ms(mail),
        )

    def _remember(self, conversation_id: str, subject: str) -> None:
        self._subjects[conversation_id] = " ".join(subject.split())[:200]
        self._subjects.move_to_end(conversation_id)
        if len(self._subjects) > SUBJECTS_MAX:
            self._subjects.popitem(last=False)

    def _answer(self, part: OutgoingPart) -> EmailMessage:
        address = part.conversation_id.rpartition("#")[0] or part.conversation_id
        if "@" not in address or any(letter in address for letter in "\r\n,;<> "):
            raise SendFailed("the conversation is no e-mail address", is_final=True)
        subject = self._subjects.get(part.conversation_id, SUBJECT)
        mail = EmailMessage()
        mail["From"], mail["To"] = self._address, address
        mail["Subject"] = subject if subject.lower().startswith("re:") else f"Re: {subject}"
        mail["Date"] = formatdate(localtime=False)
        mail["Message-ID"] = f"<{part.key}@{self._address.partition('@')[2] or 'palyra'}>"
        mail["Auto-Submitted"] = "auto-replied"
        references = [each for each in (part.thread_id, part.reply_to) if each is not None]
        if references:
            mail["In-Reply-To"] = _header(references[-1])
            mail["References"] = _header(" ".join(dict.fromkeys(references)))
        mail.set_content(part.text)
        for file in part.files:
            main, _, sub = file.media_type.partition("/")
            if not sub or main in ("multipart", "message"):
                main, sub = "application", "octet-stream"
            mail.add_attachment(file.body, maintype=main, subtype=sub, filename=file_name(file.name))
        return mail


def _written_at_ms(mail: EmailMessage) -> int | None:
    """Returns when its sender says that the mail was written, at the end of that second."""
    try:
        return int(parsedate_to_datetime(str(mail["Date"])).timestamp()) * 1000 + 999
    except (ValueError, TypeError, OverflowError, OSError):
        return None


def _connected(url: SplitResult) -> smtplib.SMTP:
    """Connects to a mail server, encrypted where it can be. What it can do is known after its greeting."""
    host, port = _endpoint(url)
    context = ssl.create_default_context()
    if url.scheme == "smtps":
        server: smtplib.SMTP = smtplib.SMTP_SSL(host, port, timeout=TIMEOUT_S, context=context)
    else:
        server = smtplib.SMTP(host, port, timeout=TIMEOUT_S)
    try:
        server.ehlo_or_helo_if_needed()
        if url.scheme != "smtps" and server.has_extn("starttls"):
            server.starttls(context=context)
            server.ehlo_or_helo_if_needed()
    except (OSError, smtplib.SMTPException):
        server.close()
        raise
    return server


def _require_private(server: smtplib.SMTP, url: SplitResult) -> None:
    """The password goes over an encrypted connection, or stays on this machine."""
    if not isinstance(server.sock, ssl.SSLSocket) and url.hostname not in LOCAL_HOSTS:
        raise SendFailed("the mail server offers no encryption, so the password is not sent to it", is_final=True)


def _endpoint(url: SplitResult) -> tuple[str, int]:
    return url.hostname or "", url.port or PORTS[url.scheme]


def _header(text: str) -> str:
    return " ".join(text.split())


def _is_robot(mail: EmailMessage) -> bool:
    submitted = str(mail.get("Auto-Submitted", "no")).lower()
    return (
        submitted != "no"
        or str(mail.get("Precedence", "")).strip().lower() in _ROBOTS
        or "List-Id" in mail
        or str(mail.get("Return-Path", "")).strip() == "<>"
    )


def _is_verified(mail: EmailMessage) -> bool:
    """Only the topmost header is the mailbox's own server's; a sender may have written those below it."""
    results = mail.get_all("Authentication-Results", [])
    return bool(results) and "dmarc=pass" in str(results[0]).lower().replace(" ", "")


def _text(mail: EmailMessage) -> str:
    """Returns the mail's own words, without what it quotes at its end."""
    part = mail.get_body(preferencelist=("plain", "html"))
    if part is None:
        return ""
    try:
        content = str(part.get_content())
    except (LookupError, UnicodeError, KeyError):
        return ""
    text = make_readable(content, "").text if part.get_content_type() == "text/html" else content
    lines = text.splitlines()
    while lines and (lines[-1].startswith(">") or not lines[-1].strip()):
        lines.pop()
    return _command_alone("\n".join(line.rstrip() for line in lines).strip())


def _command_alone(text: str) -> str:
    """Returns a command or a pairing code without what follows its paragraph: in replies a signature and a quote do."""
    first = text.partition("\n\n")[0]
    return first if parse_command(first) is not None or find_shown_code(first) is not None else text


def _attachments(mail: EmailMessage) -> tuple[InboundAttachment, ...]:
    read: list[InboundAttachment] = []
    for part in mail.iter_attachments():
        body = part.get_payload(decode=True)
        if isinstance(body, bytes) and len(read) < ATTACHMENTS_MAX:
            name = part.get_filename() or "attachment"
            read.append(InboundAttachment(name=name[:200], media_type=part.get_content_type(), body=body))
    return tuple(read)
