"""Puts the watchdog together. Owns: which part receives which other. Does not own: any behaviour."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from palyra.core.events import Draft
from palyra.engine.composition import EngineParts
from palyra.engine.healing.incident_log import IncidentLog
from palyra.engine.healing.probes import Probes
from palyra.engine.healing.remedies import Remedies
from palyra.engine.healing.watchdog import Watchdog
from palyra.engine.jobs.worker import JobWorker
from palyra.engine.session.event_redactor import EventRedactor
from palyra.engine.setup import EngineSetup
from palyra.ports.services import Service


def build_watchdog(
    setup: EngineSetup,
    parts: EngineParts,
    worker: JobWorker,
    sweep: Callable[[], Awaitable[int]],
    connections: tuple[Service, ...] = (),
) -> Watchdog:
    redactor = EventRedactor(parts.redactor, setup.ports.sealer)

    def clean(draft: Draft) -> Draft:
        return redactor.clean(draft)[0]

    healing = replace(setup.healing, services=(*setup.healing.services, *connections))
    probes = Probes(
        views=setup.views,
        router=setup.ports.router,
        catalog=setup.ports.catalog,
        worker=worker,
        running_states=parts.loops.running_states,
        policy_state=setup.policy_state,
        healing=healing,
    )
    return Watchdog(
        clock=setup.clock,
        tasks=parts.tasks,
        views=setup.views.incidents,
        record=IncidentLog(system=parts.system_tape, clock=setup.clock, ids=parts.ids, clean=clean),
        probes=probes.table(),
        remedies=Remedies(
            views=setup.views, loops=parts.loops, worker=worker, router=setup.ports.router, sweep=sweep, healing=healing
        ),
        modes=setup.healing.modes,
        machine=setup.healing.machine,
    )
