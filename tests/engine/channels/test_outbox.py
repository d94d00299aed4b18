"""The outbox on a real journal and queue: in order, retried, and never twice in silence."""

import asyncio
from pathlib import Path

import pytest

from palyra.adapters.providers.scripted import Script
from palyra.core.channels.outbox import OUTBOX_KIND, OutboxState
from palyra.core.errors import Conflict
from palyra.core.ids import Principal
from palyra.engine.channels.sender import SEND_TIMEOUT_S
from palyra.ports.channels import Redelivery, SendFailed
from tests.support.asking import says
from tests.support.channels import ChannelScene, channel_scene, report, rules
from tests.support.engines import OWNER
from tests.support.waiting import until

ECHO = [Script(when=f"number {number}$", turns=(says(f"answer {number}"),)) for number in range(20)]


async def stuck(scene: ChannelScene, state: OutboxState) -> str:
    """Waits for one stuck message and returns its id."""
    await until(lambda: _has(scene, state))
    (item,) = await scene.engine.outbox.list(None, (state,), 0, 10)
    return item.id


async def _has(scene: ChannelScene, state: OutboxState) -> bool:
    return state in await scene.states()


async def test_answers_leave_in_the_order_in_which_they_were_given(tmp_path: Path) -> None:
    async with channel_scene(tmp_path, ECHO) as scene:
        scene.platform.failures = [SendFailed("busy", retry_after_s=0.0) for _ in range(2)]
        for number in range(10):
            receipt = await scene.say(f"number {number}")
            frames = await scene.engine.runs.follow(Principal("channel:discord:s1"), receipt.run_id, None)  # type: ignore[attr-defined]
            async for _ in frames:
                pass
        assert await scene.heard(10) == [f"answer {number}" for number in range(10)]


async def test_a_refusal_for_good_is_a_dead_letter_that_can_be_sent_again(tmp_path: Path) -> None:
    async with channel_scene(tmp_path) as scene:
        scene.platform.failures = [SendFailed("no such conversation", is_final=True)]
        await scene.say()
        item_id = await stuck(scene, OutboxState.DEAD)
        (item,) = await scene.engine.outbox.list("team", (OutboxState.DEAD,), 0, 10)
        assert (item.error, item.text) == ("no such conversation", "Hi there.")
        await scene.engine.outbox.replay(OWNER, item_id)
        assert await scene.heard(1) == ["Hi there."]
        await until(lambda: _has(scene, OutboxState.SENT))
        with pytest.raises(Conflict, match="outbox_not_stuck"):
            await scene.engine.outbox.replay(OWNER, item_id)


async def test_a_dead_letter_holds_nothing_up(tmp_path: Path) -> None:
    async with channel_scene(tmp_path, ECHO) as scene:
        scene.platform.failures = [SendFailed("gone", is_final=True)]
        await scene.say("number 1")
        item_id = await stuck(scene, OutboxState.DEAD)
        await scene.say("number 2")
        assert await scene.heard(1) == ["answer 2"]
        await scene.engine.outbox.discard(OWNER, item_id)
        assert sorted(state.value for state in await scene.states()) == ["discarded", "sent"]


@pytest.mark.parametrize(
    ("redelivery", "expected"),
    [(Redelivery.UNKNOWN, 1), (Redelivery.FINDABLE, 1), (Redelivery.IDEMPOTENT, 1)],
)
async def test_what_a_crash_left_unrecorded_is_settled_or_shown_as_uncertain(
    tmp_path: Path, redelivery: Redelivery, expected: int
) -> None:
    """The engine is closed after the platform took the message, and before that is recorded."""
    async with channel_scene(tmp_path) as scene:
        scene.platform.redelivery = redelivery

        def crash() -> None:
            raise RuntimeError("the daemon dies here")

        scene.platform.after_send = crash
        scene.engine._setup.journal.commit = _failing(scene, scene.engine._setup.journal.commit)  # type: ignore[method-assign]
        await scene.say()
        await scene.heard(1)
    scene.platform.after_send = lambda: None
    async with channel_scene(tmp_path, platform=scene.platform) as scene:
        if redelivery is Redelivery.UNKNOWN:
            await stuck(scene, OutboxState.UNCERTAIN)
        else:
            await until(lambda: _has(scene, OutboxState.SENT))
        assert len(scene.platform.sent) == expected


