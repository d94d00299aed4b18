"""Messages that no person asked for in a channel: those of the tool channel.send, and answers of routines."""

from pathlib import Path

from palyra.adapters.providers.scripted import Script
from palyra.adapters.tools.channel_send import ChannelSend
from palyra.app.tools import LateMessages
from palyra.core.events.tool import ApprovalStatus, Decision
from palyra.core.routines.wish import RoutineWish
from palyra.engine.api.requests import ApprovalAnswer, ApprovalsQuery
from tests.support.asking import ask, calls, finished, says, wait_for
from tests.support.channels import MemoryPlatform, channel_workshop, rules
from tests.support.engines import OWNER
from tests.support.waiting import until

SEND = [
    Script(
        turns=(calls("channel.send", channel="team", conversation_id="c9", text="The build is green."), says("Told."))
    )
]


async def test_the_tool_asks_first_and_sends_once(tmp_path: Path) -> None:
    workshop, messages = channel_workshop(tmp_path, SEND), LateMessages()
    workshop.journal_tools = lambda journal, artifacts: (ChannelSend(messages, artifacts, journal.state),)
    platform = workshop.channels[0].adapter
    assert isinstance(platform, MemoryPlatform)
    async with workshop.open() as engine:
        messages.bind(engine.outbox)
        run = await engine.runs.start(OWNER, ask())
        await wait_for(engine, run.id, "approval.requested")
        (card,) = await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
        assert card.preview == "to c9 of channel team:\nThe build is green."
        assert platform.sent == []
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW))
        await finished(engine, run)
        await until(lambda: platform.sent)
        assert [(part.conversation_id, part.text) for part in platform.sent] == [("c9", "The build is green.")]


async def test_an_unknown_channel_is_a_failed_call(tmp_path: Path) -> None:
    scripts = [Script(turns=(calls("channel.send", channel="x", conversation_id="c", text="hi"), says("It failed.")))]
    workshop, messages = channel_workshop(tmp_path, scripts), LateMessages()
    workshop.journal_tools = lambda journal, artifacts: (ChannelSend(messages, artifacts, journal.state),)
    async with workshop.open() as engine:
        messages.bind(engine.outbox)
        run = await engine.runs.start(OWNER, ask())
        await wait_for(engine, run.id, "approval.requested")
        (card,) = await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW))
        events = await finished(engine, run)
        (ended,) = [event.data for event in events if event.type == "tool.finished"]
        assert ended.error.code == "channel_unknown"  # type: ignore[union-attr]


async def test_a_routines_answer_goes_to_the_conversation_of_its_channel(tmp_path: Path) -> None:
    workshop = channel_workshop(tmp_path, [Script(turns=(says("All quiet."),))], rules(conversation="c7"))
    platform = workshop.channels[0].adapter
    assert isinstance(platform, MemoryPlatform)
    async with workshop.open() as engine:
        wish = RoutineWish(name="report", prompt="go", every_s=86_400, channel="team")
        routine = await engine.routines.create(OWNER, wish)
        await engine.routines.run(OWNER, routine.id)
        await until(lambda: platform.sent)
        assert [(part.conversation_id, part.text) for part in platform.sent] == [("c7", "All quiet.")]
