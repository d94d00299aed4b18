"""A mailbox on loopback for Python's own clients: the few commands of IMAP and SMTP that they use."""

import asyncio
import imaplib
import re
import time
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default

PASSWORD = "of-the-mailbox"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class MailServer:
    imap_port: int = 0
    smtp_port: int = 0
    mails: dict[int, bytes] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    sent: list[EmailMessage] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    needs_login: bool = False
    arrived: dict[int, str] = field(default_factory=dict)

    def receive(self, text: str, sender: str = "Alice <alice@example.com>", **headers: str) -> None:
        mail = EmailMessage(policy=default.clone(max_line_length=900))
        mail["From"], mail["To"], mail["Subject"] = sender, "palyra@example.com", "A question"
        named = {"Message-ID": f"<m{len(self.mails) + 1}@example.com>"}
        named["Authentication-Results"] = "mx.example.com; dmarc=pass header.from=example.com"
        for name, value in {**named, **{key.replace("_", "-"): each for key, each in headers.items()}}.items():
            mail[name] = value
        mail.set_content(text)
        self.put(mail.as_bytes())

    def put(self, raw: bytes, arrived_at_s: float | None = None) -> int:
        """Lays bytes into the mailbox, as some server of some time took them."""
        uid = len(self.mails) + 1
        self.arrived[uid] = imaplib.Time2Internaldate(time.time() if arrived_at_s is None else arrived_at_s)
        self.mails[uid] = raw
        return uid

    def reply(self, text: str, sender: str = "alice@example.com", **headers: str) -> None:
        """Answers the last mail that was sent to somebody."""
        named = str(self.sent[-1]["Message-ID"])
        self.receive(text, sender, **{"In_Reply_To": named, "References": named, **headers})

    async def imap(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"* OK ready\r\n")
        while line := await reader.readline():
            tag, _, rest = line.decode().strip().partition(" ")
            writer.write(self._imap_answer(tag, rest.upper(), rest))
            await writer.drain()
            if rest.upper().startswith("LOGOUT"):
                break

    def _imap_answer(self, tag: str, command: str, exact: str) -> bytes:
        if command.startswith("CAPABILITY"):
            return f"* CAPABILITY IMAP4rev1\r\n{tag} OK done\r\n".encode()
        if command.startswith("LOGIN"):
            return f"{tag} {'OK done' if PASSWORD in exact else 'NO wrong password'}\r\n".encode()
        if command.startswith("UID SEARCH"):
            uids = " ".join(str(uid) for uid in list(self.mails) if uid not in self.seen or " ALL" in command)
            return f"* SEARCH {uids}\r\n{tag} OK done\r\n".encode()
        found = re.match(r"UID (FETCH|STORE) (\d+)", command)
        if found and found[1] == "FETCH":
            body = self.mails[int(found[2])]
            arrived = self.arrived[int(found[2])] if "INTERNALDATE" in command else ""
            body = body.partition(b"\n\n")[0] + b"\n\n" if "HEADER" in command else body
            if part := re.search(r"<0\.(\d+)>", command):
                body = body[: int(part[1])]
            said = f"INTERNALDATE {arrived} " if arrived else ""
            head = f"* 1 FETCH (UID {found[2]} {said}BODY[] {{{len(body)}}}\r\n".encode()
            return head + body + f")\r\n{tag} OK done\r\n".encode()
        if found:
            self.seen.add(int(found[2]))
        return f"* 1 EXISTS\r\n{tag} OK done\r\n".encode()

    async def smtp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 ready\r\n")
        is_known = not self.needs_login
        while line := await reader.readline():
            command = line.decode().strip().upper()
            if command.startswith("EHLO"):
                writer.write(b"250-mail.example.com\r\n250 AUTH PLAIN\r\n" if self.needs_login else b"250 ok\r\n")
            elif command.startswith("AUTH PLAIN"):
                is_known = PASSWORD.encode() in b64decode(line.split()[-1])
                writer.write(b"235 welcome\r\n" if is_known else b"535 wrong password\r\n")
            elif command.startswith("MAIL") and not is_known:
                writer.write(b"530 log in first\r\n")
            elif command.startswith("RCPT") and self.refusals:
                writer.write(f"{self.refusals.pop(0)}\r\n".encode())
            elif command == "DATA":
                writer.write(b"354 go\r\n")
                await writer.drain()
                raw = await reader.readuntil(b"\r\n.\r\n")
                self.sent.append(message_from_bytes(raw[:-5], policy=default))
                writer.write(b"250 taken\r\n")
            elif command == "QUIT":
                writer.write(b"221 bye\r\n")
                break
            else:
                writer.write(b"250 ok\r\n")
            await writer.drain()


@dataclass
class Connections:
    """Closes every connection, however serving it ended: a client may be gone in the middle of a command."""

    serving: set[asyncio.Task[None]] = field(default_factory=set)

    def closing(self, serve: Serve) -> Serve:
        async def serve_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self.serving.add(task)
            try:
                await serve(reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError):
                pass
            finally:
                self.serving.discard(task)
                writer.close()

        return serve_and_close

    async def close(self) -> None:
        """A thread of the client may still talk, but its connection must not outlive the loop."""
        for task in (left := list(self.serving)):
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


@asynccontextmanager
async def mail_server() -> AsyncIterator[MailServer]:
    server, connections = MailServer(), Connections()
    imap = await asyncio.start_server(connections.closing(server.imap), "127.0.0.1", 0)
    smtp = await asyncio.start_server(connections.closing(server.smtp), "127.0.0.1", 0)
    server.imap_port = imap.sockets[0].getsockname()[1]
    server.smtp_port = smtp.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        for each in (imap, smtp):
            each.close()
        await connections.close()
