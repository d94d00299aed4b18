"""Puts memory together: which part receives which other. Does not own: any behaviour."""

from palyra.engine.api.memory import MemoryService
from palyra.engine.api.metered_embedder import MeteredEmbedder
from palyra.engine.api.service_runs import ServiceRuns
from palyra.engine.api.sessions import SessionService
from palyra.engine.composition import EngineParts
from palyra.engine.memory.eraser import MemoryEraser
from palyra.engine.memory.item_planner import MemoryPlanner
from palyra.engine.setup import EngineSetup
from palyra.ports.embedder import Embedder, EmbeddingBatches


def build_memory(setup: EngineSetup, parts: EngineParts, sessions: SessionService) -> MemoryService:
    eraser = MemoryEraser(
        journal=setup.journal,
        views=setup.views.memory.upkeep,
        upkeep=setup.ports.upkeep,
        hub=parts.hub,
        loops=parts.loops,
        clock=setup.clock,
    )
    return MemoryService(
        stores=setup.views.memory,
        sessions=sessions,
        agents=parts.agents,
        tape=parts.system_tape,
        eraser=eraser,
        redactor=parts.redactor,
        ids=parts.ids,
        clock=setup.clock,
        wake_jobs=parts.jobs_queued.set,
    )


def build_planner(setup: EngineSetup, parts: EngineParts) -> MemoryPlanner:
    return MemoryPlanner(stores=setup.views.memory, redactor=parts.redactor, ids=parts.ids, clock=setup.clock)


def build_embedder(setup: EngineSetup, services: ServiceRuns) -> Embedder:
    """An embedder that costs something is metered like a model."""
    chosen = setup.ports.embedder
    return MeteredEmbedder(chosen, services) if isinstance(chosen, EmbeddingBatches) else chosen
