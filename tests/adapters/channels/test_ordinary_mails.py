"""Ordinary mails of an owner: each is read as docs/channels.md says, with and without a server that vouches."""

import pytest

from palyra.adapters.channels.mail_reader import FetchedMail, MailReader
from palyra.core.channels.commands import parse_command
from palyra.core.channels.mail_trust import make_mail_id
from palyra.core.channels.model import InboundMessage
from palyra.core.trust import Trust
from tests.adapters.channels.ordinary_mails import MAILS, OWNER, PALYRA, SERVERS, OrdinaryMail

KEY = b"of the node"
NOW_MS = 1_800_000_000_000
OURS = f"<{make_mail_id(KEY, 'mail', 'part', OWNER, NOW_MS - 60_000)}@example.com>"


def read(mail: OrdinaryMail, results: str | None, authserv_id: str | None) -> InboundMessage:
    reply = f"In-Reply-To: {OURS}\nReferences: <first@example.com>\n {OURS}\n" if mail.is_reply else ""
    top = f"Authentication-Results: {results}\n" if results is not None else ""
    head = f"{top}From: Alice Owner <{OWNER}>\nTo: {PALYRA}\nSubject: {mail.subject}\nMessage-ID: <m@victim.example>\n"
    raw = f"{head}{reply}MIME-Version: 1.0\n{mail.head}\n\n{mail.body}".replace("\n", "\r\n").encode()
    reader = MailReader(channel="mail", address=PALYRA, key=KEY, authserv_id=authserv_id)
    found = reader.read(FetchedMail(uid="1", raw=raw, arrived_at_ms=NOW_MS))
    assert found is not None
    return found.message


@pytest.mark.parametrize("authserv_id", [None, "mail.example.com"])
@pytest.mark.parametrize("mail", MAILS, ids=[each.name for each in MAILS])
def test_an_ordinary_mail_is_read_as_its_owner_meant_it(mail: OrdinaryMail, authserv_id: str | None) -> None:
    said = read(mail, SERVERS["OpenDMARC"] if authserv_id else None, authserv_id)
    assert said.sender_verified == (mail.is_reply or authserv_id is not None)
    assert said.may_command == mail.is_reply
    assert said.text == mail.own
    assert (parse_command(said.text) is not None) == mail.is_command
    others = [each for each in said.attachments if each.name == "quoted.txt"]
    assert [each.trust for each in others] == [Trust.EXTERNAL for _ in mail.others]
    assert all(each.body.decode().startswith(begin) for each, begin in zip(others, mail.others, strict=True))
    files = [each for each in said.attachments if each not in others]
    assert [(each.name, each.trust) for each in files] == [(name, None) for name in mail.files]


@pytest.mark.parametrize("server", SERVERS.keys())
def test_a_server_vouches_in_its_own_form(server: str) -> None:
    new = next(each for each in MAILS if each.name == "a new mail")
    named = SERVERS[server].partition(";")[0]
    assert read(new, SERVERS[server], named).sender_verified
    assert not read(new, SERVERS[server].replace("dmarc=pass", "dmarc=fail"), named).sender_verified
    assert not read(new, SERVERS[server], "mx.other.example").sender_verified


def test_a_server_that_names_nobody_vouches_for_nobody_and_takes_nothing_from_an_answer() -> None:
    results = (
        "spf=pass (sender IP is 192.0.2.1)\n smtp.mailfrom=victim.example;"
        " dkim=pass (signature was verified)\n header.d=victim.example;"
        "dmarc=pass action=none\n header.from=victim.example;"
        "compauth=pass reason=100"
    )
    new = next(each for each in MAILS if not each.is_reply)
    assert not read(new, results, "mx.microsoft.com").sender_verified
    assert read(MAILS[0], results, "mx.microsoft.com").may_command