def _failing(scene: ChannelScene, commit):  # type: ignore[no-untyped-def]
    """Loses every commit once the platform has the message, as a killed process would."""
    from palyra.core.errors import Unavailable

    async def failing(*arguments, **named):  # type: ignore[no-untyped-def]
        if scene.platform.sent:
            raise Unavailable("journal_closed", "it is gone")
        return await commit(*arguments, **named)

    return failing


async def test_an_answer_nobody_knows_about_is_uncertain_only_where_nobody_can_tell(tmp_path: Path) -> None:
    for redelivery, state in ((Redelivery.UNKNOWN, OutboxState.UNCERTAIN), (Redelivery.FINDABLE, OutboxState.SENT)):
        async with channel_scene(tmp_path / redelivery.value) as scene:
            scene.platform.redelivery = redelivery
            scene.platform.failures = [SendFailed("timed out", is_unknown=True, retry_after_s=0.0)]
            await scene.say()
            await until(lambda: _has(scene, state))  # noqa: B023 - awaited within the round
            assert len(scene.platform.sent) == (0 if state is OutboxState.UNCERTAIN else 1)


async def test_a_long_answer_leaves_in_parts_with_the_prefix_and_calls_nobody(tmp_path: Path) -> None:
    long = [Script(turns=(says("@everyone " + "word " * 100),))]
    async with channel_scene(tmp_path, long, rules(response_prefix="[bot] ")) as scene:
        scene.platform.length_max = 200
        await scene.say()
        texts = await scene.heard(3)
        assert texts[0].startswith("[bot] @\u200beveryone")
        assert len({part.key for part in scene.platform.sent}) == len(texts)
        await until(lambda: _has(scene, OutboxState.SENT))


async def test_erasing_a_session_drops_what_waits_of_it(tmp_path: Path) -> None:
    async with channel_scene(tmp_path) as scene:
        scene.platform.failures = [SendFailed("gone", is_final=True)]
        await scene.say()
        await stuck(scene, OutboxState.DEAD)
        owner = Principal("channel:discord:s1")
        (session,) = await scene.engine.sessions.list(owner, "", 10)
        await scene.engine.sessions.delete(owner, session.id)
        assert await scene.states() == []


async def test_a_conversation_that_hangs_holds_no_other_up(tmp_path: Path) -> None:
    async with channel_scene(tmp_path) as scene:
        scene.platform.hold = asyncio.Event()
        for _ in range(OUTBOX_KIND.at_once_max + 4):
            await scene.engine.outbox.send(report("team", "stuck"))
        await until(lambda: scene.platform.begun == ["stuck"])
        await scene.engine.outbox.send(report("team", "free"))
        await until(lambda: scene.platform.begun == ["stuck", "free"], timeout_s=SEND_TIMEOUT_S / 2)
        scene.platform.hold.set()
        await scene.heard(2 * (OUTBOX_KIND.at_once_max + 5))


async def test_while_a_platform_is_silent_nothing_more_is_risked_and_its_health_says_so(tmp_path: Path) -> None:
    async with channel_scene(tmp_path) as scene:
        await until(lambda: _is_ok(scene))
        scene.platform.redelivery, scene.platform.is_silent = Redelivery.UNKNOWN, True
        scene.platform.failures = [SendFailed("no answer came", is_unknown=True)]
        for _ in range(2):
            await scene.engine.outbox.send(report("team", "c1"))
        await until(lambda: scene.platform.checks_count == 1)
        assert await scene.states() == [OutboxState.UNCERTAIN, OutboxState.QUEUED]
        assert scene.platform.sent == []
        channel = await scene.engine.channels.get("team")
        assert (channel.state, channel.error[:14]) == ("failed", "messages wait:")
        scene.platform.is_silent = False
        await scene.heard(2)
        await until(lambda: _is_ok(scene))


async def _is_ok(scene: ChannelScene) -> bool:
    return (await scene.engine.channels.get("team")).state == "ok"
