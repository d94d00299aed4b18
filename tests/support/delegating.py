"""Engines whose runs delegate: scripts by prompt, and short ways to find children and what came of a call."""

from collections.abc import Sequence
from pathlib import Path

from palyra.adapters.providers.prepared_turns import PreparedCall, Turn
from palyra.adapters.providers.scripted import Script
from palyra.core.events import Event
from palyra.core.events.run import RunAccepted
from palyra.core.events.tool import ToolFinished, ToolJudged
from palyra.core.ids import Principal, RunId
from palyra.core.projections.rows import RunRow
from palyra.engine.api.requests import RunRecord, RunsQuery
from palyra.engine.engine import Engine
from palyra.engine.setup import EngineSettings
from tests.support.asking import ask, finished
from tests.support.engines import OWNER, Workshop
from tests.support.waiting import until


def delegates(*prompts: str, **fields: object) -> Turn:
    """A turn that delegates each of these prompts."""
    return Turn(calls=tuple(PreparedCall("agent.delegate", {"prompt": prompt, **fields}) for prompt in prompts))


def delegating(root: Path, *scripts: tuple[str, Sequence[Turn]], settings: EngineSettings | None = None) -> Workshop:
    """`scripts` are turns by the prompt they answer; the first one that fits plays."""
    made = Workshop(root, [Script(when=when, turns=tuple(turns)) for when, turns in scripts], settings)
    made.has_delegation = True
    return made


async def run(engine: Engine, text: str = "go", **fields: object) -> tuple[RunRecord, list[Event]]:
    record = await engine.runs.start(OWNER, ask(text, **fields))
    events = await finished(engine, record)
    return await engine.runs.get(OWNER, record.id), events


async def children(engine: Engine, run_id: RunId, principal: Principal | None = None) -> list[RunRow]:
    return list(await engine.delegations.runs.children(run_id, principal))


async def child_begun(engine: Engine, run_id: RunId, count: int = 1) -> list[RunRow]:
    async def has_begun() -> bool:
        return len(await children(engine, run_id)) >= count

    await until(has_begun, "the child")
    return await children(engine, run_id)


async def events_of(engine: Engine, row: RunRow) -> list[Event]:
    tape = await engine.sessions.tape(OWNER, row.session_id, 0, 500)
    return [event for event in tape if event.run_id in (None, row.id)]


async def every_run(engine: Engine) -> Sequence[RunRecord]:
    return await engine.runs.list(OWNER, RunsQuery(has_delegated=True))


def results(events: Sequence[Event]) -> list[ToolFinished]:
    return [event.data for event in events if isinstance(event.data, ToolFinished)]


def codes(events: Sequence[Event]) -> list[str | None]:
    return [finish.error.code if finish.error is not None else None for finish in results(events)]


def rules(events: Sequence[Event]) -> list[str]:
    return [event.data.rule for event in events if isinstance(event.data, ToolJudged)]


def accepted(events: Sequence[Event]) -> RunAccepted:
    return next(event.data for event in events if isinstance(event.data, RunAccepted))
