"""Runs `git diff` on a snapshot, so that nothing else runs.

Does not own: the snapshot (repository), which files are shown (changes), how git is started (files.git_settings).
Git gets a private `.git` (repository), and options that start no program.
"""

import asyncio
import contextlib
import os
import resource
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from enum import Enum

import msgspec

from palyra.adapters.files.git_settings import MEMORY_BYTES_MAX, environment, find_git, setting_words
from palyra.adapters.references.repository import Snapshot
from palyra.core.errors import Unavailable

DIFF_S = 10.0

_OPTIONS = (
    "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--ignore-submodules=all", "--submodule=short",
    "--no-relative", "--src-prefix=a/", "--dst-prefix=b/",
)  # fmt: skip


class DiffBase(Enum):
    """What is compared with what: the working tree with the index, or the index with the last commit."""

    INDEX = "index"
    COMMIT = "commit"


class DiffOutput(msgspec.Struct, frozen=True):
    """`has_more` says that git wrote more than was read."""

    body: bytes
    has_more: bool


async def list_changed(snapshot: Snapshot, base: DiffBase, below: str, bytes_max: int) -> DiffOutput:
    """Returns the paths of changed files, each with a NUL behind it, relative to the repository."""
    return await _run(snapshot, (*_words(snapshot, base), "--name-only", "-z", "--", _pathspec(below)), bytes_max)


async def show_changes(snapshot: Snapshot, base: DiffBase, files: list[str], bytes_max: int) -> DiffOutput:
    specs = [_pathspec(file) for file in files]
    return await _run(snapshot, (*_words(snapshot, base), "--patch", "--unified=3", "--", *specs), bytes_max)


def _words(snapshot: Snapshot, base: DiffBase) -> tuple[str, ...]:
    if base is DiffBase.INDEX:
        return ("diff", *_OPTIONS)
    return ("diff", "--cached", *_OPTIONS, *([snapshot.commit] if snapshot.commit is not None else []))


def _pathspec(path: str) -> str:
    """Names exactly this path: no sign in it means anything else."""
    return f":(top,literal){path}" if path else ":(top)"


async def _run(snapshot: Snapshot, arguments: tuple[str, ...], bytes_max: int) -> DiffOutput:
    try:
        child = await asyncio.create_subprocess_exec(
            find_git(),
            "--no-pager",
            *setting_words(),
            *arguments,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=DEVNULL,
            env=_environment(snapshot),
            cwd=f"/proc/self/fd/{snapshot.tree}",
            pass_fds=(snapshot.tree, snapshot.objects),
            start_new_session=True,
        )
    except OSError as cause:
        raise Unavailable("git_failed", f"git cannot be started: {cause.strerror}") from cause
    try:
        _limit(child)
        async with asyncio.timeout(DIFF_S):
            output = await _read(child, bytes_max)
            if not output.has_more and await child.wait() != 0:
                raise Unavailable("git_failed", "git could not compare the files; run git status there to see why")
        return output
    except TimeoutError as cause:
        raise Unavailable("git_timed_out", f"git did not finish within {DIFF_S:g} s") from cause
    finally:
        await _end(child)


async def _read(child: Process, bytes_max: int) -> DiffOutput:
    body = bytearray()
    while child.stdout is not None and (piece := await child.stdout.read(65_536)):
        body += piece
        if len(body) > bytes_max:
            return DiffOutput(bytes(body[:bytes_max]), True)
    return DiffOutput(bytes(body), False)


async def _end(child: Process) -> None:
    """Ends git and whatever it may have started. Nothing outlives the reference."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    await asyncio.shield(_drain(child))


async def _drain(child: Process) -> None:
    """Throws away what is left in the pipe. Until its end was read, asyncio does not tell that the process has ended."""
    while child.stdout is not None and await child.stdout.read(65_536):
        pass
    await child.wait()


def _limit(child: Process) -> None:
    with contextlib.suppress(OSError):
        resource.prlimit(child.pid, resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))


def _environment(snapshot: Snapshot) -> dict[str, str]:
    return environment(str(snapshot.private), f"/proc/self/fd/{snapshot.objects}") | {"GIT_WORK_TREE": "."}
