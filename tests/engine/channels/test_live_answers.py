"""Answers that are shown while they are written: one message, edited, which the answer replaces also after a crash."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from palyra.adapters.providers.prepared_turns import Chunk, Turn
from palyra.adapters.providers.scripted import Script
from palyra.core.channels.outbox import OutboxKind, OutboxState
from palyra.engine.channels.directory import ConfiguredChannel
from palyra.ports.channels import Redelivery, SendFailed
from tests.support.asking import says
from tests.support.channels import ChannelScene, MemoryPlatform, channel_workshop, rules
from tests.support.waiting import until

STORY = [Script(turns=(Turn(chunks=tuple(Chunk(f" word{number}", 20 if number else 300) for number in range(40))),))]
ENDLESS = [Script(turns=(Turn(chunks=tuple(Chunk(f" word{number}", 20) for number in range(5_000))),))]


@asynccontextmanager
async def live_scene(root: Path, platform: MemoryPlatform, scripts: list[Script]) -> AsyncIterator[ChannelScene]:
    workshop = channel_workshop(root, scripts)
    workshop.channels = (ConfiguredChannel(rules(), platform),)
    async with workshop.open() as engine:
        yield ChannelScene(engine, platform, workshop)


def platform(**fields: object) -> MemoryPlatform:
    return MemoryPlatform(edit_every_s=0.05, **fields)  # type: ignore[arg-type]


async def test_the_answer_replaces_what_was_shown(tmp_path: Path) -> None:
    async with live_scene(tmp_path, platform(), STORY) as scene:
        await scene.say("go")
        await until(lambda: scene.platform.edits and scene.platform.edits[-1][1].endswith("word39"))
        assert scene.platform.typed
        assert len(scene.platform.sent) == 1
        assert {message_id for message_id, _ in scene.platform.edits} == {"m1"}
        await until(lambda: _all_sent(scene))


async def _all_sent(scene: ChannelScene) -> bool:
    return set(await scene.states()) == {OutboxState.SENT}


async def test_a_quick_answer_is_sent_as_it_is(tmp_path: Path) -> None:
    slow = MemoryPlatform(edit_every_s=5.0)
    async with live_scene(tmp_path, slow, [Script(turns=(says("Hi."),))]) as scene:
        await scene.say("go")
        assert await scene.heard(1) == ["Hi."]
        assert scene.platform.edits == []


async def test_a_message_that_a_person_deleted_is_sent_anew(tmp_path: Path) -> None:
    async with live_scene(tmp_path, platform(), STORY) as scene:
        await scene.say("go")
        await until(lambda: scene.platform.edits)
        scene.platform.failures = [SendFailed("gone", is_final=True), SendFailed("gone", is_final=True)]
        await scene.heard(2)
        assert scene.platform.texts[-1].endswith("word39")


async def test_a_show_that_fails_costs_nothing_but_the_show(tmp_path: Path) -> None:
    unsure = platform(redelivery=Redelivery.UNKNOWN, failures=[SendFailed("lost", is_unknown=True)])
    async with live_scene(tmp_path, unsure, STORY) as scene:
        await scene.say("go")
        assert [text.endswith("word39") for text in await scene.heard(1)] == [True]
        await until(lambda: _is_settled(scene))


async def _is_settled(scene: ChannelScene) -> bool:
    return await scene.states() == [OutboxState.DISCARDED, OutboxState.SENT]


async def test_what_was_shown_of_a_cancelled_run_does_not_look_unfinished(tmp_path: Path) -> None:
    async with live_scene(tmp_path, platform(), ENDLESS) as scene:
        await scene.say("go")
        await until(lambda: scene.platform.edits)
        await scene.say("/cancel")
        await until(lambda: "Cancelled." in scene.platform.texts)
        await until(lambda: not scene.platform.edits[-1][1].endswith("…"))


async def test_what_was_shown_before_a_crash_does_not_look_unfinished_once_the_run_is_cancelled(tmp_path: Path) -> None:
    shown = platform()
    async with live_scene(tmp_path, shown, ENDLESS) as scene:
        await scene.say("go")
        await until(lambda: shown.edits)
    assert shown.edits[-1][1].endswith("…")
    async with live_scene(tmp_path, shown, ENDLESS) as scene:
        await scene.say("/cancel")
        await until(lambda: "Cancelled." in shown.texts)
        await until(lambda: shown.edits[-1] == ("m1", "(The answer was cut off.)"))


async def test_a_preview_whose_commit_comes_after_the_answers_is_not_sent(tmp_path: Path) -> None:
    async with live_scene(tmp_path, platform(), STORY) as scene:
        journal: Any = scene.engine._setup.journal
        commit, began, answered = journal.commit, asyncio.Event(), asyncio.Event()

        async def late(appends: Any, writes: Any = (), *more: Any) -> Any:
            if any(getattr(getattr(write, "item", None), "kind", None) is OutboxKind.PREVIEW for write in writes):
                began.set()
                await asyncio.shield(asyncio.create_task(_after(answered, commit, appends, writes)))
            return await commit(appends, writes, *more)

        journal.commit = late
        await scene.say("go")
        await began.wait()
        journal.commit = commit
        await scene.heard(1)
        answered.set()
        await until(lambda: _are(scene, {OutboxState.SENT, OutboxState.DISCARDED}))
        assert [text[-6:] for text in scene.platform.texts] == ["word39"]


async def _after(event: asyncio.Event, commit: Any, appends: Any, writes: Any) -> None:
    await event.wait()
    await commit(appends, writes)


async def _are(scene: ChannelScene, states: set[OutboxState]) -> bool:
    return set(await scene.states()) == states


async def test_after_a_crash_the_answer_still_replaces_what_was_shown(tmp_path: Path) -> None:
    shown = platform()
    async with live_scene(tmp_path, shown, STORY) as scene:
        await scene.say("go")
        await until(lambda: shown.edits)
    async with live_scene(tmp_path, shown, STORY):
        await until(lambda: shown.edits[-1][1].endswith("word39"))
        assert len(shown.sent) == 1
