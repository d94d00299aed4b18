"""Counters and histograms of runs, as plain numbers.

Owns: what is counted, by which labels, and the bound on the values of a label.
Does not own: the text format (prometheus).
Invariants: a label has a bounded number of values, whatever models, tools and users say. No label names a person, a
session or a run. Counting one event costs a few dictionary look-ups.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence

from palyra.core.events import Event
from palyra.core.events.model import ModelFailed, ModelOutput, UsageRecorded
from palyra.core.events.run import RunAccepted, RunCancelled, RunDone, RunFailed
from palyra.core.events.system import IncidentOpened
from palyra.core.events.tool import ApprovalResolved, ToolJudged
from palyra.core.ids import RunId
from palyra.core.telemetry.spans import SpanClosed, SpanFold, SpanKind, model_key

VALUES_MAX = 64  # Of one label; what comes later is counted as `other`.
OTHER = "other"
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
FIRST_TEXT = "first_text"

Labels = tuple[str, ...]


class Histogram:
    """`counts` has one place for each bucket and one for everything above the last."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.sum_s += seconds


class RunMeters:
    """Counts what is recorded. `now_ms` is only asked for the first text of a turn, which no event tells."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.counts: defaultdict[tuple[str, Labels], float] = defaultdict(float)
        self.phases: defaultdict[str, Histogram] = defaultdict(Histogram)
        self._fold = SpanFold()
        self._now_ms = now_ms
        self._values: dict[str, set[str]] = {}

    def recorded(self, events: Sequence[Event]) -> None:
        for event in events:
            self.counts["journal_events", ()] += 1
            if type(event.data) in _COUNTED:
                self._count(event)
            for change in self._fold.feed(event):
                if isinstance(change, SpanClosed):
                    self._measure(change)

    def first_text(self, run_id: RunId, turn: int) -> None:
        call = self._fold.opened(run_id, model_key(run_id, turn))
        if call is not None:
            self.phases[FIRST_TEXT].add(max(0, self._now_ms() - call.at_ms) / 1000)

    def _measure(self, closed: SpanClosed) -> None:
        """A call's tool is known from its span alone: what a model proposed may be any name."""
        opened = closed.opened
        self.phases[opened.kind.value].add(closed.duration_s)
        if opened.kind is SpanKind.TOOL:
            self.counts["tool_calls", (self.bounded("tool", opened.name), closed.outcome)] += 1

    def bounded(self, label: str, value: str) -> str:
        """The value, or `other` if the label has as many values as it may."""
        known = self._values.setdefault(label, set())
        if value in known:
            return value
        if len(known) >= VALUES_MAX:
            return OTHER
        known.add(value)
        return value

    def _count(self, event: Event) -> None:
        counts = self.counts
        match event.data:
            case RunAccepted(origin=origin):
                counts["runs_accepted", (self.bounded("origin", origin.partition(":")[0]),)] += 1
            case RunDone() | RunFailed() | RunCancelled():
                counts["runs_ended", (event.type.removeprefix("run."),)] += 1
            case UsageRecorded():
                self._count_usage(event.data)
            case ModelOutput(finish=finish):
                counts["model_calls", (finish.value,)] += 1
            case ModelFailed(code=code):
                counts["model_calls", (code.value,)] += 1
            case _:
                self._count_tools(event)

    def _count_tools(self, event: Event) -> None:
        counts = self.counts
        match event.data:
            case ToolJudged(verdict=verdict):
                counts["verdicts", (verdict.value,)] += 1
            case ApprovalResolved(status=status):
                counts["approvals_resolved", (status.value,)] += 1
            case IncidentOpened(domain=domain):
                counts["incidents", (domain.value,)] += 1
            case _:
                return

    def _count_usage(self, used: UsageRecorded) -> None:
        model = self.bounded("model", used.model)
        self.counts["tokens", (model, "input")] += used.input_tokens
        self.counts["tokens", (model, "output")] += used.output_tokens
        self.counts["tokens", (model, "cached")] += used.cached_tokens
        if used.cost_usd is not None:
            self.counts["cost_usd", (model,)] += used.cost_usd


PHASES = (*(kind.value for kind in SpanKind), FIRST_TEXT)
# The types that are counted by themselves. Most events are not, and cost no more than this look-up.
_COUNTED = frozenset(
    {
        RunAccepted,
        RunDone,
        RunFailed,
        RunCancelled,
        UsageRecorded,
        ModelOutput,
        ModelFailed,
        ToolJudged,
        ApprovalResolved,
        IncidentOpened,
    }
)
