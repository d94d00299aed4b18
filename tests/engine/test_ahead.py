"""Model calls made ready ahead of their record: nothing leaves before it is durable, and nothing at all if it never is."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from palyra.adapters.net.client import HttpClient, Outgoing
from palyra.adapters.providers.scripted import Script
from palyra.core.conversation import UserMessage, Window, extend
from palyra.core.errors import Unavailable
from palyra.core.events import Event
from palyra.core.events.model import Finish, ModelError
from palyra.ports.journal import Append, Journal
from palyra.ports.provider import Completed, Delta, Failed, ModelRequest, TextDelta
from tests.support.asking import ask, calls, finished, says
from tests.support.engines import OWNER, Workshop

pytestmark = pytest.mark.anyio

WAIT_S = 20.0


class Patient:
    """Notes when it was asked to get ready, and when it sent something."""

    def __init__(self) -> None:
        self.asked: list[ModelRequest] = []
        self.sent: list[str] = []
        self.stopped_count = 0
        self.fails_first = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        self.sent.append(f"plainly {request.turn}")
        yield TextDelta("Hello.")
        yield Completed(Finish.STOP)

    async def stream_after(self, request: ModelRequest, gate: Awaitable[None]) -> AsyncGenerator[Delta, None]:
        self.asked.append(request)
        if self.fails_first:
            yield Failed(ModelError.AUTH, "no key")
            return
        try:
            await gate
        except asyncio.CancelledError:
            self.stopped_count += 1
            raise
        self.sent.append(f"after {request.turn}")
        yield TextDelta("Hello.")
        yield Completed(Finish.STOP)


class Hasty:
    """Knows nothing of gates."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        self.sent.append(f"plainly {request.turn}")
        yield TextDelta("Hello.")
        yield Completed(Finish.STOP)


