"""Puts learning together: which part receives which other. Does not own: any behaviour."""

from dataclasses import dataclass

from palyra.engine.api.service_runs import ServiceRuns
from palyra.engine.api.workspace_documents import WorkspaceDocuments
from palyra.engine.compaction.compactor import Compactor
from palyra.engine.composition import EngineParts
from palyra.engine.jobs.reflection import FindingsJob, ReflectionJob, SettleJob
from palyra.engine.learning.applier import CandidateApplier
from palyra.engine.learning.candidate_tape import CandidateTape
from palyra.engine.learning.intake import CandidateIntake
from palyra.engine.learning.notes import NotesWriter
from palyra.engine.learning.reflector import RunReflector
from palyra.engine.learning.run_reader import RunReader
from palyra.engine.setup import EngineSetup
from palyra.ports.memory_writer import MemoryWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningNeeds:
    """Services that learning uses."""

    services: ServiceRuns
    documents: WorkspaceDocuments
    compactor: Compactor
    memory: MemoryWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningParts:
    tape: CandidateTape
    intake: CandidateIntake
    applier: CandidateApplier
    reflection: ReflectionJob
    findings: FindingsJob
    settle: SettleJob


def build_learning(setup: EngineSetup, parts: EngineParts, needs: LearningNeeds) -> LearningParts:
    views, ports, settings = setup.views.learning, setup.ports, setup.settings.learning
    tape = CandidateTape(system=parts.system_tape, clock=setup.clock)
    applier = CandidateApplier(
        memory=needs.memory,
        notes=NotesWriter(documents=needs.documents, views=views),
        skills=ports.skills,
        learned_skills=ports.learned_skills,
        compactor=needs.compactor,
        views=views,
        tape=tape,
    )
    intake = CandidateIntake(
        views=views,
        applier=applier,
        clock=setup.clock,
        clean=lambda text: parts.redactor.text(text).text,
        settings=settings,
    )
    reader = RunReader(
        loader=parts.loader, agents=parts.agents, memory=needs.memory, known_state=parts.loops.known_state
    )
    reflector = RunReflector(services=needs.services, settings=settings, views=views, compactor=needs.compactor)
    return LearningParts(
        tape=tape,
        intake=intake,
        applier=applier,
        reflection=ReflectionJob(reader=reader, reflector=reflector, intake=intake, views=views, tape=tape),
        findings=FindingsJob(reader=reader, intake=intake, tape=tape),
        settle=SettleJob(applier, reader, parts.loops),
    )
