"""E-mail through a real engine with Python's imaplib and smtplib, against a mailbox on loopback."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from palyra.adapters.channels import email as module
from palyra.adapters.channels.email import EmailChannel, EmailSettings
from palyra.adapters.providers.scripted import Script
from palyra.core.channels.model import ChannelKind
from palyra.core.errors import Unavailable
from palyra.core.ids import Principal
from palyra.engine.api.requests import RunsQuery
from palyra.engine.channels.directory import ConfiguredChannel
from tests.support.asking import says
from tests.support.channels import PDF, ChannelScene, MemoryPlatform, permits, report, rules
from tests.support.engines import Workshop
from tests.support.mailboxes import PASSWORD, MailServer, mail_server
from tests.support.waiting import until

HELLO = [Script(turns=tuple(says("Here is the answer.") for _ in range(9)))]


KEY = b"of the node"
AUTHSERV = "mx.example.com"


def channel(server: MailServer, password: str = PASSWORD, authserv_id: str | None = AUTHSERV) -> EmailChannel:
    return EmailChannel(
        EmailSettings(
            name="mail",
            imap=f"imap://palyra%40example.com@127.0.0.1:{server.imap_port}",
            smtp=f"smtp://palyra%40example.com@127.0.0.1:{server.smtp_port}",
            password=lambda: password,
            poll_s=0.02,
            key=KEY,
            authserv_id=authserv_id,
        )
    )


@asynccontextmanager
async def mailbox(
    root: Path, authserv_id: str | None = AUTHSERV, **fields: object
) -> AsyncIterator[tuple[ChannelScene, MailServer]]:
    async with mail_server() as server:
        workshop = Workshop(root, HELLO)
        workshop.may_answer = permits
        given_rules = rules(name="mail", kind=ChannelKind.EMAIL, **fields)
        workshop.channels = (ConfiguredChannel(given_rules, channel(server, authserv_id=authserv_id)),)
        async with workshop.open() as engine:
            yield ChannelScene(engine, MemoryPlatform(), workshop), server


async def test_a_mail_is_answered_in_its_thread_and_seen_after_it_was_taken(tmp_path: Path) -> None:
    async with mailbox(tmp_path) as (_, server):
        server.receive("What is on today?\n\n> quoted\n> words\n")
        await until(lambda: server.sent)
        (mail,) = server.sent
        assert (mail["To"], mail["Subject"], mail["In-Reply-To"]) == (
            "alice@example.com", "Re: A question", "<m1@example.com>",
        )  # fmt: skip
        assert mail["Auto-Submitted"] == "auto-replied"
        assert mail.get_content().strip() == "Here is the answer."
        await until(lambda: server.seen == {1})


async def test_threads_are_sessions_of_their_own(tmp_path: Path) -> None:
    async with mailbox(tmp_path) as (scene, server):
        server.receive("first thread")
        await until(lambda: len(server.sent) == 1)
        server.receive("the same thread", References="<m1@example.com>")
        await until(lambda: len(server.sent) == 2)
        server.receive("another thread")
        await until(lambda: len(server.sent) == 3)
        sessions = await scene.engine.sessions.list(Principal("channel:email:alice@example.com"), "", 10)
        assert len(sessions) == 2


@pytest.mark.parametrize(
    "headers",
    [{"Auto_Submitted": "auto-replied"}, {"Precedence": "bulk"}, {"List_Id": "<list.example.com>"}],
)
async def test_robots_and_our_own_mails_are_not_answered(tmp_path: Path, headers: dict[str, str]) -> None:
    async with mailbox(tmp_path) as (scene, server):
        server.receive("I am away", **headers)
        server.receive("echo", sender="palyra@example.com")
        await until(lambda: server.seen == {1, 2})
        assert await scene.engine.runs.list(None, RunsQuery()) == ()


async def test_a_forged_sender_is_not_the_linked_one(tmp_path: Path) -> None:
    async with mailbox(tmp_path) as (scene, server):
        await scene.link("alice@example.com", "user:alice", channel="mail")
        server.receive("it is really me", Authentication_Results="mx.example.com; dmarc=fail")
        await until(lambda: server.seen == {1})
        runs = await scene.engine.runs.list(None, RunsQuery())
        assert [run.principal for run in runs] == ["channel:email:unproven:alice@example.com"]


async def test_a_refused_recipient_is_dead_and_a_busy_server_is_asked_again(tmp_path: Path) -> None:
    async with mailbox(tmp_path) as (scene, server):
        server.refusals = ["550 no such user"]
        server.receive("hello")
        await until(lambda: _states(scene, ["dead"]))
        server.refusals = ["451 try later"]
        server.receive("hello again")
        await until(lambda: server.sent)


async def _states(scene: ChannelScene, expected: list[str]) -> bool:
    return [state.value for state in await scene.states()] == expected


async def test_a_wrong_password_is_told() -> None:
    async with mail_server() as server:
        assert (await channel(server).check()).known_as == "palyra@example.com"
        with pytest.raises(Unavailable, match="mailbox_refused"):
            await channel(server, "guess").check()


async def test_files_are_attached_to_the_mail(tmp_path: Path) -> None:
    async with mailbox(tmp_path) as (scene, server):
        await scene.engine.outbox.send(report("mail", "alice@example.com"))
        await until(lambda: server.sent)
        (mail,) = server.sent
        assert mail.get_body().get_content().strip() == "Here it is."  # type: ignore[union-attr]
        (file,) = mail.iter_attachments()
        assert (file.get_filename(), file.get_content_type()) == ("report.pdf", "application/pdf")
        assert file.get_payload(decode=True) == PDF


async def test_the_mail_server_is_logged_in_to_before_a_mail_is_given_to_it(tmp_path: Path) -> None:
    async with mailbox(tmp_path) as (_, server):
        server.needs_login = True
        server.receive("hello")
        await until(lambda: server.sent)


async def test_the_password_is_not_sent_unencrypted_to_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOCAL_HOSTS", frozenset())
    async with mailbox(tmp_path) as (scene, server):
        server.needs_login = True
        server.receive("hello")
        await until(lambda: _states(scene, ["dead"]))
        assert server.sent == []
