"""Sends spans by OTLP over HTTP, with the SDK of OpenTelemetry (extra `telemetry`).

Owns: the provider of tracers, its ids, and flushing at the end. Does not own: the spans (traces).
"""

from typing import TYPE_CHECKING

from palyra.adapters.extras import install_command
from palyra.adapters.telemetry.traces import trace_id_of_run
from palyra.core.errors import Invalid

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

FLUSH_MS = 2_000
SEND_TIMEOUT_S = 2.0  # Retries included. A stop waits for one attempt at most.
SCOPE = "palyra"


class TraceExport:
    """One connection to a collector. Spans are sent in batches by a thread; if nobody takes them they are dropped."""

    def __init__(self, provider: "TracerProvider") -> None:
        self._provider = provider
        self._is_closed = False

    def tracer(self) -> "Tracer":
        return self._provider.get_tracer(SCOPE)

    def close(self) -> None:
        """Sends what waits, for a bounded time. It blocks: call it in a thread. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._provider.force_flush(FLUSH_MS)
        self._provider.shutdown()


def open_export(url: str, service: str, version: str, ratio: float) -> TraceExport:
    """Invalid if the extra is not installed. `url` is the collector's base, without `/v1/traces`."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
    except ImportError as cause:
        message = f"telemetry.otlp_url needs the extra: {install_command('palyra[telemetry]')}, or remove the setting"
        raise Invalid("telemetry_missing", message) from cause

    class RunIdGenerator(RandomIdGenerator):
        def generate_trace_id(self) -> int:
            given = trace_id_of_run.get()
            return given if given else super().generate_trace_id()

    resource = Resource.create({"service.name": service, "service.version": version})
    provider = TracerProvider(
        resource=resource, id_generator=RunIdGenerator(), sampler=ParentBased(TraceIdRatioBased(ratio))
    )
    provider.add_span_processor(
        BatchSpanProcessor(OTLPSpanExporter(f"{url.rstrip('/')}/v1/traces", timeout=SEND_TIMEOUT_S))
    )
    return TraceExport(provider)
