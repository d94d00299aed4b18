"""Files that go out: those that channel.send names, those that a run made for people, and what stops them."""

from collections.abc import Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from palyra.adapters.providers.scripted import Script
from palyra.adapters.tools.channel_send import ChannelSend
from palyra.app.tools import LateMessages
from palyra.core.channels.outbox import OutboxState
from palyra.core.errors import Unavailable
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import ApprovalStatus, Decision, EffectClass, Outcome, ParallelClass
from palyra.core.ids import Principal
from palyra.core.tools import CallNature, Made, ToolResult, ToolSpec
from palyra.core.trust import Trust
from palyra.engine.api.requests import ApprovalAnswer, ApprovalsQuery
from palyra.ports.channels import Redelivery
from palyra.ports.tools import ToolCallContext
from tests.support.asking import ask, calls, finished, says, wait_for
from tests.support.channels import PDF, ChannelScene, MemoryPlatform, channel_scene, channel_workshop, report
from tests.support.engines import OWNER
from tests.support.waiting import until

TO = {"channel": "team", "conversation_id": "c9", "text": "See."}


class Camera:
    """Makes a picture for people, and a file that is not for them."""

    spec = ToolSpec(
        name="camera",
        description="takes a picture",
        input_schema={"type": "object"},
        effect_class=EffectClass.READ_ONLY,
        parallel_class=ParallelClass.READ_ONLY_SAFE,
        output_trust=Trust.LOCAL,
    )

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        return CallNature(effect_class=EffectClass.READ_ONLY, parallel_class=ParallelClass.READ_ONLY_SAFE)

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        picture = Made(name="page.png", media_type="image/png", body=b"\x89PNG a page", is_shown=True)
        download = Made(name="body.bin", media_type="application/octet-stream", body=b"\x00\x01")
        return ToolResult(outcome=Outcome.OK, output="Taken.", made=(picture, download))


def files_of(platform: MemoryPlatform) -> list[tuple[str, str, bytes]]:
    return [(file.name, file.media_type, file.body) for part in platform.sent for file in part.files]


@asynccontextmanager
async def sending(root: Path, attachments: Sequence[str]):  # type: ignore[no-untyped-def]
    scripts = [Script(turns=(calls("channel.send", **TO, attachments=list(attachments)), says("Told.")))]
    workshop, messages = channel_workshop(root, scripts), LateMessages()
    workshop.journal_tools = lambda journal, artifacts: (ChannelSend(messages, artifacts, journal.state),)
    platform: Any = workshop.channels[0].adapter
    async with workshop.open() as engine:
        messages.bind(engine.outbox)
        yield ChannelScene(engine, platform, workshop)


async def outcome(scene: ChannelScene) -> Any:
    """Runs the call, allows it if it asks, and returns its outcome."""
    run = await scene.engine.runs.start(OWNER, ask())
    async for frame in await scene.engine.runs.follow(OWNER, run.id, None):
        if frame.type in ("approval.requested", "tool.finished"):
            break
    for card in await scene.engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING)):
        await scene.engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW))
    events = await finished(scene.engine, run)
    return next(event.data for event in events if event.type == "tool.finished")


async def test_a_file_of_the_workspace_is_named_to_the_person_and_follows_the_text(tmp_path: Path) -> None:
    async with sending(tmp_path, ["out/report.pdf"]) as scene:
        (scene.workshop.workspace / "out").mkdir()
        (scene.workshop.workspace / "out/report.pdf").write_bytes(PDF)
        run = await scene.engine.runs.start(OWNER, ask())
        await wait_for(scene.engine, run.id, "approval.requested")
        (card,) = await scene.engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
        assert card.preview == "to c9 of channel team:\nSee.\n[with out/report.pdf]"
        await scene.engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW))
        await until(lambda: len(scene.platform.sent) == 2)
        assert scene.platform.texts == ["See.", ""]
        assert files_of(scene.platform) == [("report.pdf", "application/pdf", PDF)]


async def test_an_artifact_leaves_only_if_the_principal_may_read_it(tmp_path: Path) -> None:
    async with sending(tmp_path / "setup", []) as scene:
        stranger = await scene.engine.artifacts.put(Principal("user:bob"), PDF, "application/pdf")
    async with sending(tmp_path / "other", [stranger.id]) as scene:
        await scene.engine.artifacts.put(Principal("user:bob"), PDF, "application/pdf")
        assert (await outcome(scene)).error.code == "artifact_unknown"
        assert scene.platform.sent == []
    async with sending(tmp_path / "own", [stranger.id]) as scene:
        await scene.engine.artifacts.put(OWNER, PDF, "application/pdf")
        assert (await outcome(scene)).outcome is Outcome.OK
        await until(lambda: len(scene.platform.sent) == 2)
        assert files_of(scene.platform) == [(f"{stranger.id[:12]}.pdf", "application/pdf", PDF)]


@pytest.mark.parametrize("path", ["../outside.txt", "/etc/passwd"])
async def test_a_path_outside_the_workspace_never_leaves(tmp_path: Path, path: str) -> None:
    async with sending(tmp_path, [path]) as scene:
        assert (await outcome(scene)).outcome is Outcome.DENIED
        assert scene.platform.sent == []


