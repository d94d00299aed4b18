"""Metrics in the text format of Prometheus.

Owns: the names, helps and labels of all metrics. Does not own: counting (meters).
prometheus-client is loaded at the first scrape, so that no start waits for it.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

from palyra.adapters.telemetry.meters import BUCKETS_S, PHASES, Histogram, Labels, RunMeters
from palyra.ports.telemetry import Workload

if TYPE_CHECKING:
    from prometheus_client.core import Metric

RUN_STATES = ("accepted", "in_progress", "waiting")
JOB_STATES = ("queued", "running", "dead")
OUTBOX_STATES = ("queued", "sending", "dead", "uncertain")
# Name, what it counts, its labels.
COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "runs_accepted": ("Runs that were accepted, by the kind of their origin.", ("origin",)),
    "runs_ended": ("Runs that ended, by how.", ("state",)),
    "model_calls": ("Model calls that ended, by their finish or the class of their failure.", ("outcome",)),
    "tokens": ("Tokens that were settled.", ("model", "kind")),
    "cost_usd": ("Settled cost in US dollars. Calls without a known price are not in it.", ("model",)),
    "verdicts": ("Verdicts on proposed tool calls.", ("verdict",)),
    "tool_calls": ("Tool calls that ended.", ("tool", "outcome")),
    "approvals_resolved": ("Questions that were decided, by how.", ("status",)),
    "incidents": ("Incidents that the watchdog opened.", ("domain",)),
    "journal_events": ("Events that this process recorded.", ()),
}
GAUGES: dict[str, str] = {
    "palyra_runs_active": "Sessions with an active run.",
    "palyra_incidents_open": "Incidents that are open.",
    "palyra_streams_open": "Streams that clients follow, over HTTP and gRPC.",
    "palyra_journal_file_bytes": "Size of the journal's main file.",
    "palyra_journal_log_bytes": "Size of the journal's write-ahead log.",
}


class PrometheusMeter(RunMeters):
    """Counts, and writes what it counted."""

    async def render(self, workload: Workload, gauges: dict[str, float]) -> bytes:
        # Copies, because a thread writes them while the loop goes on counting.
        counts = dict(self.counts)
        phases = {phase: (list(held.counts), held.sum_s) for phase, held in self.phases.items()}
        return await asyncio.to_thread(_write, counts, phases, workload, gauges)


def _write(
    counts: Mapping[tuple[str, Labels], float],
    phases: Mapping[str, tuple[list[int], float]],
    workload: Workload,
    gauges: Mapping[str, float],
) -> bytes:
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

    class Everything:
        def collect(self) -> Iterable["Metric"]:
            yield from _counter_metrics(counts)
            yield _phase_metric(phases)
            yield from _gauge_metrics(workload, gauges)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Everything())
    ProcessCollector(registry=registry)
    return generate_latest(registry)


def _counter_metrics(counts: Mapping[tuple[str, Labels], float]) -> Iterator["Metric"]:
    from prometheus_client.core import CounterMetricFamily

    for name, (words, labels) in COUNTERS.items():
        metric = CounterMetricFamily(f"palyra_{name}", words, labels=labels)
        for (counted, values), total in counts.items():
            if counted == name:
                metric.add_metric(values, total)
        yield metric


def _phase_metric(phases: Mapping[str, tuple[list[int], float]]) -> "Metric":
    from prometheus_client.core import HistogramMetricFamily

    metric = HistogramMetricFamily("palyra_phase_seconds", "How long each phase of a run took.", labels=("phase",))
    empty = (Histogram().counts, 0.0)
    bounds = [*(format(bound, "g") for bound in BUCKETS_S), "+Inf"]
    for phase in PHASES:
        counted, sum_s = phases.get(phase, empty)
        metric.add_metric((phase,), list(zip(bounds, accumulate(counted), strict=True)), sum_s)
    return metric


def _gauge_metrics(workload: Workload, gauges: Mapping[str, float]) -> Iterator["Metric"]:
    from prometheus_client.core import GaugeMetricFamily

    by_state = (
        ("palyra_runs", "Runs that are not over, by state.", RUN_STATES, workload.runs),
        ("palyra_jobs", "Background jobs, by state.", JOB_STATES, workload.jobs),
        ("palyra_outbox", "Messages to channels that are not sent, by state.", OUTBOX_STATES, workload.outbox),
    )
    for name, words, states, counts in by_state:
        metric = GaugeMetricFamily(name, words, labels=("state",))
        for state in states:
            metric.add_metric((state,), counts.get(state, 0))
        yield metric
    yield GaugeMetricFamily("palyra_approvals_pending", "Questions that wait.", value=workload.approvals_pending)
    yield GaugeMetricFamily("palyra_journal_position", "Position of the newest event.", value=workload.position)
    for name, value in gauges.items():
        yield GaugeMetricFamily(name, GAUGES.get(name, name), value=value)
