"""Metrics: what a scrape of the daemon shows.

Owns: gathering what is true now. Does not own: what was counted, or its form (ports.telemetry).
"""

from collections.abc import Callable
from dataclasses import dataclass

from palyra.engine.session.slots import RunSlots
from palyra.ports.telemetry import Meter, WorkloadViews
from palyra.ports.upkeep import JournalUpkeep


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsService:
    meter: Meter
    workload: WorkloadViews
    upkeep: JournalUpkeep
    slots: RunSlots
    incidents_seen: Callable[[], int]

    async def render(self, gauges: dict[str, float]) -> bytes:
        """Everything, in the text format of Prometheus. `gauges` are what the gateway knows of itself."""
        size = await self.upkeep.size()
        own = {
            "palyra_runs_active": float(self.slots.taken_count),
            "palyra_incidents_open": float(self.incidents_seen()),
            "palyra_journal_file_bytes": float(size.file_bytes),
            "palyra_journal_log_bytes": float(size.log_bytes),
        }
        return await self.meter.render(await self.workload.workload(), {**own, **gauges})