class Slow:
    """A journal that says it is on its way, and then takes its time."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.is_on_its_way = asyncio.Event()
        self.may_end = asyncio.Event()
        self.failures = 0
        self.says_so_late = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    async def commit(
        self, appends: Sequence[Append], *rest: Any, meanwhile: Callable[[], None] | None = None
    ) -> tuple[Event, ...]:
        if meanwhile is None:
            return await self._journal.commit(appends, *rest)
        if not self.says_so_late:
            meanwhile()
        self.is_on_its_way.set()
        await self.may_end.wait()
        if self.failures:
            self.failures -= 1
            raise Unavailable("disk_full", "there is no room on the disk")
        events = await self._journal.commit(appends, *rest)
        if self.says_so_late:
            asyncio.get_running_loop().call_soon(meanwhile)
        return events


def slow_shop(tmp_path: Path, provider: Any) -> tuple[Workshop, list[Slow]]:
    workshop, disks = Workshop(tmp_path, provider), list[Slow]()

    def wrap(journal: Journal) -> Journal:
        disks.append(Slow(journal))
        return disks[0]

    workshop.wrap_journal = wrap
    return workshop, disks


async def test_nothing_leaves_while_the_record_is_on_its_way(tmp_path: Path) -> None:
    provider = Patient()
    workshop, disks = slow_shop(tmp_path, provider)
    async with asyncio.timeout(WAIT_S), workshop.open() as engine:
        starting = asyncio.create_task(engine.runs.start(OWNER, ask("hello there")))
        await disks[0].is_on_its_way.wait()
        while not provider.asked:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        assert provider.sent == []
        assert provider.asked[0].messages == (UserMessage("hello there"),)
        disks[0].may_end.set()
        events = await finished(engine, await starting)
        assert provider.sent == ["after 1"]
        assert events[-1].type == "run.done"


async def test_a_provider_that_cannot_wait_is_not_asked_before(tmp_path: Path) -> None:
    provider = Hasty()
    workshop, disks = slow_shop(tmp_path, provider)
    async with asyncio.timeout(WAIT_S), workshop.open() as engine:
        starting = asyncio.create_task(engine.runs.start(OWNER, ask()))
        await disks[0].is_on_its_way.wait()
        await asyncio.sleep(0.02)
        assert provider.sent == []
        disks[0].may_end.set()
        await finished(engine, await starting)
        assert provider.sent == ["plainly 1"]


async def test_a_record_that_fails_takes_its_call_with_it(tmp_path: Path) -> None:
    provider = Patient()
    workshop, disks = slow_shop(tmp_path, provider)
    async with asyncio.timeout(WAIT_S), workshop.open() as engine:
        disks[0].failures = 1
        starting = asyncio.create_task(engine.runs.start(OWNER, ask()))
        while not provider.asked:
            await asyncio.sleep(0.001)
        disks[0].may_end.set()
        with pytest.raises(Unavailable, match="no room"):
            await starting
        while not provider.stopped_count:
            await asyncio.sleep(0.001)
        assert provider.sent == []
        events = await finished(engine, await engine.runs.start(OWNER, ask()))
        assert provider.sent == ["after 1"]
        assert [event.type for event in events].count("model.output") == 1


async def test_time_that_comes_too_late_makes_no_second_call(tmp_path: Path) -> None:
    provider = Patient()
    workshop, disks = slow_shop(tmp_path, provider)
    async with asyncio.timeout(WAIT_S), workshop.open() as engine:
        disks[0].says_so_late = True
        disks[0].may_end.set()
        events = await finished(engine, await engine.runs.start(OWNER, ask()))
        await asyncio.sleep(0.02)
        assert (provider.asked, provider.sent) == ([], ["plainly 1"])
        assert events[-1].type == "run.done"


async def test_a_failure_before_the_record_is_told_after_it(tmp_path: Path) -> None:
    provider = Patient()
    provider.fails_first = True
    workshop, disks = slow_shop(tmp_path, provider)
    async with asyncio.timeout(WAIT_S), workshop.open() as engine:
        starting = asyncio.create_task(engine.runs.start(OWNER, ask()))
        while not provider.asked:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        disks[0].may_end.set()
        types = [event.type for event in await finished(engine, await starting)]
        assert types.index("model.requested") < types.index("model.failed")
        assert types[-1] == "run.failed"


async def test_a_daemon_that_stops_leaves_no_call_behind(tmp_path: Path) -> None:
    provider = Patient()
    workshop, disks = slow_shop(tmp_path, provider)
    async with asyncio.timeout(WAIT_S):
        async with workshop.open() as engine:
            starting = asyncio.create_task(engine.runs.start(OWNER, ask()))
            while not provider.asked:
                await asyncio.sleep(0.001)
            disks[0].may_end.set()
        await asyncio.gather(starting, return_exceptions=True)
        assert provider.sent == [] or provider.sent == ["after 1"]
        assert len(provider.sent) + provider.stopped_count == 1


async def test_the_window_of_what_is_drawn_up_is_the_window_of_what_is_recorded(tmp_path: Path) -> None:
    """A request made ahead says the same as one made from the tape."""
    seen: list[tuple[Window, Window]] = []

    class Watching(Slow):
        async def commit(self, appends: Sequence[Append], *rest: Any, **_options: Any) -> tuple[Event, ...]:
            events = await self._journal.commit(appends, *rest)
            before, after = Window(), Window()
            for append in appends:
                for draft in append.drafts:
                    before = extend(before, draft)
            for event in events:
                after = extend(after, event)
            seen.append((before, after))
            return events

    turns = (calls("mark.read", text="a"), calls("no.such", text="b"), says("It is done."))
    workshop = Workshop(tmp_path, [Script(turns=turns)])
    workshop.wrap_journal = Watching
    async with asyncio.timeout(WAIT_S), workshop.open() as engine:
        await finished(engine, await engine.runs.start(OWNER, ask()))
    assert sum(1 for before, _ in seen if before.items) >= 3
    assert [before for before, _ in seen] == [after for _, after in seen]


async def test_no_byte_of_a_held_request_is_sent_before_its_gate_opens() -> None:
    received = bytearray()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(4096):
            received.extend(piece)
            if received.endswith(b"body"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    client = HttpClient()
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"

    async def ask_held(gate: asyncio.Future[None]) -> bytes:
        async with client.post(Outgoing(url=url, headers={}, body=b"body", gate=gate)) as reply:
            return await reply.read_some(WAIT_S)

    try:
        async with asyncio.timeout(WAIT_S), server:
            gate = asyncio.get_running_loop().create_future()
            asking = asyncio.create_task(ask_held(gate))
            await asyncio.sleep(0.05)
            assert received == b""
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            gate = asyncio.get_running_loop().create_future()
            asking = asyncio.create_task(ask_held(gate))
            await asyncio.sleep(0.05)
            assert received == b""
            gate.set_result(None)
            assert await asking == b"ok"
            await client.close()
    finally:
        await client.close()
