"""Random mails, through the reader and down to the journal: whatever comes, the mailbox is read on."""

import os
import random
from email import message_from_bytes
from pathlib import Path

from palyra.adapters.channels.mail_reader import FetchedMail, MailReader, ids_of
from palyra.core.channels.authentication_results import parse_authentication_results, says_dmarc_passed
from palyra.core.channels.mail_trust import read_headers, sender_of
from palyra.core.channels.outbox import OutboxState
from palyra.core.channels.unread import UnreadMessage, plain_text, read_or_mark, require_plain
from palyra.core.ids import Principal
from palyra.engine.api.requests import RunsQuery
from palyra.ports.channels import OutgoingFile, OutgoingPart
from tests.adapters.channels.test_email import AUTHSERV, channel, mailbox
from tests.support.mailboxes import MailServer
from tests.support.waiting import until

READ_COUNT = int(os.environ.get("PALYRA_FUZZ_MAILS", "1500"))
JOURNAL_COUNT = 120
PASSED = f"Authentication-Results: {AUTHSERV}; dmarc=pass header.from=example.com\n"
SEEDS = [
    b"From: A <alice@example.com>\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\nMessage-ID: <m@x>\n\nHello there\n> quoted\n",
    b"From: a@example.com\nContent-Type: text/plain; charset=iso-8859-15\nContent-Transfer-Encoding: base64\n\nSGFsbG8=\n",
    b"From: a@example.com\nContent-Type: text/html; charset=utf-7\n\n<p>Hi</p><blockquote>x</blockquote>\n",
    b"From: a@example.com\nContent-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/plain\n\nHi\n--b\n"
    b"Content-Type: image/png; name*0*=utf-8''%E2%82; name*1=x\nContent-Disposition: attachment; filename*=x-odd''a\n"
    b"Content-Transfer-Encoding: base64\n\niVBORw0KGgo=\n--b\nContent-Type: message/rfc822\n\nFrom: b@x\n\nin\n--b--\n",
    b"From: a@example.com\nContent-Type: multipart/alternative; boundary=\"c\"\n\n--c\nContent-Type: text/plain;\n"
    b" charset=\"unknown-8bit\"\nContent-Transfer-Encoding: quoted-printable\n\n=FF=00=zz\n--c\nContent-Type: text/html\n\n"
    b"<html>\n--c--\n",
    b"From: a@example.com\nContent-Type: text/plain; charset=\"rot13\"\n\nUryyb\n",
    b"From: a@example.com\nContent-Type: application/pdf; name=\"=?x-odd?b?//8=?=\"\n\n%PDF-1.4\n",
    b"From: a@example.com\nContent-Type: multipart/mixed; boundary=\n\n--\n\nx\n----\n",
]  # fmt: skip
PIECES = [
    b"\x00", b"\r", b"\n", b"\n\n", b"\xff\xfe", b"\xed\xa0\x80", b"=?utf-8?q?=ED=A0=80?=", b"=?hex?b?AA==?=", b";", b"\"",
    b"(", b"<", b">", b"@", b",", b":", b"charset=idna", b"charset=punycode", b"charset=undefined", b"charset=\xff",
    b"charset*=utf-8''%", b"Content-Type: ", b"multipart/mixed; boundary=b", b"multipart/digest; boundary=b", b"message/rfc822",
    b"message/partial", b"message/external-body", b"text/html", b"image/jpeg", b"application/zip", b"--b\n", b"--b--", b"x" * 300,
    b"Content-Transfer-Encoding: uuencode\n", b"Content-Transfer-Encoding: base64\n", b"begin 666 x\n", b"filename*0*=\xff''x",
    b"name*99999999999999999999=x", b"Date: x\n", b"From: b@example.com\n", b"References: ", b"\xe2\x80\xae", b"\x1b[2J",
    b"Subject: Fwd: \n", b"Message-ID: \n", b"Message-ID: " + b"<y>" * 200 + b"\n", b"In-Reply-To: <\xff>\n", b"<blockquote ",
]  # fmt: skip


