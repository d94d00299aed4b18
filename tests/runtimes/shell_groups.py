"""Control groups for tests. Owns: those of this process, seen from outside, and that none is left after a test."""

import subprocess
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from palyra.adapters.runtimes.shell.groups import ControlGroup, GroupParent, Groups, NoGroups
from palyra.adapters.runtimes.shell.groups_find import find_place, owner_name, possible_branches
from palyra.core.tools import ToolResult
from tests.runtimes.shells import found_sandbox
from tests.support.waiting import until


@pytest.fixture
async def groups() -> AsyncIterator[Groups]:
    """The daemon's. After each test all of them are gone.

    Another sandbox of this process may have left one that the kernel called busy: it is removed with its maker's next
    group, which never comes here.
    """
    found = found_sandbox().groups
    if isinstance(found, NoGroups):
        pytest.skip(f"no control groups can be made here: {found.reason}")
    for folder in own_folders():
        with suppress(OSError):
            folder.rmdir()
    yield found
    await until(lambda: own_folders() == [])
    assert found.count == 0


def branches() -> tuple[GroupParent, ...]:
    return possible_branches(find_place())[0]


def folders_of(owner: str) -> list[Path]:
    return [path for branch in branches() for path in Path(branch.folder).glob(f"{owner}-*")]


def own_folders() -> list[Path]:
    return folders_of(owner_name())


def code_of(result: ToolResult) -> str | None:
    return result.error.code if result.error is not None else None


def start_inside(group: ControlGroup, *words: str) -> subprocess.Popen[bytes]:
    """Starts a program in a group, in the way in which a command's shell enters it."""
    joining = " && ".join(f"echo 0 >&{entry}" for entry in group.entries)
    started = subprocess.Popen(
        ["/usr/bin/bash", "-c", f'{joining} && exec "$@"', "bash", *words], pass_fds=group.entries
    )
    group.shut()
    return started
