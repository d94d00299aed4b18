"""A newcomer's first hour: how often a person is asked, and for what."""

from pathlib import Path

import pytest

from palyra.adapters.providers.demo import DemoProvider
from palyra.adapters.providers.prepared_turns import PreparedCall, Turn
from palyra.adapters.providers.scripted import Script
from palyra.adapters.runtimes.shell.run import ShellRun
from palyra.core.events import Event
from palyra.core.events.tool import (
    ApprovalRequested,
    Decision,
    Outcome,
    Scope,
    ToolFinished,
)
from palyra.engine.api.requests import ApprovalAnswer, ApprovalsQuery, RunRecord
from palyra.engine.engine import Engine
from tests.runtimes.shells import found_sandbox, make_setup
from tests.support.asking import ask
from tests.support.engines import OWNER, Workshop

pytestmark = pytest.mark.anyio
PROMPTS_MAX = 3
CHECK = "python3 check.py"


def does(tool: str, **arguments: object) -> Turn:
    return Turn(calls=(PreparedCall(tool, dict(arguments)),))


MEND_IT = (
    does("shell.run", command="ls -la && grep -n add *.py"),
    does("fs.read", path="adding.py"),
    does("shell.run", command=CHECK),
    does("fs.write", path="adding.py", content="def add(a, b):\n    return a + b + 0\n"),
    does("shell.run", command=CHECK),
    does("shell.run", command="cat adding.py | wc -l"),
    Turn(text="The sum is right now, and the check passes."),
)


async def followed(engine: Engine, record: RunRecord) -> tuple[list[Event], list[str]]:
    """The run's events, with every card answered yes for the session, as a newcomer would; and what each card was about."""
    cards: list[str] = []
    events: list[Event] = []
    async for frame in await engine.runs.follow(OWNER, record.id, None):
        if not isinstance(frame, Event):
            continue
        events.append(frame)
        if isinstance(frame.data, ApprovalRequested):
            (card,) = [
                each for each in await engine.approvals.list(OWNER, ApprovalsQuery()) if each.status == "pending"
            ]
            cards.append(f"{card.tool} by {card.rule}")
            await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW, scope=Scope.SESSION))
    return events, cards


async def test_the_tour_and_a_small_repair_ask_no_more_than_three_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tour = Workshop(tmp_path / "tour", DemoProvider())
    async with tour.open() as engine:
        _, toured = await followed(engine, await engine.runs.start(OWNER, ask("tour")))
    repair = Workshop(tmp_path / "repair", [Script(turns=MEND_IT)])
    (repair.workspace / "adding.py").write_text("def add(a, b):\n    return a - b\n")
    (repair.workspace / "check.py").write_text(
        "from adding import add\nassert add(2, 3) == 5, 'the sum is wrong'\nprint('ok')\n"
    )
    repair.tools = [*repair.tools, ShellRun(found_sandbox(), make_setup(drafts=repair.drafts))]
    async with repair.open() as engine:
        record = await engine.runs.start(OWNER, ask("Mend the sum."))
        events, repaired = await followed(engine, record)
        assert (await engine.runs.get(OWNER, record.id)).state == "done"
    with capsys.disabled():
        print(f"\nfirst hour: {len(toured) + len(repaired)} prompts: {'; '.join([*toured, *repaired])}")
    outcomes = [event.data.outcome for event in events if isinstance(event.data, ToolFinished)]
    assert outcomes == [Outcome.OK, Outcome.OK, Outcome.FAILED, Outcome.OK, Outcome.OK, Outcome.OK]
    assert (repaired, len(toured)) == ([], 1)
    assert len(toured) + len(repaired) <= PROMPTS_MAX