def mutated(chance: random.Random) -> bytes:
    """Returns a mail that began as a plain one, with some letters, lines and pieces changed."""
    raw = bytearray(PASSED.encode() * chance.randrange(2) + chance.choice(SEEDS))
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(raw) + 1)
        match chance.randrange(5):
            case 0:
                raw[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                raw[at:at] = chance.choice(PIECES)
            case 2:
                del raw[at : at + chance.randrange(20)]
            case 3:
                end = at + chance.randrange(40)
                raw[at:at] = raw[at:end] * chance.randrange(1, 4)
            case _:
                lines = bytes(raw).split(b"\n")
                lines.insert(chance.randrange(len(lines)), chance.choice(PIECES))
                raw = bytearray(b"\n".join(lines))
    return bytes(raw)


def test_every_random_mail_is_read_or_marked() -> None:
    chance = random.Random(7)
    reader = MailReader(channel="mail", address="palyra@example.com", key=b"key", authserv_id=AUTHSERV)
    read_count = 0
    for number in range(READ_COUNT):
        mail = FetchedMail(uid=str(number), raw=mutated(chance), arrived_at_ms=1_800_000_000_000)
        found = read_or_mark("mail", ids_of(mail), lambda mail=mail: reader.read(mail))  # type: ignore[misc]
        if isinstance(found, UnreadMessage):
            assert "mail_sender_unclear" in found.reason, (found, mail.raw)
        elif found is not None:
            message, subject = found.message, found.subject
            require_plain(message)
            subject.encode()
            read_count += 1
            assert not message.sender_verified or message.sender_id.endswith("@example.com")
    assert read_count > READ_COUNT / 2


async def test_random_mails_go_down_to_the_journal_and_the_next_one_is_answered(tmp_path: Path) -> None:
    chance = random.Random(11)
    async with mailbox(tmp_path) as (scene, server):
        for _ in range(JOURNAL_COUNT):
            server.put(mutated(chance))
        server.receive("What is on today?", "Last <last@example.com>")
        await until(lambda: len(server.seen) == JOURNAL_COUNT + 1)
        await until(lambda: [mail for mail in server.sent if mail["To"] == "last@example.com"])
        letters = await scene.engine.outbox.list("mail", (OutboxState.DEAD,), 0, 1_000)
        assert letters
        assert all(each.message_ids[0].startswith("uid ") for each in letters if each.kind == "unread")
        assert len(await scene.engine.runs.list(Principal("channel:email:last@example.com"), RunsQuery())) == 1


def test_no_text_of_a_sender_becomes_a_result_of_its_server() -> None:
    """A server that quotes what it was told, as the standard asks, is read as it meant it."""
    chance = random.Random(13)
    bits = ["dmarc=pass", "header.from=victim.example", AUTHSERV, "none", "/1", "\n ", *'; "\\()=@.']
    for _ in range(3_000):
        told = "".join(chance.choice(bits) for _ in range(chance.randrange(1, 14)))
        quoted = '"' + told.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "") + '"'
        comment = "(" + "".join(f"\\{letter}" if letter in "()\\" else letter for letter in told) + ")"
        spf = f"spf=none {comment} smtp.mailfrom={quoted}@evil.example"
        line = f"{AUTHSERV}; {spf}; dmarc=fail {comment} header.from=victim.example"
        assert not says_dmarc_passed(line, AUTHSERV, "owner@victim.example"), line
        assert parse_authentication_results(line) is not None, line
        said = sender_of(read_headers(f"From: {quoted} {comment} <x@evil.example>\n\n".encode()))
        assert said in ("x@evil.example", None), told


LINES = [
    "=?utf-8?q?=0D=0AReply-To:x@evil.example?=",
    "=?utf-8?b?//8=?=",
    "=?utf-8?q?=3D=3Futf-8=3Fq=3F=3D0AReply-To:x=3F=3D?=",
]
ODD = [
    *LINES,
    '"',
    "(",
    "<",
    ">",
    "@",
    ":",
    ";",
    ",",
    "\\",
    "\x01",
    "\x85",
    "\u2028",
    "\u00e9",
    "\ud800",
    "\t",
    "a" * 80,
]
OURS = ("from", "to", "subject", "date", "message-id", "auto-submitted", "in-reply-to", "references")
MIME = ("content-type", "content-transfer-encoding", "mime-version")


def test_no_word_of_a_mail_becomes_a_header_of_its_answer() -> None:
    chance = random.Random(17)
    adapter = channel(MailServer())
    for _ in range(2_000):
        subject, named, name = ("".join(chance.choices(ODD, k=chance.randrange(1, 6))) for _ in range(3))
        raw = f"{PASSED}From: a@example.com\nSubject: {subject}\nMessage-ID: {named}\nReferences: {named}\n\nHi"
        mail = FetchedMail(uid="1", raw=raw.encode("utf-8", "surrogatepass"), arrived_at_ms=1)
        found = adapter._reader.read(mail)
        if found is None or not found.message.sender_verified:
            continue
        said = found.message
        adapter._remember(said.conversation_id, found.subject)
        part = OutgoingPart(
            key="k", conversation_id=said.conversation_id, text="Hello", began_at_ms=1, thread_id=said.thread_id,
            reply_to=said.message_id, files=(OutgoingFile(name=plain_text(name), media_type="text/csv", body=b"a"),),
        )  # fmt: skip
        answer = message_from_bytes(adapter._answer(part).as_bytes())
        heads = [each.lower() for inner in answer.walk() for each, _ in inner.items() if each.lower() not in MIME]
        assert set(heads) <= {*OURS, "content-disposition"}, (subject, named, name)
        assert len(heads) <= len(OURS) + 1
