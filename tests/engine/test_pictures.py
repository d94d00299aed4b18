"""Images that people attach reach the model they talk to, whatever happens in between; what cannot be shown is told."""

import asyncio
import base64
import hashlib
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palyra.adapters.providers.demo import BLIND, DemoProvider
from palyra.adapters.providers.prepared_turns import Turn, play
from palyra.core.context.messages import UserMessage
from palyra.core.errors import Conflict, Invalid, NotFound
from palyra.core.events.model import ModelError, RoutePlanned
from palyra.core.events.run import MessageUser
from palyra.core.ids import ArtifactId
from palyra.core.images import IMAGE_BYTES_MAX, IMAGES_BYTES_MAX
from palyra.engine.api.requests import ATTACHMENTS_MAX, GivenAttachment, RunRecord, WhenBusy
from palyra.engine.engine import Engine
from palyra.ports.provider import Delta, Failed, Image, ModelRequest
from palyra.ports.router import ModelCard
from tests.support.asking import ask, finished, says, wait_for
from tests.support.engines import ALICE, OWNER, Workshop
from tests.support.images import gif, jpeg, png, webp

pytestmark = pytest.mark.anyio

CAT = png(2, 3)
DOG = jpeg(4, 5)


class Onlooker:
    """A provider that keeps what it was asked, and answers; `hold` stops it before it does."""

    def __init__(self, turn: Turn | None = None) -> None:
        self.asked: list[ModelRequest] = []
        self.hold: asyncio.Event | None = None
        self._turn = turn or says("I see.")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        self.asked.append(request)
        if self.hold is not None:
            await self.hold.wait()
        async for delta in play(self._turn):
            yield delta

    def seen(self, call: int = -1) -> list[Image]:
        """The images in the order of the messages."""
        request = self.asked[call]
        said = [message for message in request.messages if isinstance(message, UserMessage)]
        return [request.images[each.artifact_id] for message in said for each in message.attachments]

    def read(self, call: int = -1) -> str:
        """Everything people said, as the model is told it."""
        said = [message.text for message in self.asked[call].messages if isinstance(message, UserMessage)]
        return "\n".join(said)


def with_eyes(name: str) -> ModelCard:
    return ModelCard(name=name, provider=name, kind="", id=name, vision=True)


def gallery(root: Path, provider: Onlooker) -> Workshop:
    workshop = Workshop(root, provider)
    workshop.describe = with_eyes
    return workshop


def given_image(body: bytes = CAT, name: str = "cat.png", media_type: str = "image/png") -> GivenAttachment:
    return GivenAttachment(name=name, media_type=media_type, body=body)


def artifact_of(engine_events: list[object]) -> ArtifactId:
    (said,) = [event for event in engine_events if isinstance(event, MessageUser)]
    return ArtifactId(said.attachments[0].artifact_id)


async def look(engine: Engine, *attachments: GivenAttachment, text: str = "Look.", key: str = "s") -> RunRecord:
    record = await engine.runs.start(OWNER, ask(text, session_key=key, attachments=attachments))
    await finished(engine, record)
    return record


async def test_images_reach_the_model_with_exactly_their_bytes(tmp_path: Path) -> None:
    onlooker = Onlooker()
    async with gallery(tmp_path, onlooker).open() as engine:
        upload = await engine.artifacts.put(OWNER, DOG, "application/octet-stream")
        dog = GivenAttachment(name="dog.jpg", media_type="image/jpg", artifact_id=upload.id)
        record = await look(engine, given_image(), dog)
        events = [event.data for event in await finished(engine, record)]
    assert onlooker.seen() == [Image("image/png", CAT), Image("image/jpeg", DOG)]
    assert onlooker.read() == "Look.\n[image cat.png]\n[image dog.jpg]"
    (said,) = [event for event in events if isinstance(event, MessageUser)]
    assert [(each.media_type, each.bytes) for each in said.attachments] == [
        ("image/png", len(CAT)),
        ("image/jpeg", len(DOG)),
    ]


async def test_other_files_are_told_and_not_read(tmp_path: Path) -> None:
    onlooker = Onlooker()
    async with gallery(tmp_path, onlooker).open() as engine:
        file = GivenAttachment(name="plan.zip", media_type="application/zip", body=b"PK\x03\x04....")
        await look(engine, file)
    assert onlooker.seen() == []
    assert "[file plan.zip, application/zip, 8 bytes, artifact " in onlooker.read()


