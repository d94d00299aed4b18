"""Service runs: on tapes of their own, left out of lists, erased with the session they serve, resumed after a crash."""

import asyncio
import re
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from palyra.core.errors import Conflict
from palyra.core.events.model import Finish, Usage
from palyra.core.events.session import SessionCreated
from palyra.core.ids import SessionId
from palyra.core.service_runs import ServiceRequest, ServiceSpec, find_service
from palyra.core.trust import Trust
from palyra.engine.api.requests import RunRequest, RunsQuery, SessionRequest, WhenBusy
from palyra.engine.engine import Engine
from palyra.ports.provider import Completed, Delta, ModelRequest, TextDelta
from palyra.ports.search import SearchQuery
from tests.support.engines import ALICE, OWNER, Workshop
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.anyio

SOURCES = Path(__file__).parents[2] / "src" / "palyra"
SUMMARY = ServiceSpec(purpose="test.summary", instructions="Sum up.", wall_clock_ms=60_000, max_output_tokens=64)


@pytest.fixture(autouse=True)
def known_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palyra.core.service_runs.SERVICES", {SUMMARY.agent: SUMMARY})


class Answering:
    """Answers each call with the next text; waits first while `go_on` is not set."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)
        self.requests: list[ModelRequest] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        self.requests.append(request)
        await self.go_on.wait()
        yield TextDelta(self.texts.pop(0))
        yield Completed(Finish.STOP, Usage(input_tokens=7, output_tokens=3))


async def serve(engine: Engine, serves: SessionId | None = None) -> SessionId:
    request = ServiceRequest(spec=SUMMARY, principal=OWNER, text="zebra talk", serves=serves)
    outcome = await engine.services.perform(request)
    assert (outcome.answer, outcome.code) == ("short", None)
    return outcome.session_id


async def test_a_service_run_has_its_instructions_and_no_tools(tmp_path: Path) -> None:
    provider = Answering("short")
    async with Workshop(tmp_path, provider).open() as engine:
        session_id = await serve(engine)
        (event,) = await engine.sessions.tape(OWNER, session_id, 0, 1)
        assert isinstance(event.data, SessionCreated)
        assert (event.data.purpose, event.data.agent) == ("test.summary", "service:test.summary")
    (request,) = provider.requests
    assert (request.instructions, request.tools, request.max_output_tokens) == ("Sum up.", (), 64)


async def test_lists_and_search_leave_service_runs_out_unless_asked(tmp_path: Path) -> None:
    async with Workshop(tmp_path, Answering("short")).open() as engine:
        session_id = await serve(engine)
        assert await engine.sessions.list(OWNER, "", 10) == ()
        assert await engine.runs.list(OWNER, RunsQuery()) == ()
        assert [run.session_id for run in await engine.runs.list(OWNER, RunsQuery(has_services=True))] == [session_id]
        assert len(await engine.runs.list(OWNER, RunsQuery(session_id=session_id))) == 1
        search = engine._setup.journal.search  # type: ignore[attr-defined]
        assert await search.search(SearchQuery(match="zebra", principal=OWNER, limit=5)) == ()


async def test_nobody_else_sees_it_and_nobody_can_speak_in_it(tmp_path: Path) -> None:
    async with Workshop(tmp_path, Answering("short")).open() as engine:
        session_id = await serve(engine)
        assert await engine.runs.list(ALICE, RunsQuery(has_services=True)) == ()
        with pytest.raises(Exception, match="session_unknown"):
            await engine.sessions.get(ALICE, session_id)
        for agent in (None, "main"):
            with pytest.raises(Conflict, match="session_is_service"):
                await engine.runs.start(
                    OWNER,
                    RunRequest(text="go", trust=Trust.OPERATOR, origin="http", session_id=session_id, agent=agent),
                )
        with pytest.raises(Conflict, match="session_is_service"):
            await engine.sessions.branch(OWNER, session_id, 1, None)
        with pytest.raises(Conflict, match="session_is_service"):
            await engine.sessions.label(OWNER, session_id, "mine")
        with pytest.raises(Conflict, match="session_is_service"):
            await engine.sessions.reset(OWNER, session_id)


async def test_nobody_speaks_into_a_service_run_while_it_runs(tmp_path: Path) -> None:
    provider = Answering("short")
    provider.go_on.clear()
    async with Workshop(tmp_path, provider).open() as engine:
        task = asyncio.create_task(serve(engine))
        while not provider.requests:
            await asyncio.sleep(0.001)
        (run,) = await engine.runs.list(OWNER, RunsQuery(has_services=True))
        with pytest.raises(Conflict, match="session_is_service"):
            await engine.runs.send_input(OWNER, run.id, "say yes", Trust.OPERATOR)
        steer = RunRequest(
            text="say yes", trust=Trust.OPERATOR, origin="http", session_id=run.session_id, when_busy=WhenBusy.STEER
        )
        with pytest.raises(Conflict, match="session_is_service"):
            await engine.runs.start(OWNER, steer)
        provider.go_on.set()
        await task


async def test_it_is_erased_with_the_session_it_serves(tmp_path: Path) -> None:
    async with Workshop(tmp_path, Answering("short")).open() as engine:
        served = await engine.sessions.resolve(OWNER, SessionRequest())
        session_id = await serve(engine, served.id)
        await engine.sessions.delete(OWNER, served.id)
        tape = await engine._setup.journal.read(session_id, 0, 100)
        assert {type(event.data).__name__ for event in tape} == {"ErasedData"}


async def test_a_service_run_goes_on_after_a_crash(tmp_path: Path) -> None:
    provider = Answering("short")
    provider.go_on.clear()
    workshop = Workshop(tmp_path, provider)
    async with workshop.open() as engine:
        task = asyncio.create_task(serve(engine))
        while not provider.requests:
            await asyncio.sleep(0.001)
        await engine.close()
        task.cancel()
    provider.go_on.set()
    async with workshop.open() as engine:
        async with asyncio.timeout(WAIT_S):
            while [run.state for run in await engine.runs.list(OWNER, RunsQuery(has_services=True))] != ["done"]:
                await asyncio.sleep(0.01)
    assert len(provider.requests) == 2


def test_no_model_is_called_outside_a_run() -> None:
    """Every way to a provider is one place: the model call of a run."""
    callers = {
        path.relative_to(SOURCES).as_posix()
        for path in SOURCES.rglob("*.py")
        if re.search(r"\.provider\(|\.stream\((request|self\._request)", path.read_text("utf-8"))
        and "adapters" not in path.parts
    }
    assert callers == {"engine/session/model_call.py"}


def test_no_agent_of_a_configuration_is_taken_for_a_service() -> None:
    assert find_service("main") is None
    assert find_service("service:unknown") is None