async def test_a_file_with_a_secret_never_leaves(tmp_path: Path) -> None:
    async with sending(tmp_path, [".env"]) as scene:
        token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
        (scene.workshop.workspace / ".env").write_text(f"GITHUB_TOKEN={token}\n")
        ended = await outcome(scene)
        assert ended.error.code == "file_holds_secret"
        assert token not in ended.error.message
        assert scene.platform.sent == []


async def test_an_answer_brings_the_newest_pictures_of_its_run_and_nothing_else(tmp_path: Path) -> None:
    turns = (*(calls("camera") for _ in range(2)), says("Here is the page."))
    workshop = channel_workshop(tmp_path, [Script(turns=turns)])
    workshop.tools = [*workshop.tools, Camera()]
    platform: Any = workshop.channels[0].adapter
    async with workshop.open() as engine:
        scene = ChannelScene(engine, platform, workshop)
        await scene.say("show me")
        await until(lambda: len(platform.sent) == 3)
        assert platform.texts == ["Here is the page.", "", ""]
        assert files_of(platform) == [("page.png", "image/png", b"\x89PNG a page")] * 2


async def test_a_file_that_is_too_large_is_named_instead(tmp_path: Path) -> None:
    async with channel_scene(tmp_path) as scene:
        scene.platform.file_bytes_max = 10
        await scene.engine.outbox.send(report("team", "c1"))
        (text,) = await scene.heard(1)
        assert text.startswith("Here it is.\n\n(report.pdf is not attached: it has 0.0 MB")
        await until(lambda: _are(scene, [OutboxState.SENT]))
        assert len(scene.platform.sent) == 1


async def test_files_that_go_with_the_text_share_one_limit(tmp_path: Path) -> None:
    async with channel_scene(tmp_path) as scene:
        scene.platform.joins_files, scene.platform.file_bytes_max = True, len(PDF)
        await scene.engine.outbox.send(report("team", "c1"))
        await scene.heard(1)
        assert [(part.text, len(part.files)) for part in scene.platform.sent] == [("Here it is.", 1)]


async def test_a_file_whose_session_was_erased_is_said_to_be_gone(tmp_path: Path) -> None:
    async with channel_scene(tmp_path) as scene:
        for file in await _stored_after(scene):
            file.unlink()
        await scene.engine.channels.resume(OWNER, "team")
        assert (await scene.heard(2))[1] == "(report.pdf is not attached: it is not stored any more.)"


async def _stored_after(scene: ChannelScene) -> list[Path]:
    await scene.engine.channels.pause(OWNER, "team")
    await scene.engine.outbox.send(report("team", "c1"))
    return [path for path in (scene.workshop.root / "artifacts").rglob("*") if path.is_file()]


@pytest.mark.parametrize("redelivery", list(Redelivery))
async def test_killed_after_the_platform_took_the_file_it_is_sent_once_or_uncertain(
    tmp_path: Path, redelivery: Redelivery
) -> None:
    """Every commit is lost once the platform has the file, as if the process were killed there."""
    async with channel_scene(tmp_path) as scene:
        scene.platform.redelivery = redelivery
        journal: Any = scene.engine._setup.journal
        commit = journal.commit

        async def failing(*arguments: Any, **named: Any) -> Any:
            if len(scene.platform.sent) == 2:
                raise Unavailable("journal_closed", "it is gone")
            return await commit(*arguments, **named)

        journal.commit = failing
        await scene.engine.outbox.send(report("team", "c1"))
        await scene.heard(2)
    async with channel_scene(tmp_path, platform=scene.platform) as scene:
        is_settled = redelivery is not Redelivery.UNKNOWN
        await until(lambda: _are(scene, [OutboxState.SENT if is_settled else OutboxState.UNCERTAIN]))
        assert scene.platform.texts == ["Here it is.", ""]


async def _are(scene: ChannelScene, states: list[OutboxState]) -> bool:
    return await scene.states() == states


LONG = Script(turns=(calls("mark.send", text="word " * 900 + "the end"), says("Sent.")))


async def test_a_question_that_is_too_long_brings_the_whole_call_as_a_file(tmp_path: Path) -> None:
    async with channel_scene(tmp_path, [LONG]) as scene:
        scene.platform.file_bytes_max = 100_000
        await scene.link("s1", "user:carol", "operator")
        await scene.say("go")
        await until(lambda: files_of(scene.platform))
        ((name, media_type, body),) = files_of(scene.platform)
        assert (name, media_type) == ("call.txt", "text/plain")
        assert body.decode().endswith("the end")

        async def is_allowed() -> bool:
            await scene.say("/approve")  # Until the sending is recorded, nobody knows that it was shown.
            return len(scene.workshop.executed()) == 1

        await until(is_allowed)


async def test_where_no_file_can_go_along_a_long_question_is_read_elsewhere_first(tmp_path: Path) -> None:
    async with channel_scene(tmp_path, [LONG]) as scene:
        scene.platform.file_bytes_max = 0
        await scene.link("s1", "user:carol", "operator")
        await scene.say("go")
        await until(scene.questions)
        (card,) = await scene.questions()
        await scene.say("/approve")
        await until(lambda: any(text.startswith("Not answered: ") for text in scene.platform.texts))
        assert scene.workshop.executed() == []
        carol = Principal("user:carol")
        await scene.engine.approvals.full(carol, card.id, 0, by=carol)
        await scene.say("/approve")
        await until(lambda: len(scene.workshop.executed()) == 1)