async def test_images_stay_in_the_conversation(tmp_path: Path) -> None:
    onlooker = Onlooker()
    async with gallery(tmp_path, onlooker).open() as engine:
        await look(engine, given_image())
        await look(engine, text="And now?")
    assert onlooker.seen() == [Image("image/png", CAT)]
    assert "And now?" in onlooker.read()


async def test_image_that_steers_a_run_is_seen_in_its_next_turn(tmp_path: Path) -> None:
    onlooker = Onlooker()
    onlooker.hold = asyncio.Event()
    async with gallery(tmp_path, onlooker).open() as engine:
        record = await engine.runs.start(OWNER, ask("Wait.", session_key="s"))
        await wait_for(engine, record.id, "model.requested")
        steering = ask("Look.", session_key="s", attachments=(given_image(),), when_busy=WhenBusy.STEER)
        await engine.runs.start(OWNER, steering)
        onlooker.hold.set()
        await finished(engine, record)
    assert onlooker.seen() == [Image("image/png", CAT)]


async def test_restart_in_the_middle_keeps_images(tmp_path: Path) -> None:
    onlooker = Onlooker()
    onlooker.hold = asyncio.Event()
    workshop = gallery(tmp_path, onlooker)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask("Look.", session_key="s", attachments=(given_image(),)))
        await wait_for(engine, record.id, "model.requested")
    onlooker.hold = None
    async with workshop.open() as engine:
        await finished(engine, record)
    assert onlooker.seen(-1) == [Image("image/png", CAT)]


async def test_queued_run_keeps_its_images_over_a_restart(tmp_path: Path) -> None:
    onlooker = Onlooker()
    onlooker.hold = asyncio.Event()
    workshop = gallery(tmp_path, onlooker)
    async with workshop.open() as engine:
        first = await engine.runs.start(OWNER, ask("Wait.", session_key="s"))
        await wait_for(engine, first.id, "model.requested")
        queued = await engine.runs.start(OWNER, ask("Look.", session_key="s", attachments=(given_image(),)))
    onlooker.hold = None
    async with workshop.open() as engine:
        await finished(engine, queued)
    assert onlooker.seen() == [Image("image/png", CAT)]


async def test_branch_keeps_images(tmp_path: Path) -> None:
    onlooker = Onlooker()
    async with gallery(tmp_path, onlooker).open() as engine:
        record = await look(engine, given_image())
        ended = (await engine.runs.get(OWNER, record.id)).ended_seq
        assert ended is not None
        branch = await engine.sessions.branch(OWNER, record.session_id, ended, None)
        again = await engine.runs.start(OWNER, ask("Again?", session_id=branch.id))
        await finished(engine, again)
    assert onlooker.seen() == [Image("image/png", CAT)]


async def test_erased_artifact_becomes_a_note(tmp_path: Path) -> None:
    onlooker = Onlooker()
    async with gallery(tmp_path, onlooker).open() as engine:
        record = await look(engine, given_image(), given_image(DOG, "dog.jpg", "image/jpeg"))
        cat = artifact_of([event.data for event in await finished(engine, record)])
        await engine._setup.ports.artifacts.remove(cat)
        again = await look(engine, text="And now?")
        assert (await engine.runs.get(OWNER, again.id)).state == "done"
    assert onlooker.seen() == [Image("image/jpeg", DOG)]
    assert "[image cat.png not shown: it is no longer there]" in onlooker.read()


@pytest.mark.parametrize("damaged", [b"", CAT[:-1], b"x" * len(CAT), CAT + b"x" * IMAGE_BYTES_MAX])
async def test_damaged_artifact_becomes_a_note(tmp_path: Path, damaged: bytes) -> None:
    onlooker = Onlooker()
    async with gallery(tmp_path, onlooker).open() as engine:
        record = await look(engine, given_image())
        cat = artifact_of([event.data for event in await finished(engine, record)])
        (tmp_path / "artifacts" / cat[:2] / cat).write_bytes(damaged)
        await look(engine, text="And now?")
    assert onlooker.seen() == []
    assert "[image cat.png not shown: it could not be read (" in onlooker.read()


