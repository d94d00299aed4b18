"""A daemon that is watched under a clock set by hand: time passes in heartbeats and cycles, and nothing sleeps."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from palyra.core.events import Event
from palyra.core.events.model import Finish
from palyra.core.events.system import IncidentActed, IncidentOpened, IncidentResolved
from palyra.core.healing.model import HealingDomain, HealingMode, HealingModes, IncidentStatus
from palyra.core.ids import system_stream
from palyra.core.projections.rows import IncidentRow
from palyra.engine.engine import Engine
from palyra.engine.setup import HealingSetup
from palyra.ports.provider import Completed, Delta, ModelRequest, TextDelta
from palyra.ports.services import ServiceHealth, ServiceState
from tests.support.engines import Workshop

BEAT_S = 15
PLENTY_BYTES = 1 << 40


class HandClock:
    """A clock that is set by hand. It also is a machine whose steady time goes with it, unless the clock jumps."""

    def __init__(self) -> None:
        self.at_ms = 1_000_000_000
        self.steady_ms = 5_000
        self.space_bytes = PLENTY_BYTES
        self.problem = ""

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic_ms(self) -> int:
        return self.steady_ms

    def tick(self, seconds: float) -> None:
        self.at_ms += int(seconds * 1000)
        self.steady_ms += int(seconds * 1000)

    def jump(self, seconds: float) -> None:
        self.at_ms += int(seconds * 1000)

    async def free_bytes(self) -> int:
        return self.space_bytes

    async def artifacts_problem(self) -> str:
        return self.problem


class HangingProvider:
    """Says nothing, and ends at nothing but its cancellation; a stubborn one not even then."""

    def __init__(self, is_stubborn: bool = False) -> None:
        self.calls_count = 0
        self._is_stubborn = is_stubborn
        self.released = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        self.calls_count += 1
        while not self.released.is_set():
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                if not self._is_stubborn:
                    raise
        yield Completed(Finish.STOP)


class AnsweringProvider:
    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        yield TextDelta("Here it is.")
        yield Completed(Finish.STOP)


@dataclass
class FakeService:
    """A service whose health is set by hand. A restart mends it unless `is_broken`."""

    name: str
    domain: str
    restarts_itself: bool = False
    state: ServiceState = ServiceState.OK
    is_broken: bool = False
    restarts_count: int = 0

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def health(self) -> ServiceHealth:
        return ServiceHealth(state=self.state, reason="its process ended")

    async def restart(self) -> None:
        self.restarts_count += 1
        if not self.is_broken:
            self.state = ServiceState.OK


@dataclass
class WatchedScene:
    """`pass_s` lets time pass as the daemon would: a heartbeat each 15 s, a cycle of the watchdog each 30 s."""

    engine: Engine
    clock: HandClock
    _beats_count: int = field(default=0)

    async def pass_s(self, seconds: float, step_s: float = BEAT_S) -> None:
        for _ in range(int(seconds / step_s)):
            self.clock.tick(step_s)
            await self.engine._parts.heartbeats.renew()
            await self.engine.worker.renew()
            self._beats_count += 1
            if self._beats_count % 2 == 0:
                await self.engine.watchdog.cycle()

    async def incidents(self, status: IncidentStatus | None = IncidentStatus.OPEN) -> list[IncidentRow]:
        return list(await self.engine._setup.views.incidents.list_incidents(status, "", 100))

    async def subjects(self) -> list[tuple[str, str]]:
        return sorted((row.domain.value, row.subject) for row in await self.incidents())

    async def tape(self) -> list[Event]:
        events = await self.engine._setup.journal.read(system_stream(self.engine._parts.node), 0, 10_000)
        return [event for event in events if event.type.startswith("incident.")]

    async def story(self) -> list[str]:
        """What the tape says of incidents, a word or two each."""
        return [_told(event) for event in await self.tape()]


def _told(event: Event) -> str:
    match event.data:
        case IncidentOpened(domain=domain):
            return f"opened {domain.value}"
        case IncidentActed(action=action, outcome=outcome):
            return f"{action} {outcome.value}"
        case IncidentResolved(resolution=resolution):
            return f"resolved {resolution.value}"
        case _:
            return event.type


def healing(clock: HandClock, mode: HealingMode, **domains: HealingMode) -> HealingSetup:
    chosen = {HealingDomain(name): domain_mode for name, domain_mode in domains.items()}
    return HealingSetup(modes=HealingModes(mode=mode, domains=chosen), machine=clock)


def watched_workshop(root: Path, model: object, mode: HealingMode, **domains: HealingMode) -> Workshop:
    workshop = Workshop(root, model)  # type: ignore[arg-type]
    clock = HandClock()
    workshop.clock = clock
    workshop.healing = healing(clock, mode, **domains)
    return workshop


@asynccontextmanager
async def watched(workshop: Workshop) -> AsyncIterator[WatchedScene]:
    assert isinstance(workshop.clock, HandClock)
    async with workshop.open() as engine:
        yield WatchedScene(engine, workshop.clock)
