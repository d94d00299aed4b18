"""A worker of the campaign of texts: runs each in a draft, tells what it changed, waits for a word, and applies it.

Owns: one process that is a daemon's user, root or an ordinary one. Does not own: which texts, and judging what came of
them (text_campaign). Each line of its input is an order or the word to go on; each line of its output is what came.
Usage: python text_worker.py self|nobody
"""

import asyncio
import concurrent.futures
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from palyra.adapters.drafts.store import FileDrafts
from palyra.adapters.runtimes.shell.run import ShellRun
from palyra.core.drafts.changes import ChangeSet
from palyra.core.tools import ToolResult
from palyra.ports.drafts import AppliedDraft
from palyra.ports.tools import ToolCallContext
from tests.runtimes.as_user import give_bubblewrap, give_up_rights
from tests.runtimes.shells import Attempt, House, found_sandbox, make_context, make_setup


class Ran(msgspec.Struct, frozen=True):
    """What a text came to before anybody said yes."""

    attempt: Attempt
    changes: tuple[tuple[str, str], ...] = ()  # Paths and kinds, as a card lists them.


class Settled(msgspec.Struct, frozen=True):
    """What applying its changes came to: empty if all is well."""

    fault: str = ""


def main() -> None:
    with ExitStack() as opened:
        if sys.argv[1] == "nobody":
            give_bubblewrap(opened.enter_context(TemporaryDirectory(prefix="palyra-nobody-", dir="/var/tmp")))
            give_up_rights()
        concurrent.futures.ThreadPoolExecutor  # noqa: B018 it is loaded at its first use
        for line in sys.stdin:
            order = json.loads(line)
            asyncio.run(_serve(House(Path(order["base"])), order["command"], order["timeout_s"]))


async def _serve(house: House, command: str, timeout_s: float) -> None:
    drafts = FileDrafts(house.home / "drafts")
    setup, context = make_setup(hidden=house.home, drafts=drafts), make_context(house.workspace)
    result = await ShellRun(found_sandbox(), setup).execute({"command": command, "timeout_s": timeout_s}, context)
    found = result.draft.change_set if result.draft is not None else ChangeSet()
    _say(Ran(Attempt.of(result), tuple((change.path, change.kind.value) for change in found.changes)))
    sys.stdin.readline()  # By now the campaign has looked at what lies there.
    _say(Settled(await _apply(drafts, context, result)))
    await drafts.forget(context.effect_id)
    await drafts.trash.close()


async def _apply(drafts: FileDrafts, context: ToolCallContext, result: ToolResult) -> str:
    if result.draft is None:
        return ""
    applied = await drafts.apply(context.effect_id, result.draft.change_set.changes)
    return "" if isinstance(applied, AppliedDraft) else str(applied)


def _say(told: Ran | Settled) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
