"""Shells for tests. Owns: a house with a workspace and secrets around it, and running commands as the test's user or another.

A daemon of root and one of an ordinary user meet different dangers, so where the tests run as root every escape is tried
as both.
"""

import asyncio
import atexit
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import mkdtemp

import msgspec
from msgspec.structs import replace

from palyra.adapters.drafts.store import FileDrafts
from palyra.adapters.drafts.tree import remove_tree
from palyra.adapters.policy.cedar import CedarPolicy
from palyra.adapters.runtimes.shell.groups import NoGroups
from palyra.adapters.runtimes.shell.limits import CommandLimits
from palyra.adapters.runtimes.shell.processes import ShellProcesses
from palyra.adapters.runtimes.shell.run import ShellRun, ShellSetup
from palyra.adapters.runtimes.shell.sandbox import Sandbox, find_sandbox
from palyra.core.drafts.changes import ChangeSet
from palyra.core.drafts.judge import WRITE_SPEC, group_changes
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import Verdict
from palyra.core.ids import EffectId, Principal, RunId, SessionId, StreamId
from palyra.core.tools import ToolResult
from palyra.ports.drafts import AppliedDraft
from palyra.ports.tools import ToolCallContext
from tests.support.policies import TAINT, question

NOBODY = 65534
SECRET = "the-daemons-own-secret"
USERS = ["self", "nobody"] if os.geteuid() == 0 else ["self"]
_EFFECTS = count(1)  # Two drafts of one effect would share a folder.
DRIVER = Path(__file__).parent / "as_user.py"
PATIENCE_S = 60.0  # Far more than a command of a test takes on a busy machine.


class House(msgspec.Struct, frozen=True):
    """A folder that holds a workspace, and beside it what no command may see."""

    base: Path

    @property
    def workspace(self) -> Path:
        return self.base / "workspace"

    @property
    def outside(self) -> Path:
        return self.base / "outside"

    @property
    def home(self) -> Path:
        return self.base / "palyra"


@contextmanager
def open_house(owner: str = "self", parent: str = "/var/tmp") -> Iterator[House]:
    """Not below a folder that only its owner may enter, so that another user can be its owner."""
    house = House(Path(mkdtemp(prefix="palyra-house-", dir=parent)).resolve())
    try:
        for folder in (house.workspace, house.outside, house.home):
            folder.mkdir()
            (folder / "secret.txt").write_text(f"{folder.name}: {SECRET}\n")
        if owner == "nobody":
            for path in [house.base, *house.base.rglob("*")]:
                os.chown(path, NOBODY, NOBODY)
        yield house
    finally:
        shutil.rmtree(house.base)


@cache
def found_sandbox() -> Sandbox:
    sandbox = find_sandbox()
    assert isinstance(sandbox, Sandbox), sandbox
    return sandbox


async def never_tainted(_root: str) -> bool:
    return False


@cache
def drafts_home() -> Path:
    """A folder for drafts that ends with the process. Nobody else can enter it."""
    home = Path(mkdtemp(prefix="palyra-drafts-", dir="/var/tmp"))
    atexit.register(remove_tree, str(home))
    return home


def make_setup(
    limits: CommandLimits | None = None, hidden: Path | None = None, drafts: FileDrafts | None = None
) -> ShellSetup:
    drafts = drafts or FileDrafts(drafts_home())
    return ShellSetup(
        drafts=drafts,
        drafts_home=drafts.home,
        processes=ShellProcesses(redact=lambda text: text.replace(SECRET, "•")),
        taints_workspace=never_tainted,
        hidden=str(hidden) if hidden is not None else None,
        limits=limits or CommandLimits(),
    )


def make_context(
    *workspace: Path, emit: Callable[[str, str], None] | None = None, run: str = "01JZ0000000000000000RUN001"
) -> ToolCallContext:
    return ToolCallContext(
        session_id=SessionId(StreamId("01JZ0000000000000000SESS01")),
        run_id=RunId(run),
        effect_id=EffectId(f"{next(_EFFECTS):064x}"),
        principal=Principal("user:alice"),
        agent="main",
        workspace=tuple(str(root) for root in workspace),
        now_ms=1_750_000_000_000,
        emit=emit or (lambda stream, text: None),
    )


async def run(command: str, *workspace: Path, limits: CommandLimits | None = None, **arguments: object) -> ToolResult:
    """Runs a command, and applies what it changed as if a person had agreed."""
    return await run_applied(make_setup(limits), {"command": command, **arguments}, make_context(*workspace))


