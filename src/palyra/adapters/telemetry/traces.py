"""Traces: the spans of runs as OpenTelemetry spans, with the names of its GenAI conventions.

Owns: the names and attributes of spans. Does not own: sending them (export), which spans there are (core.telemetry).
Invariants: a trace has the id of its run, so that whoever has one has the other. No prompt, answer, argument or result
is in a span.
"""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from palyra.core.events import Event
from palyra.core.ids import RunId
from palyra.core.telemetry import spans
from palyra.core.telemetry.spans import SpanClosed, SpanFold, SpanOpened, model_key, run_key

OPEN_MAX = 65_536  # Spans at once; beyond it new ones are not traced.
NS_PER_MS = 1_000_000

# While a run's span is made: the id that its trace shall have. The id generator of the exporter reads it.
trace_id_of_run: ContextVar[int | None] = ContextVar("trace_id_of_run", default=None)

_OPERATIONS = {spans.SpanKind.RUN: "invoke_agent", spans.SpanKind.MODEL: "chat", spans.SpanKind.TOOL: "execute_tool"}
_NAMES = {
    "model": "gen_ai.request.model",
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "call_id": "gen_ai.tool.call.id",
}
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


class RunTraces:
    """`providers` gives the provider of a model, in the words of the conventions."""

    def __init__(self, tracer: Tracer, providers: Mapping[str, str]) -> None:
        self._tracer = tracer
        self._providers = providers
        self._fold = SpanFold()
        self._open: dict[str, Span] = {}

    def recorded(self, events: Sequence[Event]) -> None:
        for event in events:
            for change in self._fold.feed(event):
                if isinstance(change, SpanOpened):
                    self._begin(change)
                else:
                    self._end(change)

    def first_text(self, run_id: RunId, turn: int) -> None:
        span = self._open.get(model_key(run_id, turn))
        if span is not None:
            span.add_event("gen_ai.first_text")

    def _begin(self, opened: SpanOpened) -> None:
        if len(self._open) >= OPEN_MAX:
            return
        parent = self._open.get(opened.parent) if opened.parent is not None else None
        is_root = opened.key == run_key(opened.run_id)
        # A delegated run is a trace of its own, with a link to the call that started it.
        links = [Link(parent.get_span_context())] if is_root and parent is not None else []
        context = set_span_in_context(parent, Context()) if parent is not None and not is_root else Context()
        token = trace_id_of_run.set(trace_id(opened.run_id) if is_root else None)
        try:
            self._open[opened.key] = self._tracer.start_span(
                _name(opened),
                context=context,
                kind=SpanKind.CLIENT if opened.kind is spans.SpanKind.MODEL else SpanKind.INTERNAL,
                attributes=self._attributes(opened),
                links=links,
                start_time=opened.at_ms * NS_PER_MS,
            )
        finally:
            trace_id_of_run.reset(token)

    def _end(self, closed: SpanClosed) -> None:
        span = self._open.pop(closed.opened.key, None)
        if span is None:
            return
        if closed.opened.kind is spans.SpanKind.MODEL and not closed.is_error:
            span.set_attribute("gen_ai.response.finish_reasons", [closed.outcome])
        span.set_attribute("palyra.outcome", closed.outcome)
        for name, value in closed.attributes.items():
            span.set_attribute(_NAMES.get(name, f"palyra.{name}"), value)
        if closed.is_error:
            span.set_attribute("error.type", closed.outcome)
            span.set_status(Status(StatusCode.ERROR))
        span.end(max(closed.at_ms, closed.opened.at_ms) * NS_PER_MS)

    def _attributes(self, opened: SpanOpened) -> dict[str, str | int | float | bool]:
        attributes: dict[str, str | int | float | bool] = {
            "palyra.run.id": opened.run_id,
            "gen_ai.conversation.id": opened.session_id,
        }
        operation = _OPERATIONS.get(opened.kind)
        if operation is not None:
            attributes["gen_ai.operation.name"] = operation
        match opened.kind:
            case spans.SpanKind.RUN if opened.name:
                attributes["gen_ai.agent.name"] = opened.name
            case spans.SpanKind.MODEL:
                attributes["gen_ai.provider.name"] = self._providers.get(opened.name, "unknown")
            case spans.SpanKind.TOOL:
                attributes["gen_ai.tool.name"] = opened.name
            case _:
                pass
        return attributes | {_NAMES.get(name, f"palyra.{name}"): value for name, value in opened.attributes.items()}


def trace_id(run_id: RunId) -> int:
    """The 128 bits of the run's ULID. A trace is found by its run, also after a restart of the daemon."""
    number = 0
    for letter in run_id:
        number = number * 32 + _ALPHABET.index(letter)
    return number & (2**128 - 1)


def _name(opened: SpanOpened) -> str:
    """As the conventions say: the operation, then what it is about."""
    operation = _OPERATIONS.get(opened.kind)
    if operation is not None:
        return f"{operation} {opened.name}".strip()
    return opened.kind.value
