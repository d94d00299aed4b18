"""Who may not answer a question ends none by writing: it waits, whatever a stranger of the group says."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from palyra.core.channels.model import SELF
from palyra.core.events.run import MessageUser
from palyra.core.ids import Principal
from palyra.engine.api.requests import RunsQuery
from tests.support.asking import SEND_THEN_ANSWER
from tests.support.channels import ChannelScene, channel_scene, rules
from tests.support.waiting import until

IN_GROUP: dict[str, Any] = {"is_direct": False, "mentions": (SELF,)}
GROUP = rules(allow_from=("*",))


@asynccontextmanager
async def asked(root: Path, **place: Any) -> AsyncIterator[ChannelScene]:
    """A group where a run of `s1` waits for an operator."""
    async with channel_scene(root, SEND_THEN_ANSWER, GROUP) as scene:
        await scene.link("s9", "user:carol", "operator")
        await scene.say("go", **{**IN_GROUP, **place})
        await until(lambda: _waits(scene))
        yield scene


async def _waits(scene: ChannelScene) -> bool:
    return len(await scene.questions()) == 1


async def _heard(scene: ChannelScene, text: str) -> bool:
    for session in await scene.engine.sessions.list(None, "", 10):
        events = await scene.engine.sessions.tape(Principal(session.owner), session.id, 0, 200)
        if any(isinstance(event.data, MessageUser) and text in event.data.text for event in events):
            return True
    return False


async def allow(scene: ChannelScene, **place: Any) -> None:
    (question,) = await scene.questions()
    await scene.say(f"/approve {question.id}", sender_id="s9", **{**IN_GROUP, **place})
    await until(lambda: len(scene.workshop.executed()) == 1)


@pytest.mark.parametrize("sender", ["s1", "s2", "viewer", "user"])
async def test_words_of_who_may_not_answer_leave_the_question(sender: str, tmp_path: Path) -> None:
    async with asked(tmp_path) as scene:
        if sender in ("viewer", "user"):
            await scene.link(sender, f"user:{sender}", sender)
        await scene.say("never mind all that", sender_id=sender, **IN_GROUP)
        await until(lambda: _heard(scene, "never mind"))
        assert await _waits(scene)
        await allow(scene)


async def test_words_of_who_may_answer_still_end_it(tmp_path: Path) -> None:
    """The model may ask again at once, so it is this very question that has to be over."""
    async with asked(tmp_path) as scene:
        (question,) = await scene.questions()
        await scene.say("do something else", sender_id="s9", **IN_GROUP)
        await until(lambda: _is_over(scene, question.id))
        assert scene.workshop.executed() == []


async def _is_over(scene: ChannelScene, approval_id: str) -> bool:
    return approval_id not in [each.id for each in await scene.questions()]


async def test_an_unlinked_sender_leaves_the_question_of_a_direct_conversation(tmp_path: Path) -> None:
    async with asked(tmp_path, is_direct=True) as scene:
        await scene.say("and another thing")
        await until(lambda: _heard(scene, "another thing"))
        assert await _waits(scene)


@pytest.mark.parametrize("command", ["/new", "/cancel", "/stop", "/deny", "/approve"])
@pytest.mark.parametrize("sender", ["s2", "viewer", "user"])
async def test_no_command_of_who_may_not_answer_ends_it(command: str, sender: str, tmp_path: Path) -> None:
    async with asked(tmp_path) as scene:
        if sender != "s2":
            await scene.link(sender, f"user:{sender}", sender)
        before = len(scene.platform.sent)
        await scene.say(command, sender_id=sender, **IN_GROUP)
        await scene.heard(before + 1)
        assert await _waits(scene)
        assert [run.state for run in await scene.engine.runs.list(None, RunsQuery())] == ["waiting"]


async def test_what_a_stranger_said_before_the_question_does_not_end_it(tmp_path: Path) -> None:
    """The words came while the model was called; the question came after them."""
    async with channel_scene(tmp_path, SEND_THEN_ANSWER, GROUP) as scene:
        await scene.link("s9", "user:carol", "operator")
        for text in ("go", "quick, something else"):
            await scene.say(text, sender_id="s1" if text == "go" else "s2", **IN_GROUP)
        await until(lambda: _waits(scene))
        await allow(scene)
