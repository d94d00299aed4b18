"""Many conversations at once: nothing is lost, order is kept, everybody gets a turn, and nothing stays in memory."""

import asyncio
from pathlib import Path

from palyra.adapters.providers.scripted import Script
from palyra.core.channels.model import ChannelBusy
from palyra.core.errors import Unavailable
from palyra.engine.setup import EngineSettings
from tests.support.asking import says
from tests.support.channels import MemoryPlatform, channel_workshop, message, rules
from tests.support.examples import examples
from tests.support.waiting import until

CONVERSATIONS_COUNT = 20
EACH_COUNT = examples(3)


async def test_twenty_busy_conversations_lose_nothing_and_keep_their_order(tmp_path: Path) -> None:
    scripts = [Script(when=f"^{number}$", turns=(says(f"answer {number}"),)) for number in range(EACH_COUNT)]
    workshop = channel_workshop(tmp_path, scripts, rules(when_busy=ChannelBusy.QUEUE))
    workshop.settings = EngineSettings(origins_max={"discord:team": 4})
    platform = workshop.channels[0].adapter
    assert isinstance(platform, MemoryPlatform)
    async with workshop.open() as engine:

        async def talk(name: str) -> None:
            for number in range(EACH_COUNT):
                said = message(str(number), conversation_id=name, sender_id=name)
                while True:
                    try:
                        await engine.channels.intake.receive(said)
                        break
                    except Unavailable:
                        await asyncio.sleep(0.05)

        names = [f"c{number}" for number in range(CONVERSATIONS_COUNT)]
        await asyncio.gather(*map(talk, names))
        await until(lambda: len(platform.sent) == CONVERSATIONS_COUNT * EACH_COUNT)
        for name in names:
            heard = [part.text for part in platform.sent if part.conversation_id == name]
            assert heard == [f"answer {number}" for number in range(EACH_COUNT)]
        assert engine.channels.intake._conversations == {}
