"""Plays the corpus of harmless work. Owns: running it through a real engine in real drafts, and counting what asks.

    python -m tests.corpora.harmless_play

Ends with 1 if more of the commands ask than may, or if one fails that is harmless.
"""

import asyncio
import logging
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec
import structlog

from palyra.adapters.providers.scripted import Script
from palyra.adapters.runtimes.shell.run import ShellRun
from palyra.core.events.draft import DraftJudged
from palyra.core.events.tool import Outcome, ToolFinished, ToolJudged, Verdict
from palyra.core.trust import Trust
from tests.corpora.harmless_commands import all_commands, make_workspace
from tests.runtimes.shells import found_sandbox, make_setup
from tests.support.asking import ask, calls, finished, says
from tests.support.engines import OWNER, Workshop

BATCH = 20
ASKING_SHARE_MAX = 0.02


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """What came of the commands: those that would have asked, and those that failed, each with the reason."""

    count: int
    asking: tuple[str, ...]
    failed: tuple[str, ...]

    @property
    def share(self) -> float:
        return len(self.asking) / self.count


async def play(folder: Path, commands: Sequence[str], trust: Trust) -> Played:
    """Plays the commands in one session, in which nobody answers. What asks is refused, and counted."""
    batches = list(_batches(commands))
    scripts = [
        Script(when=f"batch {number} ", turns=(*(calls("shell.run", command=each) for each in batch), says("Done.")))
        for number, batch in enumerate(batches)
    ]
    workshop = Workshop(folder, scripts)
    workshop.tools = [*workshop.tools, ShellRun(found_sandbox(), make_setup(drafts=workshop.drafts))]
    make_workspace(workshop.workspace)
    asking: list[str] = []
    failed: list[str] = []
    async with workshop.open() as engine:
        for number, batch in enumerate(batches):
            wish = ask(f"batch {number} ", can_ask=False, trust=trust, session_key="work")
            events = await finished(engine, await engine.runs.start(OWNER, wish))
            done = [event.data for event in events if isinstance(event.data, ToolFinished)]
            failed += [f"{command}: it did not run" for command in batch[len(done) :]]
            for command, each in zip(batch, done, strict=False):
                if each.outcome is Outcome.DENIED:
                    asking.append(f"{command}: {_rules(events, each.call_id)}")
                elif each.outcome is not Outcome.OK:
                    failed.append(f"{command}: {each.error and each.error.message} {(each.output or '')[-300:]}")
    return Played(count=len(commands), asking=tuple(asking), failed=tuple(failed))


def _rules(events: Sequence[object], call_id: str) -> str:
    data = [getattr(event, "data", None) for event in events]
    judged = [each for each in data if isinstance(each, DraftJudged | ToolJudged) and each.call_id == call_id]
    return ", ".join(f"{each.rule}: {each.reason}" for each in judged if each.verdict is not Verdict.ALLOW)


def _batches(commands: Sequence[str]) -> Iterator[list[str]]:
    left = iter(commands)
    while batch := list(islice(left, BATCH)):
        yield batch


def main() -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    is_fine = True
    for trust in (Trust.OPERATOR, Trust.EXTERNAL):
        with tempfile.TemporaryDirectory(prefix="palyra-harmless-") as folder:
            played = asyncio.run(play(Path(folder), all_commands(), trust))
        print(f"{trust.value}: {played.count} commands, {len(played.asking)} ask, {len(played.failed)} fail")
        for line in (*played.asking, *played.failed):
            print(f"  {line}")
        is_fine = is_fine and played.share <= ASKING_SHARE_MAX and not played.failed
    return 0 if is_fine else 1


if __name__ == "__main__":
    sys.exit(main())
