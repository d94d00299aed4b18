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
from pathlib import Path
from tempfile import mkdtemp

import msgspec

from palyra.adapters.runtimes.shell.groups import NoGroups
from palyra.adapters.runtimes.shell.limits import CommandLimits
from palyra.adapters.runtimes.shell.processes import ShellProcesses
from palyra.adapters.runtimes.shell.run import ShellRun, ShellSetup
from palyra.adapters.runtimes.shell.sandbox import Sandbox, find_sandbox
from palyra.adapters.shell import TreeSitterShell
from palyra.core.events.base import JsonObject
from palyra.core.ids import EffectId, Principal, RunId, SessionId, StreamId
from palyra.core.tools import ToolResult
from palyra.ports.tools import ToolCallContext

NOBODY = 65534
SECRET = "the-daemons-own-secret"
USERS = ["self", "nobody"] if os.geteuid() == 0 else ["self"]
DRIVER = Path(__file__).parent / "as_user.py"


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
def open_house(owner: str = "self") -> Iterator[House]:
    """Not below a folder that only its owner may enter, so that another user can be its owner."""
    house = House(Path(mkdtemp(prefix="palyra-house-", dir="/var/tmp")).resolve())
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


def make_setup(limits: CommandLimits | None = None, hidden: Path | None = None) -> ShellSetup:
    return ShellSetup(
        parser=TreeSitterShell(),
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
        effect_id=EffectId("e" * 64),
        principal=Principal("user:alice"),
        agent="main",
        workspace=tuple(str(root) for root in workspace),
        now_ms=1_750_000_000_000,
        emit=emit or (lambda stream, text: None),
    )


async def run(command: str, *workspace: Path, limits: CommandLimits | None = None, **arguments: object) -> ToolResult:
    tool = ShellRun(found_sandbox(), make_setup(limits))
    return await tool.execute({"command": command, **arguments}, make_context(*workspace))


class Attempt(msgspec.Struct, frozen=True):
    """What a command came to, whoever ran it."""

    outcome: str
    code: str | None
    output: str
    sandbox: str = ""
    groups: str = ""  # Of whoever ran it: what they bound, or why there are none.

    @classmethod
    def of(cls, result: ToolResult) -> "Attempt":
        found = found_sandbox().groups
        groups = found.reason if isinstance(found, NoGroups) else found.words
        code = result.error.code if result.error else None
        return cls(result.outcome.value, code, result.output, result.sandbox, groups)


def attempt(user: str, command: str, house: House, limits: CommandLimits | None = None, **arguments: object) -> Attempt:
    """Runs it to its end as one of USERS."""
    wanted = limits or CommandLimits()
    asked: JsonObject = {"command": command, "timeout_s": 20, **arguments}
    if user == "self":
        return perform(asked, house, wanted)
    order = {"arguments": asked, "base": str(house.base), "limits": msgspec.to_builtins(wanted)}
    nobody = _nobody()
    assert nobody.stdin is not None
    assert nobody.stdout is not None
    nobody.stdin.write(json.dumps(order).encode() + b"\n")
    nobody.stdin.flush()
    return msgspec.json.decode(nobody.stdout.readline(), type=Attempt)


def perform(arguments: JsonObject, house: House, limits: CommandLimits) -> Attempt:
    tool = ShellRun(found_sandbox(), make_setup(limits, house.home))
    return Attempt.of(asyncio.run(tool.execute(arguments, make_context(house.workspace))))


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
