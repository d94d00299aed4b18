"""Messages of a channel through a real engine: answered once, for the right person, in the right session."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from palyra.adapters.providers.prepared_turns import Chunk, Turn
from palyra.adapters.providers.scripted import Script
from palyra.core.channels.model import SELF, ChannelBusy, DirectMessages, InboundMessage, TakenEnvelope
from palyra.core.channels.outbox import OutboxState
from palyra.core.errors import Conflict, Unavailable
from palyra.core.events.run import MessageUser, RunAccepted
from palyra.core.ids import Principal
from palyra.core.trust import Trust
from palyra.engine.api.requests import RunsQuery
from palyra.engine.channels.intake import PAIRING_HINT, Receipt
from palyra.ports.channels import ChannelViews
from tests.support.asking import SEND_THEN_ANSWER, first, says
from tests.support.channels import ChannelScene, channel_scene, message, rules
from tests.support.engines import OWNER
from tests.support.waiting import until

STRANGER = Principal("channel:discord:s1")
TEAM = Principal("channel:team")


async def tape(scene: ChannelScene, owner: Principal) -> list:
    (session,) = await scene.engine.sessions.list(owner, "", 10)
    return list(await scene.engine.sessions.tape(owner, session.id, 0, 500))


async def test_a_message_is_answered_once_in_its_conversation(tmp_path: Path) -> None:
    async with channel_scene(tmp_path) as scene:
        said = message("hello", thread_id="t1", message_id="m9")
        first = await scene.engine.channels.intake.receive(said)
        second = await scene.engine.channels.intake.receive(said)
        assert isinstance(first, Receipt)
        assert first.is_accepted
        assert second == Receipt(is_accepted=True, is_duplicate=True)
        assert await scene.heard(1) == ["Hi there."]
        part = scene.platform.sent[0]
        assert (part.conversation_id, part.thread_id, part.reply_to) == ("c1", "t1", "m9")
        runs = await scene.engine.runs.list(STRANGER, RunsQuery())
        assert [run.origin for run in runs] == ["discord:team"]
        await until(lambda: _all_sent(scene))


async def _all_sent(scene: ChannelScene) -> bool:
    return await scene.states() == [OutboxState.SENT]


async def test_a_duplicate_after_a_restart_is_a_duplicate(tmp_path: Path) -> None:
    said = message("hello")
    async with channel_scene(tmp_path) as scene:
        await scene.engine.channels.intake.receive(said)
        await scene.heard(1)
    async with channel_scene(tmp_path) as scene:
        assert (await scene.engine.channels.intake.receive(said)).is_duplicate


async def test_a_strangers_words_are_external_taint_the_run_and_refer_to_nothing(tmp_path: Path) -> None:
    async with channel_scene(tmp_path) as scene:
        await scene.say("read @file:secret.txt")
        await scene.heard(1)
        events = await tape(scene, STRANGER)
        said = next(event for event in events if isinstance(event.data, MessageUser))
        assert (said.actor, said.trust) == (STRANGER, Trust.EXTERNAL)
        assert "reference.resolved" not in [event.type for event in events]
        (session,) = await scene.engine.sessions.list(STRANGER, "", 10)
        taint = await scene.engine.taint.show(STRANGER, session.id)
        assert {each.source for each in taint} == {"channel:discord", "channel:discord:team"}


async def test_a_linked_account_speaks_as_its_principal_with_the_account_as_via(tmp_path: Path) -> None:
    async with channel_scene(tmp_path) as scene:
        await scene.link("s1", "user:alice", "user")
        await scene.say("hello")
        await scene.heard(2)
        events = await tape(scene, Principal("user:alice"))
        said = next(event for event in events if isinstance(event.data, MessageUser))
        assert (said.actor, said.trust, said.data.via) == ("user:alice", Trust.OPERATOR, STRANGER)


async def test_a_viewer_is_local_and_not_operator(tmp_path: Path) -> None:
    async with channel_scene(tmp_path) as scene:
        await scene.link("s1", "user:alice", "viewer")
        await scene.say("hello")
        await scene.heard(2)
        events = await tape(scene, Principal("user:alice"))
        assert next(event.trust for event in events if isinstance(event.data, MessageUser)) is Trust.LOCAL


SLOW = [Script(turns=(Turn(chunks=tuple(Chunk("x", 20) for _ in range(1_000))), says("Both heard.")))]


async def test_a_shared_conversation_has_one_session_and_each_word_its_speaker(tmp_path: Path) -> None:
    given = rules(allow_from=("*",))
    async with channel_scene(tmp_path, SLOW, given) as scene:
        await scene.link("s1", "user:alice", "user")
        await scene.say("first", is_direct=False, mentions=(SELF,))
        await scene.say("second", is_direct=False, mentions=(SELF,), sender_id="s2")
        events = await tape(scene, TEAM)
        accepted = [(event.actor, event.trust) for event in events if isinstance(event.data, RunAccepted)]
        assert accepted == [("user:alice", Trust.OPERATOR)]
        said = [(event.actor, event.data.text, event.trust) for event in events if isinstance(event.data, MessageUser)]
        assert said == [
            ("user:alice", "first", Trust.OPERATOR),
            ("channel:discord:s2", "second", Trust.EXTERNAL),
        ]
        for stranger in ("user:bob", "channel:discord:s2"):
            assert await scene.engine.sessions.list(Principal(stranger), "", 10) == ()


async def test_isolated_senders_of_one_conversation_share_nothing(tmp_path: Path) -> None:
    given = rules(allow_from=("*",), isolate_session_by_sender=True)
    async with channel_scene(tmp_path, (), given) as scene:
        for sender in ("s1", "s2"):
            await scene.say("hello", is_direct=False, mentions=(SELF,), sender_id=sender)
        await scene.heard(2)
        keys = [
            (await scene.engine.sessions.list(Principal(f"channel:discord:{sender}"), "", 10))[0].key
            for sender in ("s1", "s2")
        ]
        assert keys == [f"channel:team:conversation:c1:sender:{sender}" for sender in ("s1", "s2")]


async def test_words_while_a_run_is_active_steer_it_or_queue_by_setting(tmp_path: Path) -> None:
    for name, busy, count in (("steer", ChannelBusy.STEER, 1), ("queue", ChannelBusy.QUEUE, 2)):
        async with channel_scene(tmp_path / name, SLOW, rules(when_busy=busy)) as scene:
            first = await scene.say("one")
            second = await scene.say("two")
            assert isinstance(first, Receipt)
            assert isinstance(second, Receipt)
            assert len({first.run_id, second.run_id}) == count


@dataclass
class ReadsThatEndBackwards:
    """Answers as the journal does, each later read a little sooner."""

    views: ChannelViews
    delay_s: float = 0.05

    async def is_paused(self, channel: str) -> bool:
        await self._wait()
        return await self.views.is_paused(channel)

    async def envelope(self, channel: str, envelope_id: str) -> TakenEnvelope | None:
        await self._wait()
        return await self.views.envelope(channel, envelope_id)

    async def _wait(self) -> None:
        delay_s, self.delay_s = self.delay_s, max(0.0, self.delay_s - 0.01)
        await asyncio.sleep(delay_s)


async def test_quick_words_are_one_run_in_the_order_they_came(tmp_path: Path) -> None:
    async with channel_scene(tmp_path, (), rules(coalesce_ms=200)) as scene:
        intake = scene.engine.channels.intake
        intake.views = ReadsThatEndBackwards(intake.views)
        words = [f"word {number}" for number in range(5)]
        receipts = await asyncio.gather(*(scene.say(word) for word in words))
        assert len({receipt.run_id for receipt in receipts if isinstance(receipt, Receipt)}) == 1
        await scene.heard(1)
        events = await tape(scene, STRANGER)
        said = [event.data.text for event in events if isinstance(event.data, MessageUser)]
        assert said == ["\n".join(words)]


async def test_a_paused_channel_takes_nothing(tmp_path: Path) -> None:
    async with channel_scene(tmp_path) as scene:
        await scene.engine.channels.pause(Principal("user:owner"), "team")
        with pytest.raises(Unavailable, match="channel_paused"):
            await scene.say()
        await scene.engine.channels.resume(Principal("user:owner"), "team")
        await scene.say()
        assert await scene.heard(1) == ["Hi there."]


async def test_the_concurrency_of_a_channel_holds_other_conversations_back(tmp_path: Path) -> None:
    from palyra.engine.setup import EngineSettings
    from tests.support.channels import channel_workshop

    workshop = channel_workshop(tmp_path, SLOW, rules())
    workshop.settings = EngineSettings(origins_max={"discord:team": 1})
    async with workshop.open() as engine:
        for number in (1, 2):
            said = message("go", conversation_id=f"c{number}", sender_id=f"s{number}")
            await engine.channels.intake.receive(said)
        runs = [await engine.runs.list(Principal(f"channel:discord:s{number}"), RunsQuery()) for number in (1, 2)]
        assert [found[0].state for found in runs] == ["in_progress", "accepted"]
        await engine.runs.cancel(Principal("channel:discord:s1"), runs[0][0].id)
        await first(await engine.runs.follow(Principal("channel:discord:s2"), runs[1][0].id, None), "model.delta")


async def test_commands_answer_and_change_only_what_the_speaker_may(tmp_path: Path) -> None:
    async with channel_scene(tmp_path, SEND_THEN_ANSWER, rules(allow_from=("*",))) as scene:
        await scene.link("s9", "user:carol", "operator")
        await scene.say("go", is_direct=False, mentions=(SELF,))
        await scene.heard(2)
        assert "May I use mark.send?" in scene.platform.texts[1]
        assert '{"text":"mail"}' in scene.platform.texts[1]
        assert [button.label for button in scene.platform.sent[1].buttons] == ["Allow once", "Deny"]
        for text, expected in (
            ("/whoami", "You are channel:discord:s1. Your account is not linked"),
            ("/status", "working, 1 question waits"),
            ("/approve", "You may not do that here"),
            ("/new", "You may not do that here"),
            ("/usage", "1 run, "),
            ("/help", "/compact"),
        ):
            before = len(scene.platform.sent)
            await scene.say(text, is_direct=False, mentions=(SELF,))
            assert expected in (await scene.heard(before + 1))[-1]
        assert scene.workshop.executed() == []


async def test_a_question_is_answered_by_button_by_who_may(tmp_path: Path) -> None:
    async with channel_scene(tmp_path, SEND_THEN_ANSWER, rules(allow_from=("*",))) as scene:
        await scene.link("s9", "user:carol", "operator")
        await scene.say("go", is_direct=False, mentions=(SELF,))
        await scene.heard(2)
        pressed = scene.platform.sent[1].buttons[0].value
        await scene.say("", is_direct=False, sender_id="s9", pressed=pressed)
        texts = await scene.heard(4)
        assert set(texts[2:]) == {"Allowed.", "Sent."}
        assert len(scene.workshop.executed()) == 1
        await scene.say("", is_direct=False, sender_id="s9", pressed=pressed)
        assert (await scene.heard(5))[-1] == "Nothing waits for an answer here."


async def test_a_yes_in_a_shared_conversation_names_its_question(tmp_path: Path) -> None:
    """Somebody else may have answered the question that was meant, and the next one was not read yet (L7)."""
    async with channel_scene(tmp_path, SEND_THEN_ANSWER, rules(allow_from=("*",))) as scene:
        await scene.link("s9", "user:carol", "operator")
        await scene.say("go", is_direct=False, mentions=(SELF,))
        await scene.heard(2)
        card = scene.platform.sent[1].buttons[0].value.partition(" ")[2]
        for text in ("/approve", f"/approve {card[:6]}"):
            before = len(scene.platform.sent)
            await scene.say(text, is_direct=False, sender_id="s9", mentions=(SELF,))
            assert "Name the question" in (await scene.heard(before + 1))[-1]
        assert scene.workshop.executed() == []
        await scene.say(f"/approve {card.lower()}", is_direct=False, sender_id="s9", mentions=(SELF,))
        await scene.heard(6)
        assert len(scene.workshop.executed()) == 1


async def test_a_yes_that_was_written_before_the_question_names_it(tmp_path: Path) -> None:
    """It was meant for an earlier question, and came late: the daemon was down meanwhile (L7)."""
    async with channel_scene(tmp_path, SEND_THEN_ANSWER, rules()) as scene:
        await scene.link("s1", "user:carol", "operator")
        await scene.say("go")
        await scene.heard(2)
        (question,) = await scene.questions()
        asked_at_ms = question.created_at_ms
        for text in ("/approve", f"/approve {question.id[:6]}"):
            before = len(scene.platform.sent)
            await scene.say(text, written_at_ms=asked_at_ms - 1)
            assert "Name the question" in (await scene.heard(before + 1))[-1]
        assert scene.workshop.executed() == []
        await scene.say("/approve", written_at_ms=asked_at_ms)
        await until(lambda: len(scene.workshop.executed()) == 1)


async def test_a_no_for_the_session_is_given_by_command_and_lasts(tmp_path: Path) -> None:
    async with channel_scene(tmp_path, SEND_THEN_ANSWER, rules(allow_from=("*",))) as scene:
        await scene.link("s9", "user:carol", "operator")
        await scene.say("go", is_direct=False, mentions=(SELF,))
        await scene.heard(2)
        await scene.say("/deny session", is_direct=False, sender_id="s9", mentions=(SELF,))
        assert "Denied; equal calls are refused without a question now." in (await scene.heard(4))[2:]
        await scene.say("go on", is_direct=False, mentions=(SELF,))
        assert not any("May I use" in text for text in (await scene.heard(5))[2:])
        assert scene.workshop.executed() == []


async def test_without_an_approver_nobody_is_asked(tmp_path: Path) -> None:
    async with channel_scene(tmp_path, SEND_THEN_ANSWER) as scene:
        await scene.say("go")
        await scene.heard(1)
        events = await tape(scene, STRANGER)
        assert [event.data.rule for event in events if event.type == "tool.judged"] == ["nobody_to_ask"]
        assert scene.workshop.executed() == []


async def test_a_message_that_meets_a_bug_is_refused_and_the_next_one_is_taken(tmp_path: Path) -> None:
    async with channel_scene(tmp_path) as scene:
        views = scene.engine.channels.intake.views

        class Broken:
            async def is_paused(self, channel: str) -> bool:
                return False

            async def envelope(self, channel: str, envelope_id: str) -> None:
                raise RuntimeError("a bug")

        scene.engine.channels.intake.views = Broken()
        with pytest.raises(Conflict, match="message_failed"):
            await scene.say()
        scene.engine.channels.intake.views = views
        await scene.say()
        assert await scene.heard(1) == ["Hi there."]


async def test_cancel_cancels_ones_own_run(tmp_path: Path) -> None:
    async with channel_scene(tmp_path, SLOW) as scene:
        await scene.say("go")
        await scene.say("/stop")
        assert await scene.heard(1) == ["Cancelled."]


async def test_a_stranger_is_told_once_how_to_pair(tmp_path: Path) -> None:
    from palyra.core.channels.model import DirectMessages

    async with channel_scene(tmp_path, (), rules(dm_policy=DirectMessages.PAIRING)) as scene:
        for _ in range(5):
            await scene.say("hello?")
        await scene.heard(1)
        assert scene.platform.texts == [PAIRING_HINT]
        assert await scene.engine.runs.list(None, RunsQuery()) == ()


async def test_a_command_that_does_not_exist_is_answered_without_a_run(tmp_path: Path) -> None:
    async with channel_scene(tmp_path) as scene:
        await scene.say("/foo bar")
        (text,) = await scene.heard(1)
        assert "/foo" in text
        assert "/help" in text
        assert await scene.engine.runs.list(None, RunsQuery()) == ()


async def test_who_was_linked_is_told_again_how_to_pair(tmp_path: Path) -> None:
    from palyra.core.channels.model import DirectMessages

    async with channel_scene(tmp_path, (), rules(dm_policy=DirectMessages.PAIRING)) as scene:
        await scene.say("hello?")
        await scene.heard(1)
        await scene.link("s1", "user:alice")
        await scene.say("/whoami")
        (link,) = await scene.engine.pairing.views.links(None, "", 10)
        await scene.engine.pairing.revoke(link.id, OWNER)
        await scene.say("hello?")
        await scene.say("hello?")
        await until(lambda: scene.platform.texts.count(PAIRING_HINT) == 2)


async def test_a_delivery_to_two_conversations_at_once_starts_one_run(tmp_path: Path) -> None:
    async with channel_scene(tmp_path) as scene:
        for number in range(20):
            said = message("go", envelope_id=f"same{number}", conversation_id="c1")
            receipts = await asyncio.gather(
                *(scene.engine.channels.intake.receive(replace(said, conversation_id=name)) for name in ("c1", "c2"))
            )
            assert sorted(receipt.is_duplicate for receipt in receipts) == [False, True]
            assert [bool(receipt.run_id) for receipt in receipts].count(True) == 1


async def test_files_are_read_only_of_messages_that_are_wanted(tmp_path: Path) -> None:
    read = []

    async def complete() -> InboundMessage:
        read.append(1)
        return message("never")

    async with channel_scene(tmp_path, channel_rules=rules(dm_policy=DirectMessages.DENY)) as scene:
        await scene.engine.channels.intake.receive(message("", has_files=True), complete)
        assert read == []
