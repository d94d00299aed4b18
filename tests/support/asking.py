"""Short helpers for tests that drive an engine: turns, requests, and waits for what a run does."""

from collections.abc import AsyncIterator

from palyra.adapters.providers.prepared_turns import Chunk, PreparedCall, Turn
from palyra.adapters.providers.scripted import Script
from palyra.core.events import Event
from palyra.core.ids import Principal, RunId
from palyra.core.trust import Trust
from palyra.engine.api.requests import RunRecord, RunRequest
from palyra.engine.engine import Engine
from palyra.engine.hub import Frame
from tests.support.engines import OWNER


def says(text: str) -> Turn:
    return Turn(text=text)


def calls(tool: str, **arguments: object) -> Turn:
    return Turn(calls=(PreparedCall(tool, dict(arguments)),))


READ_THEN_ANSWER = [Script(turns=(calls("mark.read", text="a"), says("It is done.")))]
SEND_THEN_ANSWER = [Script(turns=(calls("mark.send", text="mail"), says("Sent.")))]
STORY = [Script(turns=(Turn(chunks=tuple(Chunk(f" word{n}", 80) for n in range(50))),))]  # Four seconds.
SLOW = [Script(turns=(Turn(chunks=tuple(Chunk(f"word{n} ", 50) for n in range(200))),))]


def ask(text: str = "go", **fields: object) -> RunRequest:
    return RunRequest(text=text, origin="test", **{"can_ask": True, "trust": Trust.OPERATOR, **fields})  # type: ignore[arg-type]


async def finished(engine: Engine, record: RunRecord, principal: Principal = OWNER) -> list[Event]:
    """Returns all recorded events of a run, once it is over."""
    frames = await engine.runs.follow(principal, record.id, None)
    return [frame async for frame in frames if isinstance(frame, Event)]


async def wait_for(engine: Engine, run_id: RunId, type_name: str) -> Frame:
    return await first(await engine.runs.follow(OWNER, run_id, None), type_name)


async def first(frames: AsyncIterator[Frame], type_name: str) -> Frame:
    async for frame in frames:
        if frame.type == type_name:
            return frame
    raise AssertionError(f"no {type_name} came")