async def test_image_goes_with_its_session(tmp_path: Path) -> None:
    async with gallery(tmp_path, Onlooker()).open() as engine:
        record = await look(engine, given_image())
        cat = artifact_of([event.data for event in await finished(engine, record)])
        assert (await engine.artifacts.get(OWNER, cat))[1] == CAT
        await engine.sessions.delete(OWNER, record.session_id)
        assert await engine._setup.ports.artifacts.size(cat) is None


async def test_body_of_a_message_that_is_not_taken_is_left_to_the_sweep(tmp_path: Path) -> None:
    onlooker = Onlooker()
    onlooker.hold = asyncio.Event()
    async with gallery(tmp_path, onlooker).open() as engine:
        kept = await engine.runs.start(OWNER, ask("Look.", session_key="s", attachments=(given_image(),)))
        await wait_for(engine, kept.id, "model.requested")
        dog = given_image(DOG, "dog.jpg", "image/jpeg")
        with pytest.raises(Conflict):
            await engine.runs.start(OWNER, ask("No.", session_key="s", attachments=(dog,), when_busy=WhenBusy.REJECT))
        state = engine._setup.views.state
        ids = tuple(ArtifactId(hashlib.sha256(body).hexdigest()) for body in (CAT, DOG))
        assert await state.unlinked(ids) == ids[1:]


async def test_image_that_another_session_shows_stays(tmp_path: Path) -> None:
    onlooker = Onlooker()
    async with gallery(tmp_path, onlooker).open() as engine:
        record = await look(engine, given_image(), key="one")
        cat = artifact_of([event.data for event in await finished(engine, record)])
        await look(engine, GivenAttachment(name="c", media_type="image/png", artifact_id=cat), key="two")
        await engine.sessions.delete(OWNER, record.session_id)
        await look(engine, text="And now?", key="two")
    assert onlooker.seen() == [Image("image/png", CAT)]


async def test_images_of_somebody_else_cannot_be_attached(tmp_path: Path) -> None:
    onlooker = Onlooker()
    async with gallery(tmp_path, onlooker).open() as engine:
        upload = await engine.artifacts.put(ALICE, CAT, "image/png")
        theirs = await engine.runs.start(ALICE, ask("Look.", attachments=(given_image(DOG, "d", "image/jpeg"),)))
        dog = artifact_of([event.data for event in await finished(engine, theirs, ALICE)])
        for artifact_id, media_type in ((upload.id, "image/png"), (dog, "image/jpeg"), (dog, "text/plain")):
            stolen = GivenAttachment(name="a", media_type=media_type, artifact_id=artifact_id)
            with pytest.raises(NotFound, match="there is no artifact"):
                await engine.runs.start(OWNER, ask("Look.", session_key="s", attachments=(stolen,)))
        assert await engine.sessions.list(OWNER, "", 10) == ()
    assert len(onlooker.asked) == 1


