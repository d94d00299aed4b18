"""E-mail: a mailbox read by IMAP, answers sent by SMTP, threads kept by their headers.

Owns: the mailbox, the headers of answers, and that each of our mails goes to one address, with an id that proves it.
Does not own: reading a mail (mail_reader), what becomes of a message (core.channels).
A mail is marked as seen only after it was taken, or kept as a dead letter. Mails of programs are never answered, so that
no two robots talk. The libraries are Python's own; they block, so they run in threads.
"""

import asyncio
import imaplib
import re
import smtplib
import ssl
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from email.message import EmailMessage
from email.policy import default as default_policy
from email.utils import formatdate
from functools import partial
from typing import TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from palyra.adapters.channels.mail_process import MAIL_BYTES_MAX, read_apart
from palyra.adapters.channels.mail_reader import SUBJECT, SUBJECT_LENGTH_MAX, FetchedMail, MailReader
from palyra.core.channels.file_names import file_name
from palyra.core.channels.mail_trust import MailHeaders, is_address, make_mail_id, read_headers, topmost_authserv_id
from palyra.core.channels.model import ChannelKind
from palyra.core.channels.signatures import refusal
from palyra.core.channels.unread import UnreadMessage
from palyra.core.errors import Unavailable
from palyra.core.plurals import counted
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
FILES_BYTES_MAX = 10_000_000  # Of one mail. Most servers take 25 MB, and base64 makes a file a third larger.
MAILS_AT_ONCE_MAX = 50
MORE_S = 0.5  # Before the next ones are asked for, if there were as many: those behind a flood do not wait for polls.
ENCODED = "=?"  # Begins a word that Python decodes in whatever header it is given.
CONNECT_FAILED = "connect_failed"
SUBJECTS_MAX = 1_000
# Python would encode ids that are longer than a line, and no answer could name them again. SMTP takes 998 letters.
LONG_LINES = default_policy.clone(max_line_length=900)
NEWEST_COUNT = 20  # Mails that a check looks at.
NAMES_SHOWN_MAX = 3
SURE = "Write authserv_id only for a server that writes this header into each mail and removes those of senders with its name"
PORTS = {"imap": 143, "imaps": 993, "smtp": 25, "smtps": 465}
LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})

_PLAIN_ID = re.compile(r"<[!-;=?-~]+>")
Found = TypeVar("Found")


class EmailSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`imap` and `smtp` are addresses such as `imaps://palyra@mail.example.com`; the user's name is the mailbox.

    `key` marks the ids of our mails. `authserv_id` is the server whose Authentication-Results count; None is no server.
    """

    name: str
    imap: str
    smtp: str
    password: Callable[[], str | None]
    poll_s: float = POLL_S
    key: bytes = b""
    authserv_id: str | None = None


class EmailChannel:
    def __init__(self, settings: EmailSettings) -> None:
        self._settings = settings
        self._imap, self._smtp = urlsplit(settings.imap), urlsplit(settings.smtp)
        self._subjects: OrderedDict[str, str] = OrderedDict()
        self._reader = MailReader(
            channel=settings.name, address=self._address, key=settings.key, authserv_id=settings.authserv_id
        )
        self.traits = ChannelTraits(
            kind=ChannelKind.EMAIL,
            length_max=LENGTH_MAX,
            redelivery=Redelivery.UNKNOWN,
            file_bytes_max=FILES_BYTES_MAX,
            joins_files=True,
        )

    async def run(self, deliver: Deliver, report: ConnectionReport) -> None:
        while True:
            uids = await self._asked(self._unseen)
            await self._take_all(deliver, uids)
            report.up()
            await asyncio.sleep(MORE_S if len(uids) == MAILS_AT_ONCE_MAX else self._settings.poll_s)

    async def _take_all(self, deliver: Deliver, uids: list[str]) -> None:
        """Takes mails. One that cannot be taken now stays unseen and is read again; those behind it do not wait for it."""
        deferred: Unavailable | None = None
        for uid in uids:
            try:
                await self._take(deliver, uid)
            except Unavailable as error:
                deferred = error
                if error.code == CONNECT_FAILED:
                    break
        if deferred is not None:
            raise deferred

    async def _take(self, deliver: Deliver, uid: str) -> None:
        mail = await self._asked(partial(self._fetch, uid))
        if mail is None:
            return
        read = await read_apart(self._reader, mail)
        if isinstance(read, UnreadMessage):
            await deliver(read)
        elif read is not None:
            self._remember(read.message.conversation_id, read.subject)
            await deliver(read.message)
        await self._asked(partial(self._mark_seen, uid))

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
        """Logs in, and says whose results the newest mails bring: what to write into `authserv_id`."""
        newest = await self._asked(self._newest_headers)
        return ChannelCheck(known_as=self._address, note=_found_note(newest, self._settings.authserv_id))

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
            raise Unavailable(CONNECT_FAILED, f"the mailbox cannot be reached: {cause.strerror or cause}") from cause

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

    def _unseen(self) -> list[str]:
        return self._with_inbox(lambda inbox: _uids(inbox, "UNSEEN")[:MAILS_AT_ONCE_MAX])

    def _fetch(self, uid: str) -> FetchedMail | None:
        """Fetches one mail. Of one that is too large no more than tells so."""
        return self._with_inbox(
            lambda inbox: _fetched(inbox, uid, f"(INTERNALDATE BODY.PEEK[]<0.{MAIL_BYTES_MAX + 1}>)")
        )

    def _newest_headers(self) -> list[MailHeaders]:
        def read(inbox: imaplib.IMAP4) -> list[MailHeaders]:
            found = [_fetched(inbox, uid, "(BODY.PEEK[HEADER])") for uid in _uids(inbox, "ALL")[-NEWEST_COUNT:]]
            return [read_headers(mail.raw) for mail in found if mail is not None]

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

    def _remember(self, conversation_id: str, subject: str) -> None:
        self._subjects[conversation_id] = subject[:SUBJECT_LENGTH_MAX]
        self._subjects.move_to_end(conversation_id)
        if len(self._subjects) > SUBJECTS_MAX:
            self._subjects.popitem(last=False)

    def _answer(self, part: OutgoingPart) -> EmailMessage:
        address = part.conversation_id.rpartition("#")[0] or part.conversation_id
        if not is_address(address):
            raise SendFailed("the conversation is no e-mail address", is_final=True)
        subject = self._subjects.get(part.conversation_id, SUBJECT)
        mail = EmailMessage(policy=LONG_LINES)
        mail["From"], mail["To"] = self._address, address
        mail["Subject"] = _header(subject if subject.lower().startswith("re:") else f"Re: {subject}")
        mail["Date"] = formatdate(localtime=False)
        marked = make_mail_id(self._settings.key, self._settings.name, part.key, address, part.began_at_ms)
        mail["Message-ID"] = f"<{marked}@{self._address.partition('@')[2] or 'palyra'}>"
        mail["Auto-Submitted"] = "auto-replied"
        references = [each for each in (part.thread_id, part.reply_to) if each is not None and _is_plain_id(each)]
        if references:
            mail["In-Reply-To"] = references[-1]
            mail["References"] = " ".join(dict.fromkeys(references))
        mail.set_content(part.text)
        for file in part.files:
            main, _, sub = file.media_type.partition("/")
            if not sub or main in ("multipart", "message"):
                main, sub = "application", "octet-stream"
            mail.add_attachment(file.body, maintype=main, subtype=sub, filename=_header(file_name(file.name)))
        return mail


def _uids(inbox: imaplib.IMAP4, *asked: str) -> list[str]:
    _, found = inbox.uid("SEARCH", *asked)
    return (found[0] or b"").decode("ascii", "replace").split()


def _fetched(inbox: imaplib.IMAP4, uid: str, wanted: str) -> FetchedMail | None:
    """Fetches a mail, with the server's own time if that was wanted. None if it is gone."""
    _, parts = inbox.uid("FETCH", uid, wanted)
    raw = next((part[1] for part in parts if isinstance(part, tuple)), None)
    if raw is None:
        return None
    said = b" ".join(part[0] if isinstance(part, tuple) else part for part in parts if part)
    arrived = imaplib.Internaldate2tuple(said)
    # The mailbox tells seconds: the end of that second.
    return FetchedMail(
        uid=uid, raw=raw, arrived_at_ms=None if arrived is None else int(time.mktime(arrived)) * 1000 + 999
    )


def _found_note(newest: list[MailHeaders], configured: str | None) -> str:
    """Says whose Authentication-Results the newest mails bring, and what follows for the configuration."""
    seen = Counter(topmost_authserv_id(each) or "" for each in newest)
    named = [f'"{name}" in {count}' for name, count in seen.most_common(NAMES_SHOWN_MAX) if name]
    without = f", none that can be read in {seen['']}" if seen[""] else ""
    shown = ", ".join(named) or "nobody"
    told = f"of the newest {counted(len(newest), 'mail')}, the topmost Authentication-Results are of: {shown}{without}"
    if configured is None:
        return f"no authserv_id is configured, so mails are verified only by answering ours; {told}. {SURE}"
    if newest and not any(name.lower() == configured.lower() for name in seen):
        unnamed = "which none of them names, so mails are verified only by answering ours"
        return f'authserv_id is "{configured}", {unnamed}; {told}'
    return f'authserv_id is "{configured}"; {told}'


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


def _is_plain_id(text: str) -> bool:
    return _PLAIN_ID.fullmatch(text) is not None and ENCODED not in text


def _header(text: str) -> str:
    """Returns a text as one line in which Python finds nothing to decode: it would write what it decoded, line ends too."""
    return "".join(each for each in " ".join(text.split()).replace(ENCODED, "= ?") if each.isprintable())
