"""When a message was written, as each platform tells it: a yes that comes late is no answer to a later question."""

from pathlib import Path

import msgspec
import pytest

from palyra.adapters.channels.mail_reader import FetchedMail, MailReader
from palyra.adapters.channels.slack_payloads import written_at_ms
from palyra.core.channels.model import InboundMessage
from palyra.engine.channels.intake import ChannelIntake
from palyra.ports.channels import Arrival, Complete
from tests.adapters.channels import test_telegram
from tests.adapters.channels.test_discord_history import Home
from tests.support.discord import discord_server
from tests.support.waiting import until

HOUR_MS = 3_600_000


async def test_telegram_tells_the_second() -> None:
    chat, person = {"id": 7, "type": "private"}, {"id": 7, "first_name": "A"}
    said = {"message_id": 1, "chat": chat, "from": person, "text": "/approve", "date": 1_750_000_000}
    body = msgspec.json.encode({"update_id": 1, "message": said})
    read = await test_telegram.hooked().read_request(test_telegram.request(body))
    assert isinstance(read, tuple)
    assert [getattr(each.message, "written_at_ms", 0) for each in read if isinstance(each, Arrival)] == [
        1_750_000_000_999
    ]


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [("1800000001.000100", 1_800_000_001_000), ("1800000001.999900", 1_800_000_001_999), ("1", None), ("x.y", None)],
)
def test_slack_names_a_message_by_its_time(stamp: str, expected: int | None) -> None:
    assert written_at_ms(stamp) == expected


def test_a_mail_has_the_time_at_which_its_server_got_it_and_never_its_own() -> None:
    raw = b"From: alice@example.com\r\nDate: Sun, 15 Jun 2036 15:06:40 +0000\r\n\r\n/approve\r\n"
    reader = MailReader(channel="mail", address="palyra@example.com", key=b"key")
    for arrived_at_ms, expected in ((1_750_000_000_999, 1_750_000_000_999), (None, 0)):
        read = reader.read(FetchedMail(uid="1", raw=raw, arrived_at_ms=arrived_at_ms))
        assert read is not None
        assert read.message.written_at_ms == expected


async def test_discord_tells_it_of_a_message_of_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[InboundMessage] = []
    receive = ChannelIntake.receive

    async def overhear(self: ChannelIntake, message: InboundMessage, complete: Complete | None = None) -> object:
        heard.append(message)
        return await receive(self, message, complete)

    monkeypatch.setattr(ChannelIntake, "receive", overhear)
    async with discord_server() as server:
        home = Home(tmp_path, server)
        await home.known(age_ms=2 * HOUR_MS)
        await server.say("hello", age_ms=HOUR_MS)
        async with home.up():
            await until(lambda: len(heard) == 2)
    first, missed = (message.written_at_ms for message in heard)
    assert first is not None
    assert missed is not None
    assert missed - first == pytest.approx(HOUR_MS, abs=60_000)
