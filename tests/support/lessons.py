"""A workshop that learns: a model that reflects as a test wants, and short ways to say things and to see what came."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from msgspec.structs import replace

from palyra.core.events.model import Finish
from palyra.core.ids import Principal, RunId, SessionId
from palyra.core.jobs.model import LIVE_STATES
from palyra.core.learning.documents import notes_path
from palyra.core.learning.model import Candidate, CandidateStatus
from palyra.core.learning.settings import LearningRuntimeConfig
from palyra.core.service_runs import REFLECTION
from palyra.engine.engine import Engine
from palyra.engine.setup import EngineSettings
from palyra.ports.jobs import JobFilter
from palyra.ports.learning import CandidateFilter
from palyra.ports.provider import Completed, Delta, ModelRequest, TextDelta
from tests.support.asking import ask, finished
from tests.support.engines import OWNER, Workshop
from tests.support.waiting import until


def notes_of(workshop: Workshop, principal: Principal = OWNER) -> Path:
    """Returns the file with a principal's own notes about the workspace."""
    return workshop.notes / notes_path(principal, str(workshop.workspace))


AT_ONCE = LearningRuntimeConfig(delay_ms=0)


class Pupil:
    """Answers every message with one sentence, and reflects with what a test wants. None makes the reflection fail."""

    def __init__(self, items: Sequence[dict[str, object]] | None = None, summary: str = "") -> None:
        self.items = items
        self.summary = summary
        self.answer = "Certainly."
        self.reflections: list[ModelRequest] = []
        self.hold = asyncio.Event()
        self.hold.set()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        if request.instructions.startswith(REFLECTION.instructions[:40]):
            self.reflections.append(request)
            await self.hold.wait()
            told = "no" if self.items is None else json.dumps({"items": self.items, "summary": self.summary})
            yield TextDelta(told)
        elif "summarise a conversation" in request.instructions:
            yield TextDelta("")
        else:
            yield TextDelta(self.answer)
        yield Completed(Finish.STOP)


def item(
    content: str, quote: str = "", kind: str = "fact", percent: int = 95, seqs: Sequence[int] = ()
) -> dict[str, object]:
    return {"kind": kind, "content": content, "quote": quote, "confidence_percent": percent, "seqs": list(seqs)}


def school_at(folder: Path, provider: Pupil | None = None, **settings: object) -> Workshop:
    learning = replace(AT_ONCE, **settings)
    return Workshop(folder, provider or Pupil(), EngineSettings(learning=learning))


async def say(engine: Engine, text: str, principal: Principal = OWNER, **fields: object) -> tuple[SessionId, RunId]:
    run = await engine.runs.start(principal, ask(text, **{"session_key": "s", **fields}))
    await finished(engine, run, principal)
    return run.session_id, run.id


async def rested(engine: Engine) -> None:
    """Waits until no job of learning is left."""

    async def is_idle() -> bool:
        jobs = await engine.jobs.list(None, JobFilter(limit=500))
        wanted = ("reflection", "compaction_findings", "candidate_settle")
        return not any(job.kind in wanted and job.state in LIVE_STATES for job in jobs)

    await until(is_idle, "the end of the jobs")


async def candidates(
    engine: Engine, principal: Principal = OWNER, status: CandidateStatus | None = None
) -> list[Candidate]:
    return list(await engine.candidates.list(principal, CandidateFilter(status=status, limit=500)))


async def everything(engine: Engine, principal: Principal = OWNER) -> list[Candidate]:
    return [each for status in CandidateStatus for each in await candidates(engine, principal, status)]
