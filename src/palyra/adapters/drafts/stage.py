"""Stages the new content of one file: linked from the draft where it can be, else copied.

Owns: the file beside the workspace that an exchange or a rename puts in place, what came out, the list of the steps.
Does not own: when, and which (apply).
Invariant: a staged file has the permissions that were judged and the attributes it is given, and none of the draft.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from palyra.adapters.drafts.attributes import CAPABILITY, Attributes, kept_attributes, read_attributes, set_attributes
from palyra.adapters.drafts.renames import Place
from palyra.adapters.drafts.tree import PERMISSIONS, STRANGE_SHA256, look_at
from palyra.adapters.files.archives import FILE_FLAGS, ArchiveWriter
from palyra.core.drafts.changes import is_folder
from palyra.core.errors import Corrupt
from palyra.core.events.draft import ChangeKind, FileChange

STEPS_NAME = "steps"
OLD_PREFIX = "old-"  # Begins the name of what came out of the workspace.


def stage_change(change: FileChange, source: str, place: Place, attributes: Callable[[FileChange], Attributes]) -> None:
    """Stages the content of one change, and requires that it is what was judged."""
    staged = look_at(*place).sha256
    if staged is not None and staged == change.before_sha256:
        return  # It came out of the workspace before a kill.
    if change.kind is not ChangeKind.LINKED and not os.path.islink(source):
        stage_file(source, place, change.mode & PERMISSIONS, attributes(change))
    elif staged is None:
        os.symlink(os.readlink(source), place[1], dir_fd=place[0])
    if look_at(*place).sha256 != change.after_sha256:
        message = f"the sealed content of {change.path} is not what was judged; nothing of it was applied"
        raise Corrupt("draft_damaged", message)


def keep_out(writer: ArchiveWriter, change: FileChange, stage: int, names: tuple[str, str]) -> bool:
    """Adds what came out to an archive: from its old name, or from its new one. Returns False if it changed since."""
    has_content = change.before_sha256 not in (None, STRANGE_SHA256)
    if not has_content or change.kind is ChangeKind.MODE or is_folder(change):
        return True
    there = [name for name in names if exists(stage, name)]
    kept = [name for name in there if look_at(stage, name).sha256 == change.before_sha256]
    if kept:
        writer.add(change.root, change.path, stage, kept[0])
    return bool(kept) or names[0] not in there


def stage_file(source: str, place: Place, mode: int, wanted: Attributes) -> None:
    """Stages a file, or finishes what a kill interrupted: its attributes and its permissions are set last."""
    stage, name = place
    if not exists(stage, name):
        _bring(source, place, wanted)
    file = os.open(name, FILE_FLAGS, dir_fd=stage)
    try:
        os.fchmod(file, 0o600)  # Nobody but root changes attributes of a file that cannot be written.
        set_attributes(file, wanted)
        os.fchmod(file, mode)
    finally:
        os.close(file)


def note_steps(stages: Mapping[str, int], names: Iterable[str]) -> None:
    """Names the steps that are going to be taken, durably, before the first one. After a kill the list only grows.

    The list lies in the stage of the first root.
    """
    stage, noted = next(iter(stages.values())), noted_steps(stages)
    wanted = noted.union(names)
    if wanted == noted and exists(stage, STEPS_NAME):
        return
    partial = f"partial-{STEPS_NAME}"
    file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=stage)
    with open(file, "w") as writer:
        writer.write("\n".join(sorted(wanted)))
        writer.flush()
        os.fsync(file)
    os.rename(partial, STEPS_NAME, src_dir_fd=stage, dst_dir_fd=stage)
    os.fsync(stage)


def noted_steps(stages: Mapping[str, int]) -> frozenset[str]:
    try:
        file = os.open(STEPS_NAME, FILE_FLAGS, dir_fd=next(iter(stages.values())))
    except FileNotFoundError:
        return frozenset()
    with open(file) as reader:
        return frozenset(reader.read().splitlines())


def exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _bring(source: str, place: Place, wanted: Attributes) -> None:
    stage, name = place
    if not _needs_copy(source, wanted):
        try:
            os.link(source, name, dst_dir_fd=stage, follow_symlinks=False)
        except OSError:
            pass
        else:
            return
    _copy(source, stage, name)


def _needs_copy(source: str, wanted: Attributes) -> bool:
    """Tells whether a link would not do: a file of several names has its attributes once, and capabilities cling."""
    found = read_attributes(source)
    is_shared = os.stat(source, follow_symlinks=False).st_nlink > 1
    return CAPABILITY in found or (is_shared and kept_attributes(found) != wanted)


def _copy(source: str, stage: int, name: str) -> None:
    """Copies durably, with the time of the last change. A copy that fails leaves nothing behind."""
    partial = f"partial-{name}"
    with suppress(FileNotFoundError):
        os.unlink(partial, dir_fd=stage)
    with open(os.open(source, FILE_FLAGS), "rb") as reader:
        target = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=stage)
        try:
            with open(target, "wb") as writer:
                shutil.copyfileobj(reader, writer, 1 << 20)
                writer.flush()
                found = os.fstat(reader.fileno())
                os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))
                os.fsync(target)
        except OSError:
            os.unlink(partial, dir_fd=stage)
            raise
    os.rename(partial, name, src_dir_fd=stage, dst_dir_fd=stage)
