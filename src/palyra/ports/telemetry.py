"""The ports of telemetry: what the engine tells it, and what a scrape asks of it.

Does not own: what is measured (adapters.telemetry), where it is sent.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from palyra.core.events import Event
from palyra.core.ids import RunId


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """How much there is of everything right now.

    `runs`, `jobs` and `outbox` are counts by state, without those that are over.
    """

    runs: dict[str, int] = {}
    jobs: dict[str, int] = {}
    outbox: dict[str, int] = {}
    approvals_pending: int = 0
    position: int = 0


class WorkloadViews(Protocol):
    async def workload(self) -> Workload: ...


class RunObserver(Protocol):
    """Hears of everything that is recorded, after it is durable. It must not block and cannot fail a run."""

    def recorded(self, events: Sequence[Event]) -> None: ...

    def first_text(self, run_id: RunId, turn: int) -> None:
        """The first text of a turn has reached its followers."""
        ...


class Meter(RunObserver, Protocol):
    async def render(self, workload: Workload, gauges: dict[str, float]) -> bytes:
        """Everything measured, in the text format of Prometheus. `gauges` are further values by name."""
        ...


class NoWorkload:
    async def workload(self) -> Workload:
        return Workload()


class NoMeter:
    """Measures nothing; shows the gauges that it is given."""

    def recorded(self, events: Sequence[Event]) -> None:
        return

    def first_text(self, run_id: RunId, turn: int) -> None:
        return

    async def render(self, workload: Workload, gauges: dict[str, float]) -> bytes:
        return "".join(f"# TYPE {name} gauge\n{name} {value:g}\n" for name, value in gauges.items()).encode()
