"""Reads changes of a repository for references: which files differ, and how.

Does not own: running git (git_program), nor whose files may be shown (the scope of the reference).
Invariant: a file that holds keys, or that a policy refuses, is named to git in no diff.
"""

import asyncio
import os
from contextlib import AbstractContextManager, ExitStack

import msgspec

from palyra.adapters.files.workspace import WorkspacePath, locate, locate_folder
from palyra.adapters.references.files import refuse_secret
from palyra.adapters.references.git_program import DiffBase, list_changed, show_changes
from palyra.adapters.references.repository import Snapshot, open_snapshot
from palyra.core.errors import PalyraError
from palyra.core.sensitive_files import is_secret
from palyra.ports.references import ReadScope, ReferenceText, TextPart

FILES_MAX = 100
PROGRAMS_MAX = 4  # Each may use a whole core. Further references wait, within their own limit.
NAMES_BYTES_MAX = 1024 * 1024
_BYTES_A_CHAR = 4
_CLIMBING = frozenset({"", ".", ".."})


class GitChanges:
    def __init__(self) -> None:
        self._programs = asyncio.Semaphore(PROGRAMS_MAX)

    async def read_changes(self, path: str, scope: ReadScope) -> ReferenceText:
        return await self._read(path, scope, DiffBase.INDEX)

    async def read_staged(self, path: str, scope: ReadScope) -> ReferenceText:
        return await self._read(path, scope, DiffBase.COMMIT)

    async def _read(self, path: str, scope: ReadScope, base: DiffBase) -> ReferenceText:
        place = locate_folder(path, scope.workspace)
        refuse_secret(place)
        async with self._programs:
            return await self._compare(place, scope, base)

    async def _compare(self, place: WorkspacePath, scope: ReadScope, base: DiffBase) -> ReferenceText:
        with ExitStack() as opened:
            # Entering makes a copy of the index, which takes a moment for a large repository.
            snapshot = await _entered(opened, open_snapshot(place))
            below = "/".join(place.parts[len(snapshot.below) :])
            listed = await list_changed(snapshot, base, below, NAMES_BYTES_MAX)
            chosen = _choose(listed.body, snapshot, scope)
            if not chosen.files:
                return ReferenceText(parts=(TextPart(text=_nothing(chosen)),))
            shown = await show_changes(snapshot, base, chosen.files, scope.chars_max * _BYTES_A_CHAR)
        text = shown.body.decode("utf-8", "replace")
        note = [TextPart(text=_left_out(chosen))] if chosen.left_out_count or chosen.has_more or listed.has_more else []
        has_more = shown.has_more or len(text) > scope.chars_max
        part = TextPart(text=text[: scope.chars_max], has_more=has_more)
        return ReferenceText(parts=(*note, part), named=_named(chosen.files, snapshot))


async def _entered(opened: ExitStack, snapshot: AbstractContextManager[Snapshot]) -> Snapshot:
    """Enters in a thread. A cancelled caller waits for the thread, so that nothing stays open or on the disk."""
    future = asyncio.ensure_future(asyncio.to_thread(opened.enter_context, snapshot))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait({future})
        raise


class _ChosenFiles(msgspec.Struct, frozen=True):
    files: list[str]
    left_out_count: int
    has_more: bool


def _choose(listed: bytes, snapshot: Snapshot, scope: ReadScope) -> _ChosenFiles:
    files: list[str] = []
    refused: list[str] = []
    names = [name for name in listed.split(b"\x00") if name]
    for name in names[:FILES_MAX]:
        file = name.decode("utf-8", "surrogateescape")
        (files if _is_shown(file, snapshot, scope) else refused).append(file)
    # Where a file took a folder's place, its path also names everything that was in the folder.
    clear = [file for file in files if not any(each.startswith(f"{file}/") for each in refused)]
    return _ChosenFiles(clear, len(refused) + len(files) - len(clear), len(names) > FILES_MAX)


def _is_shown(file: str, snapshot: Snapshot, scope: ReadScope) -> bool:
    # No path of an honest index climbs. A forged one could otherwise name any file of the machine.
    if is_secret("/".join((*snapshot.below, file))) or any(part in _CLIMBING for part in file.split("/")):
        return False
    try:
        place = locate("/".join((snapshot.root.rstrip("/"), *snapshot.below, file)), scope.workspace)
    except PalyraError:
        return False
    return scope.may_read(place.shown)


def _nothing(chosen: _ChosenFiles) -> str:
    return _left_out(chosen) if chosen.left_out_count else "[Nothing is changed there.]"


def _left_out(chosen: _ChosenFiles) -> str:
    notes = []
    if chosen.left_out_count:
        notes.append(f"[{chosen.left_out_count} changed files are left out: they hold keys, or a policy refuses them.]")
    if chosen.has_more:
        notes.append(f"[More than {FILES_MAX} files are changed; only the first of them are shown.]")
    return "\n".join(notes)


def _named(files: list[str], snapshot: Snapshot) -> tuple[str, ...]:
    """Names git's own folder too: a diff shows what lies there, under the name of a file that may never have held it."""
    base = "/".join((os.path.realpath(snapshot.root).rstrip("/"), *snapshot.below))
    return (*(f"{base}/{file}" for file in files), f"{base}/.git/")
