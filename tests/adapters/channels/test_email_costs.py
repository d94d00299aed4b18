"""Mails that cost: whatever one takes to read, the daemon answers meanwhile and the next mail is read."""

import asyncio
import time
from pathlib import Path

import pytest
from msgspec import structs

from palyra.adapters.channels.email import MAILS_AT_ONCE_MAX, EmailChannel
from palyra.adapters.channels.mail_process import IN_PROCESS_BYTES_MAX, MAIL_BYTES_MAX, read_apart
from palyra.adapters.channels.mail_reader import FetchedMail, MailReader, ReadMail
from palyra.core.channels.model import InboundMessage
from palyra.core.channels.outbox import OutboxState
from palyra.core.channels.unread import UnreadMessage
from palyra.core.ids import Principal
from palyra.engine.api.requests import RunsQuery
from tests.adapters.channels.test_email import AUTHSERV, KEY, channel, mailbox
from tests.support.mailboxes import mail_server
from tests.support.waiting import until

READER = MailReader(channel="mail", address="palyra@example.com", key=KEY, authserv_id=AUTHSERV)
HEAD = b"From: x@evil.example\nMessage-ID: <a@b>\n"
SHORT_S = 3.0  # Of reading what the daemon reads itself; some milliseconds are usual.
PAUSE_MAX_S = 2.0


class Silent:
    """A connection that nobody asks about."""

    def up(self) -> None: ...

    def down(self, reason: str) -> None: ...

    def fresh(self, history: object) -> None: ...

    async def identified(self, workspace: str) -> None: ...


COSTLY = {
    "labelled lines": b"\nA: " + b"a" * 500_000 + b"\nB: 2026\n",
    "a quoted line": b"\n> " + b"a" * 500_000,
    "parameters": b'Content-Type: text/plain; a="' + b";" * 500_000 + b"\n\nx",
    "short lines": b"\n" + b"a:\n" * 500_000,
    "letters of punycode": b"Content-Type: text/plain; charset=punycode\n\n" + b"a" * 500_000 + b"-" + b"b" * 500_000,
    "parts within parts": b"".join(
        b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (number, number) for number in range(150)
    )
    + b"\n"
    + b"a\n" * 1_000_000,
    "encoded words": b"Subject: " + b"=?a?q?" * 40_000 + b"\n\nx",
    "tables": b"Content-Type: text/html\n\n" + b"<table><tr><td>" * 100_000,
}


@pytest.mark.parametrize("costly", COSTLY.values(), ids=COSTLY.keys())
async def test_a_costly_mail_holds_up_nobody(costly: bytes) -> None:
    reading = asyncio.create_task(read_apart(READER, FetchedMail(uid="1", raw=HEAD + costly, arrived_at_ms=1)))
    longest_s = 0.0
    while not reading.done():
        began_s = time.monotonic()
        await asyncio.sleep(0.01)
        longest_s = max(longest_s, time.monotonic() - began_s)
    assert longest_s < PAUSE_MAX_S
    assert isinstance(await reading, ReadMail | UnreadMessage)


@pytest.mark.parametrize("costly", COSTLY.values(), ids=COSTLY.keys())
def test_what_the_daemon_reads_itself_costs_little(costly: bytes) -> None:
    began_s = time.process_time()
    READER.read(FetchedMail(uid="1", raw=(HEAD + costly)[:IN_PROCESS_BYTES_MAX], arrived_at_ms=1))
    assert time.process_time() - began_s < SHORT_S


async def test_a_mail_that_cannot_be_read_in_time_is_a_dead_letter_and_the_next_is_answered(tmp_path: Path) -> None:
    async with mailbox(tmp_path) as (scene, server):
        server.put(HEAD + COSTLY["parameters"])
        server.put(HEAD + b"\n" + b"a" * MAIL_BYTES_MAX)
        server.receive("What is on today?")
        await until(lambda: server.sent, timeout_s=60)
        letters = await scene.engine.outbox.list("mail", (OutboxState.DEAD,), 0, 10)
        assert {each.message_ids for each in letters} == {("uid 1", "<a@b>"), ("uid 2", "<a@b>")}
        assert all("mail_too_costly" in (each.error or "") for each in letters)
        assert server.seen == {1, 2, 3}
        assert len(await scene.engine.runs.list(Principal("channel:email:alice@example.com"), RunsQuery())) == 1


async def test_a_mail_of_usual_size_is_read_with_its_files() -> None:
    part = b"--b\nContent-Type: text/plain\n\nLook at this\n--b\nContent-Type: application/pdf; name=a.pdf\n\n%PDF-"
    raw = HEAD + b"Content-Type: multipart/mixed; boundary=b\n\n" + part + b"x" * 100_000 + b"\n--b--\n"
    found = await read_apart(READER, FetchedMail(uid="1", raw=raw, arrived_at_ms=1))
    assert isinstance(found, ReadMail)
    assert found.message.text == "Look at this"
    assert [(each.name, len(each.body)) for each in found.message.attachments] == [("a.pdf", 100_005)]


async def test_a_mail_behind_a_flood_does_not_wait_for_polls() -> None:
    heard: list[str] = []

    async def hear(message: InboundMessage | UnreadMessage, *_: object) -> None:
        heard.append(str(getattr(message, "text", "")).strip())

    async with mail_server() as server:
        patient = EmailChannel(structs.replace(channel(server)._settings, poll_s=600))
        for _ in range(2 * MAILS_AT_ONCE_MAX):
            server.receive("noise", "x@evil.example")
        server.receive("What is on today?")
        running = asyncio.create_task(patient.run(hear, Silent()))
        await until(lambda: "What is on today?" in heard, timeout_s=60)
        running.cancel()
