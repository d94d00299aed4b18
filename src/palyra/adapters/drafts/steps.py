"""The single steps of applying a draft: a folder made or taken away, permissions set, something put back.

Owns: doing each so that nothing but what was judged is touched. Does not own: their order, nor which are due (apply).
A step works in an open folder and follows no link. What it takes away is looked at, and goes back if it is something
else.
"""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress

from palyra.adapters.drafts.renames import Place, exchange, rename_new
from palyra.adapters.drafts.stage import exists
from palyra.adapters.drafts.tree import PERMISSIONS, hash_file, look_at
from palyra.adapters.files.archives import FILE_FLAGS
from palyra.core.drafts.changes import is_folder
from palyra.core.events.draft import ChangeKind, FileChange

BESIDE = ".before-draft"  # Ends the name of what could not go back to its own.


class ConflictError(Exception):
    """A file is not what it should be."""

    def __init__(self, change: FileChange) -> None:
        super().__init__(change.path)
        self.change = change


def step_folder(change: FileChange, place: Place, old: Place, known: int | None) -> None:
    """Takes the step of a folder. `known` is the folder in which things were deleted before, if any were."""
    match change.kind:
        case ChangeKind.CREATED:
            os.mkdir(place[1], 0o700, dir_fd=place[0])
        case ChangeKind.DELETED:
            _take_folder_away(change, place, old, known)
        case _:
            return  # Permissions are set once everything else is done.


def bring_back(old: Place, place: Place) -> None:
    """Puts back what was taken away; beside its place if somebody else's stands there now."""
    try:
        rename_new(old, place)
    except FileExistsError:
        rename_new(old, (place[0], f"{place[1]}{BESIDE}"))


def swap_back(change: FileChange, old: Place, place: Place) -> bool:
    """Puts what came out in the place of what was put in. Returns False if somebody saved there: their content stays."""
    if not exchange(old, place):
        is_ours = look_at(*place).sha256 in (None, change.after_sha256)
        if is_ours:
            os.rename(old[1], place[1], src_dir_fd=old[0], dst_dir_fd=place[0])
        return is_ours
    if look_at(*old).sha256 != change.after_sha256:
        exchange(old, place)
        return False
    os.unlink(old[1], dir_fd=old[0])
    return True


def withdraw(change: FileChange, place: Place, back: Place) -> None:
    """Takes a new file out again, unless somebody put another in its place."""
    with suppress(FileNotFoundError):
        os.unlink(back[1], dir_fd=back[0])
    rename_new(place, back)
    if look_at(*back).sha256 != change.after_sha256:
        rename_new(back, place)


def _take_folder_away(change: FileChange, place: Place, old: Place, known: int | None) -> None:
    """Moves an empty folder out, so that it can go back with its owner, its time and all of its permissions."""
    try:
        rename_new(place, old)
    except PermissionError:
        os.rmdir(place[1], dir_fd=place[0])  # Somebody else's folder: it can be removed, but not moved.
        return
    found = os.stat(old[1], dir_fd=old[0], follow_symlinks=False)
    is_same = stat.S_ISDIR(found.st_mode) and (known is None or os.path.samestat(found, os.fstat(known)))
    if not is_same or os.listdir(f"/proc/self/fd/{old[0]}/{old[1]}"):
        rename_new(old, place)
        raise ConflictError(change)


def step_folder_back(change: FileChange, place: Place, old: Place) -> None:
    match change.kind:
        case ChangeKind.CREATED:
            os.rmdir(place[1], dir_fd=place[0])
        case ChangeKind.DELETED if exists(*old):
            bring_back(old, place)
        case ChangeKind.DELETED:
            os.mkdir(place[1], 0o700, dir_fd=place[0])
        case _:
            return  # Permissions are set once everything else is back.


def set_mode(change: FileChange, place: Place, mode: int) -> None:
    """Sets permissions, of what was judged only. A folder keeps its special bits, such as the one that hands its group on."""
    file = os.open(place[1], FILE_FLAGS, dir_fd=place[0])
    try:
        if is_folder(change) != stat.S_ISDIR(os.fstat(file).st_mode):
            raise ConflictError(change)
        if not is_folder(change) and hash_file(file) != change.after_sha256:
            raise ConflictError(change)
        change_mode(file, mode)
    finally:
        os.close(file)


def change_mode(file: int, mode: int) -> None:
    found = os.fstat(file).st_mode
    special = stat.S_IMODE(found) & ~PERMISSIONS if stat.S_ISDIR(found) else 0
    os.fchmod(file, special | (mode & PERMISSIONS))


def parent(change: FileChange) -> tuple[str, str]:
    """Names the folder that holds what changes."""
    return change.root, change.path.rstrip("/").rpartition("/")[0]


def full(change: FileChange) -> str:
    return f"{change.root.rstrip('/')}/{change.path}".rstrip("/")


def name_left(changes: Iterable[FileChange]) -> str:
    """Names what could not be taken back. A model and a person are told of all of it."""
    named = ", ".join(f"{each.kind.value} {full(each)}" for each in changes)
    return f", but these could not be taken back: {named}" if named else ""


def itself(change: FileChange) -> tuple[str, str]:
    """Names the folder that changes."""
    return change.root, change.path.rstrip("/")
