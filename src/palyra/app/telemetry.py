"""Wiring of telemetry: metrics always, log lines always, traces if a collector is configured.

Owns: which observers a daemon has, and ending them. Does not own: what they measure (adapters.telemetry).
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from palyra import __version__
from palyra.adapters.telemetry.prometheus import PrometheusMeter
from palyra.adapters.telemetry.run_log import RunLog
from palyra.config import Config
from palyra.ports.clock import Clock
from palyra.ports.services import Service, ServiceHealth, ServiceState
from palyra.ports.telemetry import Meter, RunObserver

if TYPE_CHECKING:
    from palyra.adapters.telemetry.export import TraceExport

# Our kinds of providers in the words of the conventions for GenAI.
_PROVIDER_NAMES = {"openai-chat": "openai", "openai-responses": "openai", "anthropic-messages": "anthropic"}


@dataclass(frozen=True, slots=True)
class Telemetry:
    meter: Meter
    observers: tuple[RunObserver, ...]
    services: tuple[Service, ...]


def make_telemetry(config: Config, clock: Clock) -> Telemetry:
    """Invalid if traces are configured and the extra for them is missing."""
    meter = PrometheusMeter(clock.now_ms)
    url = config.telemetry.otlp_url
    if url is None:
        return Telemetry(meter, (RunLog(),), ())
    from palyra.adapters.telemetry.export import open_export
    from palyra.adapters.telemetry.traces import RunTraces

    export = open_export(url, config.telemetry.service_name, __version__, config.telemetry.trace_ratio)
    traces = RunTraces(export.tracer(), _provider_names(config))
    return Telemetry(meter, (RunLog(), traces), (TraceSender(export),))


def _provider_names(config: Config) -> Mapping[str, str]:
    kinds = {provider.name: provider.kind for provider in config.providers}
    return {model.name: _PROVIDER_NAMES.get(kinds.get(model.provider, ""), model.provider) for model in config.models}


class TraceSender:
    """The sending of traces as a service: the engine ends it, so that the last spans leave."""

    name = "traces"
    domain = "process"
    restarts_itself = True

    def __init__(self, export: "TraceExport") -> None:
        self._export = export

    async def start(self) -> None:
        """Does nothing: a thread sends as soon as there is something."""

    async def close(self) -> None:
        await asyncio.to_thread(self._export.close)

    async def health(self) -> ServiceHealth:
        return ServiceHealth(state=ServiceState.OK)

    async def restart(self) -> None:
        """Does nothing: the thread tries again by itself."""