PADDED = png(filler=b"x" * (IMAGE_BYTES_MAX - len(png())))
REFUSED: dict[str, tuple[tuple[GivenAttachment, ...], str]] = {
    "contradicted": ((given_image(media_type="image/webp"),), "attachment 1: its media type is image/webp"),
    "no image": ((given_image(), given_image(b"<html>")), "attachment 2: its media type is image/png"),
    "too large": ((given_image(PADDED + b"x"),), f"at most {IMAGE_BYTES_MAX} bytes"),
    "too wide": ((given_image(gif(9000, 1), "g", "image/gif"),), "9000 by 1 pixels"),
    "damaged": ((given_image(webp()[:20], "w", "image/webp"),), "does not say how large"),
    "together": ((given_image(PADDED),) * 5, f"together at most {IMAGES_BYTES_MAX} bytes"),
    "too many": ((given_image(),) * (ATTACHMENTS_MAX + 1), f"at most {ATTACHMENTS_MAX} attachments"),
    "nothing": ((GivenAttachment(name="a", media_type="text/plain"),), "either"),
    "no name": ((given_image(name=""),), "a name has"),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_what_no_model_could_be_shown_is_refused_and_not_kept(tmp_path: Path, what: str) -> None:
    attachments, words = REFUSED[what]
    async with gallery(tmp_path, Onlooker()).open() as engine:
        with pytest.raises(Invalid, match=words) as refused:
            await engine.runs.start(OWNER, ask("Look.", attachments=attachments))
        assert refused.value.code == "attachment_invalid"
        assert await engine.sessions.list(OWNER, "", 10) == ()
    assert [path for path in (tmp_path / "artifacts").rglob("*") if path.is_file()] == []


async def test_body_of_an_upload_is_checked_too(tmp_path: Path) -> None:
    async with gallery(tmp_path, Onlooker()).open() as engine:
        for body, words in ((b"text", "no PNG"), (PADDED + b"x", f"at most {IMAGE_BYTES_MAX} bytes")):
            upload = await engine.artifacts.put(OWNER, body, "image/png")
            attached = GivenAttachment(name="a", media_type="image/png", artifact_id=upload.id)
            with pytest.raises(Invalid, match=words):
                await engine.runs.start(OWNER, ask("Look.", attachments=(attached,)))


async def test_secret_in_a_name_is_not_recorded(tmp_path: Path) -> None:
    secret = "sk-ant-api03-" + base64.b64encode(b"not a real key, only its form, you see").decode().rstrip("=")
    onlooker = Onlooker()
    async with gallery(tmp_path, onlooker).open() as engine:
        record = await look(engine, given_image(name=f"{secret}.png"))
        events = [event.data for event in await finished(engine, record)]
    assert secret not in str(events)
    assert secret not in onlooker.read()
    assert onlooker.seen() == [Image("image/png", CAT)]


async def test_same_key_gives_the_same_run_whatever_is_attached(tmp_path: Path) -> None:
    async with gallery(tmp_path, Onlooker()).open() as engine:
        request = ask("Look.", attachments=(given_image(),), idempotency_key="k")
        first = await engine.runs.start(OWNER, request)
        await finished(engine, first)
        assert (await engine.runs.start(OWNER, request)).id == first.id


async def test_model_with_eyes_is_chosen_where_there_is_one(tmp_path: Path) -> None:
    blind, sighted = Onlooker(), Onlooker()
    workshop = Workshop(tmp_path, [])
    workshop.providers = {"blind": blind, "sighted": sighted}
    workshop.route = ("blind", "sighted")
    workshop.describe = lambda name: ModelCard(name=name, provider=name, kind="", id=name, vision=name == "sighted")
    async with workshop.open() as engine:
        await look(engine, text="Hello.")
        assert (len(blind.asked), len(sighted.asked)) == (1, 0)
        await look(engine, given_image())
    assert sighted.seen() == [Image("image/png", CAT)]
    assert len(blind.asked) == 1


async def test_failover_sends_the_images_again(tmp_path: Path) -> None:
    failing, sighted = Failing(), Onlooker()
    workshop = gallery(tmp_path, sighted)
    workshop.providers = {"failing": failing, "sighted": sighted}
    workshop.route = ("failing", "sighted")
    async with workshop.open() as engine:
        await look(engine, given_image())
    assert failing.seen() == sighted.seen() == [Image("image/png", CAT)]


class Failing(Onlooker):
    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        self.asked.append(request)
        yield Failed(ModelError.OVERLOADED, "Busy.")


async def test_demo_says_that_it_cannot_see(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, DemoProvider(0, 0))
    async with workshop.open() as engine:
        record = await look(engine, given_image(), text="help")
        events = await finished(engine, record)
        seen = await engine.runs.get(OWNER, record.id)
        later = await engine.runs.get(OWNER, (await look(engine, text="help")).id)
    plans = [event.data for event in events if isinstance(event.data, RoutePlanned)]
    assert plans[0].chosen == "scripted"
    assert BLIND in str(seen.answer)
    assert BLIND not in str(later.answer)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.binary(max_size=64), media_type=st.sampled_from(["image/png", "image/jpeg", "image/gif", "image/webp"]))
def test_no_bytes_get_through_as_an_image_that_they_are_not(tmp_path: Path, body: bytes, media_type: str) -> None:
    async def attach() -> None:
        async with gallery(tmp_path, Onlooker()).open() as engine:
            await engine.runs.start(OWNER, ask("Look.", attachments=(given_image(body, "a", media_type),)))

    with pytest.raises(Invalid, match="attachment 1"):
        asyncio.run(attach())
