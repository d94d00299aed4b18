"""Routines for tests: a clock set by hand, short ways to make routines, and what fired."""

from datetime import datetime
from zoneinfo import ZoneInfo

from palyra.core.events import Event
from palyra.core.events.routine import RoutineFired, RoutineSkipped
from palyra.core.ids import Principal, RoutineId, configured_routine_id
from palyra.core.jobs.model import LIVE_STATES
from palyra.core.routines.model import (
    EverySchedule,
    Misfire,
    Overlap,
    Routine,
    RoutineDefinition,
    RoutineFireView,
    RoutineSchedule,
)
from palyra.core.routines.wish import RoutineWish
from palyra.engine.engine import Engine
from palyra.engine.routines.fire_handler import ROUTINE_KIND
from tests.support.engines import OWNER

START_MS = 1_800_000_000_000  # 2027-01-15T08:00:00Z, a Friday.
ROUTINE = configured_routine_id("test")


class SetClock:
    """A clock that is set by hand."""

    def __init__(self, at_ms: int = START_MS) -> None:
        self.at_ms = at_ms

    def now_ms(self) -> int:
        return self.at_ms

    def forward(self, seconds: float) -> None:
        self.at_ms += int(seconds * 1000)


def local_ms(text: str, zone: str, fold: int = 0) -> int:
    """The moment of a local time; `fold` 1 is the second of two equal ones."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp() * 1000)


def local_text(at_ms: int, zone: str) -> str:
    return datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone)).isoformat()


def wish(name: str = "test", **fields: object) -> RoutineWish:
    schedule: dict[str, object] = {} if {"cron", "at", "every_s"} & set(fields) else {"every_s": 60}
    return RoutineWish(**{"name": name, "prompt": "go", **schedule, **fields})  # type: ignore[arg-type]


def routine_at(
    next_at_ms: int | None, schedule: RoutineSchedule | None = None, misfire: Misfire = Misfire.SKIP, **fields: object
) -> Routine:
    definition = RoutineDefinition(
        name="test",
        prompt="go",
        schedule=schedule or EverySchedule(60),
        misfire=misfire,
        misfire_max=fields.pop("misfire_max", 10),  # type: ignore[arg-type]
        overlap=Overlap.FORBID,
    )
    base = {"id": ROUTINE, "principal": OWNER, "created_at_ms": 0, "updated_at_ms": 0}
    return Routine(definition=definition, next_at_ms=next_at_ms, **{**base, **fields})  # type: ignore[arg-type]


async def times_of(engine: Engine, routine_id: RoutineId, owner: Principal = OWNER) -> tuple[RoutineFireView, ...]:
    """The history, oldest first."""
    return (await engine.routines.history(owner, routine_id, None, 200))[::-1]


async def routine_events(engine: Engine) -> list[Event]:
    events = await engine._setup.journal.read_all(0, 10_000)
    return [event for event in events if event.type.startswith("routine.")]


async def fired_times(engine: Engine) -> list[int]:
    events = await routine_events(engine)
    return [event.data.due_at_ms for event in events if isinstance(event.data, RoutineFired)]


async def skipped_times(engine: Engine) -> list[tuple[int, str, int]]:
    data = [event.data for event in await routine_events(engine)]
    return [(one.due_at_ms, one.reason, one.count) for one in data if isinstance(one, RoutineSkipped)]


async def live_jobs_count(engine: Engine) -> int:
    """How many jobs of routines wait or run."""
    counts = await engine.jobs.counts()
    return sum(one.count for one in counts if one.kind == ROUTINE_KIND.name and one.state in LIVE_STATES)
