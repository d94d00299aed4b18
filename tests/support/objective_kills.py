"""Kills a daemon's engine with SIGKILL around every commit of a run with objectives, and lets the next one finish it.

Run it as its own process: `python -m tests.support.objective_kills FOLDER` (commit_kills).
"""

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

from palyra.core.events.model import UsageRecorded
from palyra.core.events.run import ObjectivesChecked
from palyra.core.run.replay import replay
from palyra.core.service_runs import REVIEW
from palyra.engine.api.requests import RunRequest, RunsQuery
from palyra.ports.provider import Delta, ModelRequest
from tests.support.asking import ask, finished
from tests.support.commit_kills import kill_at_each_point, killing
from tests.support.engines import OWNER, Workshop
from tests.support.reviewing import Author, study_at
from tests.support.waiting import WAIT_S

OBJECTIVES = ("file:a exists", "The answer names its source.")


class Counted(Author):
    """Leaves a line in a file outside the journal for every review that a provider is really asked for."""

    def __init__(self, marks: Path) -> None:
        super().__init__("By the almanac.", reviews=([True],))
        self._marks = marks

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        if request.instructions == REVIEW.instructions:
            with self._marks.open("a") as file:
                file.write("review\n")
        async for delta in super().stream(request):
            yield delta


def _workshop(root: Path) -> Workshop:
    made = study_at(root, Counted(root / "reviews"))
    (made.workspace / "a").touch()
    return made


async def _begin(root: Path, point: int) -> None:
    made = _workshop(root)
    journals = killing(made, point)
    async with made.open() as engine:
        journals[0].is_armed = True
        await finished(engine, await engine.runs.start(OWNER, _request()))


async def _look(root: Path) -> dict[str, object]:
    async with _workshop(root).open() as engine:
        record = await engine.runs.start(OWNER, _request())
        async with asyncio.timeout(WAIT_S):
            events = await finished(engine, record)
        record = await engine.runs.get(OWNER, record.id)
        runs = await engine.runs.list(OWNER, RunsQuery(has_services=True))
        reviews = [run for run in runs if run.agent == REVIEW.agent]
        tape = [event for run in reviews for event in await engine.sessions.tape(OWNER, run.session_id, 0, 500)]
        lines = (root / "reviews").read_text().splitlines()
    charged = [event.data for event in tape if isinstance(event.data, UsageRecorded)]
    return {
        "state": record.state,
        "answer": record.answer,
        "objectives": [each.state for each in record.objectives],
        "checks_count": sum(isinstance(event.data, ObjectivesChecked) for event in events),
        "reviews": [run.state for run in reviews],
        "charges_count": len(charged),
        "asked_count": len(lines),
        "is_replayed": replay([event for event in events if event.run_id == record.id]).difference is None,
    }


def _request() -> RunRequest:
    return ask("go", idempotency_key="one", objectives=OBJECTIVES)


if __name__ == "__main__":
    kill_at_each_point(Path(sys.argv[1]), _begin, _look)
