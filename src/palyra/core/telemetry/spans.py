"""Spans: the times of a run and of its parts, folded from its events.

A run has turns; a turn has a model call, tool calls and questions to people. Each becomes a span that opens and closes.
Does not own: metrics and traces made of them (adapters.telemetry), clocks: the times are those of the events.
Invariants: a span's parent opened before it. A run's end closes everything of that run. No text of anybody is in a
span.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from palyra.core.events import Event
from palyra.core.events.model import (
    ContextAssembled,
    ModelError,
    ModelFailed,
    ModelOutput,
    ModelRequested,
    RoutePlanned,
)
from palyra.core.events.run import RunAccepted, RunCancelled, RunDone, RunFailed, RunStarted
from palyra.core.events.tool import (
    ApprovalRequested,
    ApprovalResolved,
    Outcome,
    ToolFinished,
    ToolProposed,
    ToolStarted,
    ToolUncertain,
)
from palyra.core.ids import RunId, StreamId

RUNS_MAX = 4096  # Followed at once. A run may wait for days; the one that was silent the longest is let go first.
SPANS_PER_RUN_MAX = 256
TOOLS_PER_RUN_MAX = 1024  # Names of proposed calls, until they start.

Attribute = str | int | float | bool


class SpanKind(Enum):
    RUN = "run"
    QUEUE = "queue"
    TURN = "turn"
    MODEL = "model"
    TOOL = "tool"
    APPROVAL = "approval"


class SpanOpened(msgspec.Struct, frozen=True, kw_only=True):
    """`key` is unique among open spans. `name` is the agent, model or tool."""

    key: str
    parent: str | None
    kind: SpanKind
    name: str
    at_ms: int
    run_id: RunId
    session_id: StreamId
    attributes: dict[str, Attribute]


class SpanClosed(msgspec.Struct, frozen=True, kw_only=True):
    opened: SpanOpened
    at_ms: int
    outcome: str
    is_error: bool
    attributes: dict[str, Attribute]

    @property
    def duration_s(self) -> float:
        """Never negative, even if somebody set the clock back."""
        return max(0, self.at_ms - self.opened.at_ms) / 1000


SpanChange = SpanOpened | SpanClosed

# Outcomes that count as errors. People's answers never do.
_ERRORS: dict[SpanKind, frozenset[str]] = {
    SpanKind.RUN: frozenset({"failed"}),
    SpanKind.MODEL: frozenset(error.value for error in ModelError),
    SpanKind.TOOL: frozenset({"uncertain", *(each.value for each in Outcome if each is not Outcome.OK)}),
    SpanKind.QUEUE: frozenset(),
    SpanKind.TURN: frozenset(),
    SpanKind.APPROVAL: frozenset(),
}


def run_key(run_id: RunId) -> str:
    return run_id


def model_key(run_id: RunId, turn: int) -> str:
    return f"{run_id}/model/{turn}"


@dataclass(slots=True)
class _FollowedRun:
    run_id: RunId
    session_id: StreamId
    open: dict[str, SpanOpened] = field(default_factory=dict)
    tools: dict[str, str] = field(default_factory=dict)
    turn_key: str | None = None


class SpanFold:
    """Feed it every event in order; it says which spans that opens and closes."""

    def __init__(self) -> None:
        self._runs: dict[RunId, _FollowedRun] = {}

    def feed(self, event: Event) -> list[SpanChange]:
        step = _STEPS.get(type(event.data))
        if step is None or event.run_id is None:
            return []
        changes: list[SpanChange] = []
        run = self._runs.pop(event.run_id, None)
        if run is None:
            run = _FollowedRun(event.run_id, event.stream)
            if isinstance(event.data, RunDone | RunFailed | RunCancelled):
                return []  # Nothing of it was seen: there is nothing to measure.
            changes.append(self._open_run(run, event))
        self._keep(run)
        changes += step(run, event)
        if run_key(run.run_id) not in run.open:
            self._runs.pop(run.run_id, None)
        return changes

    def opened(self, run_id: RunId, key: str) -> SpanOpened | None:
        run = self._runs.get(run_id)
        return run.open.get(key) if run is not None else None

    @property
    def run_count(self) -> int:
        return len(self._runs)

    def _keep(self, run: _FollowedRun) -> None:
        if len(self._runs) >= RUNS_MAX:
            del self._runs[next(iter(self._runs))]
        self._runs[run.run_id] = run

    def _open_run(self, run: _FollowedRun, event: Event) -> SpanOpened:
        data = event.data
        accepted = data if isinstance(data, RunAccepted) else None
        name = accepted.agent if accepted is not None else ""
        span = SpanOpened(
            key=run_key(run.run_id),
            parent=self._parent_of(accepted) if accepted is not None else None,
            kind=SpanKind.RUN,
            name=name,
            at_ms=event.at_ms,
            run_id=run.run_id,
            session_id=run.session_id,
            attributes={"origin": accepted.origin} if accepted is not None else {"is_resumed": True},
        )
        run.open[span.key] = span
        return span

    def _parent_of(self, accepted: RunAccepted) -> str | None:
        """Of a delegated run: the one call that delegates now, else the run itself. None if it is not followed."""
        lineage = accepted.lineage
        parent = self._runs.get(lineage[-1].run_id) if lineage else None
        if parent is None:
            return None
        calls = [key for key, span in parent.open.items() if span.kind is SpanKind.TOOL]
        return calls[0] if len(calls) == 1 else run_key(parent.run_id)


def _run_step(run: _FollowedRun, event: Event) -> list[SpanChange]:
    match event.data:
        case RunAccepted():
            return _open(run, event, f"{run.run_id}/queue/queue", {})
        case RunStarted():
            return _close(run, event, f"{run.run_id}/queue/queue", "started", {})
        case RunDone(reason=reason) | RunFailed(reason=reason) | RunCancelled(reason=reason):
            return _end(run, event, event.type.removeprefix("run."), reason.value)
        case _:
            return []


def _approval_step(run: _FollowedRun, event: Event) -> list[SpanChange]:
    match event.data:
        case ApprovalRequested(approval_id=approval_id, kind=kind, tool=tool):
            attributes: dict[str, Attribute] = {"approval_id": approval_id, "kind": kind.value, "tool": tool or ""}
            return _open(run, event, f"{run.run_id}/approval/{approval_id}", attributes)
        case ApprovalResolved(approval_id=approval_id, status=status):
            return _close(run, event, f"{run.run_id}/approval/{approval_id}", status.value, {})
        case _:
            return []


def _model_step(run: _FollowedRun, event: Event) -> list[SpanChange]:
    match event.data:
        case RoutePlanned(turn=turn) | ContextAssembled(turn=turn):
            return _turn(run, event, turn)
        case ModelRequested(turn=turn, model=model):
            begun = _turn(run, event, turn)
            return begun + _open(run, event, model_key(run.run_id, turn), {"turn": turn, "model": model}, model)
        case ModelOutput(turn=turn, finish=finish, usage=usage):
            counts: dict[str, Attribute] = {"finish": finish.value}
            if usage is not None:
                counts |= {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
            return _close(run, event, model_key(run.run_id, turn), finish.value, counts)
        case ModelFailed(turn=turn, code=code):
            return _close(run, event, model_key(run.run_id, turn), code.value, {})
        case _:
            return []


def _tool_step(run: _FollowedRun, event: Event) -> list[SpanChange]:
    match event.data:
        case ToolProposed(call_id=call_id, tool=tool):
            if len(run.tools) < TOOLS_PER_RUN_MAX:
                run.tools[call_id] = tool
            return []
        case ToolStarted(call_id=call_id, attempt=attempt):
            name = run.tools.pop(call_id, "unknown")
            key = f"{run.run_id}/tool/{call_id}"
            return _open(run, event, key, {"call_id": call_id, "attempt": attempt}, name)
        case ToolFinished(call_id=call_id, outcome=outcome):
            run.tools.pop(call_id, None)
            return _close(run, event, f"{run.run_id}/tool/{call_id}", outcome.value, {})
        case ToolUncertain(call_id=call_id):
            return _close(run, event, f"{run.run_id}/tool/{call_id}", "uncertain", {})
        case _:
            return []


def _turn(run: _FollowedRun, event: Event, turn: int) -> list[SpanChange]:
    """The first event of a turn opens it, and closes the turn before it."""
    key = f"{run.run_id}/turn/{turn}"
    if run.turn_key == key:
        return []
    closed = _close(run, event, run.turn_key, "next", {}) if run.turn_key is not None else []
    run.turn_key = None
    opened = _open(run, event, key, {"turn": turn})
    run.turn_key = key
    return closed + opened


def _open(
    run: _FollowedRun, event: Event, key: str, attributes: dict[str, Attribute], name: str = ""
) -> list[SpanChange]:
    """Keys are `run/kind/part`."""
    _, kind, part = key.split("/", 2)
    if key in run.open or len(run.open) >= SPANS_PER_RUN_MAX:
        return []
    span = SpanOpened(
        key=key,
        parent=run.turn_key or run_key(run.run_id),
        kind=SpanKind(kind),
        name=name or part,
        at_ms=event.at_ms,
        run_id=run.run_id,
        session_id=run.session_id,
        attributes=attributes,
    )
    run.open[key] = span
    return [span]


def _close(
    run: _FollowedRun, event: Event, key: str, outcome: str, attributes: dict[str, Attribute]
) -> list[SpanChange]:
    opened = run.open.pop(key, None)
    if opened is None:
        return []
    is_error = outcome in _ERRORS[opened.kind]
    return [SpanClosed(opened=opened, at_ms=event.at_ms, outcome=outcome, is_error=is_error, attributes=attributes)]


def _end(run: _FollowedRun, event: Event, state: str, reason: str) -> list[SpanChange]:
    """Closes what is open, the inner spans first, the run last."""
    inner = [change for key in list(reversed(run.open))[:-1] for change in _close(run, event, key, state, {})]
    return inner + _close(run, event, run_key(run.run_id), state, {"reason": reason})


# Events of other types say nothing about times.
_STEPS: dict[type, Callable[[_FollowedRun, Event], list[SpanChange]]] = {
    **dict.fromkeys((RunAccepted, RunStarted, RunDone, RunFailed, RunCancelled), _run_step),
    **dict.fromkeys((RoutePlanned, ContextAssembled, ModelRequested, ModelOutput, ModelFailed), _model_step),
    **dict.fromkeys((ToolProposed, ToolStarted, ToolFinished, ToolUncertain), _tool_step),
    **dict.fromkeys((ApprovalRequested, ApprovalResolved), _approval_step),
}