async def run_applied(setup: ShellSetup, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
    result = await ShellRun(found_sandbox(), setup).execute(arguments, context)
    if result.draft is not None:
        assert isinstance(setup.drafts, FileDrafts)
        applied = await setup.drafts.apply(context.effect_id, result.draft.change_set.changes)
        assert isinstance(applied, AppliedDraft), applied
        await setup.drafts.forget(context.effect_id)
    return result


class Attempt(msgspec.Struct, frozen=True):
    """What a command came to, whoever ran it."""

    outcome: str
    code: str | None
    output: str
    sandbox: str = ""
    changes_count: int = 0
    asking: tuple[str, ...] = ()  # The changes for which the bundled policies want a card.
    asking_if_tainted: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()  # Named, and never applied.
    groups: str = ""  # Of whoever ran it: what they bound, or why there are none.

    @classmethod
    def of(cls, result: ToolResult) -> "Attempt":
        found = found_sandbox().groups
        groups = found.reason if isinstance(found, NoGroups) else found.words
        code = result.error.code if result.error else None
        found_set = result.draft.change_set if result.draft is not None else ChangeSet()
        return cls(
            outcome=result.outcome.value,
            code=code,
            output=result.output,
            sandbox=result.sandbox,
            changes_count=len(found_set.changes),
            asking=asking(found_set),
            asking_if_tainted=asking(found_set, TAINT),
            left_out=tuple(each.path for each in found_set.left_out),
            groups=groups,
        )


def asking(change_set: ChangeSet, taint: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Returns the paths that the bundled policies ask about, judged as the engine judges them."""
    linked = {(each.root, each.path): each.names for each in change_set.linked}
    writes = question(WRITE_SPEC.capabilities, WRITE_SPEC.effect_class, taint=taint)
    found: list[str] = []
    for group in group_changes(change_set.changes):
        nature = group.nature(group.changes[0].root, linked)
        if _policy().judge(replace(writes, nature=nature)).verdict is not Verdict.ALLOW:
            found += nature.paths
    return tuple(found)


@cache
def _policy() -> CedarPolicy:
    return CedarPolicy()


def attempt(user: str, command: str, house: House, limits: CommandLimits | None = None, **arguments: object) -> Attempt:
    """Runs it to its end as one of USERS, and applies what it changed."""
    asked: JsonObject = {"command": command, "timeout_s": PATIENCE_S, **arguments}
    return _ordered(user, Trial(asked, house, limits or CommandLimits()))


def drafted(user: str, command: str, house: House) -> Attempt:
    """Runs it to its end as one of USERS, and drops what it changed."""
    asked: JsonObject = {"command": command, "timeout_s": PATIENCE_S}
    return _ordered(user, Trial(asked, house, CommandLimits(), is_applied=False))


class Trial(msgspec.Struct, frozen=True):
    """What is to run, where, and whether its changes are applied."""

    arguments: JsonObject
    house: House
    limits: CommandLimits
    is_applied: bool = True


def _ordered(user: str, trial: Trial) -> Attempt:
    if user == "self":
        return perform(trial)
    order = {
        "arguments": trial.arguments,
        "base": str(trial.house.base),
        "limits": msgspec.to_builtins(trial.limits),
        "is_applied": trial.is_applied,
    }
    nobody = _nobody()
    assert nobody.stdin is not None
    assert nobody.stdout is not None
    nobody.stdin.write(json.dumps(order).encode() + b"\n")
    nobody.stdin.flush()
    return msgspec.json.decode(nobody.stdout.readline(), type=Attempt)


def perform(trial: Trial) -> Attempt:
    return Attempt.of(asyncio.run(_perform(trial)))


async def _perform(trial: Trial) -> ToolResult:
    setup, context = make_setup(trial.limits, trial.house.home), make_context(trial.house.workspace)
    if trial.is_applied:
        return await run_applied(setup, trial.arguments, context)
    result = await ShellRun(found_sandbox(), setup).execute(trial.arguments, context)
    await setup.drafts.drop(context.effect_id)
    return result


@cache
def _nobody() -> subprocess.Popen[bytes]:
    """A process that loads what it needs while it may read this interpreter's files, and then gives up its rights."""
    package = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{package}:{package / 'src'}", "PALYRA_TEST_SECRET": SECRET}
    process = subprocess.Popen(
        [sys.executable, str(DRIVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd="/"
    )
    atexit.register(_end, process)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.communicate()
