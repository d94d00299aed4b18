"""Plans how a set of changes is applied, by hashes.

Does not own: the disk (adapters.drafts).
A file that is as the set leaves it is done. One that is as the command found it is replaced. Anything else is a
conflict, and then nothing of the set is applied. So a plan that was interrupted is made again, and goes on.
"""

from collections.abc import Callable, Sequence
from functools import cache

import msgspec

from palyra.core.drafts.changes import is_folder
from palyra.core.events.draft import ChangeKind, FileChange


class FileState(msgspec.Struct, frozen=True, kw_only=True):
    """What lies at a path now. `sha256` is None if nothing does, and empty for a folder."""

    sha256: str | None = None
    mode: int = 0


ABSENT = FileState()
FOLDER_SHA256 = ""


class ApplyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`steps` are in the order in which they are carried out. A plan with a conflict has none."""

    steps: tuple[FileChange, ...] = ()
    done_count: int = 0
    conflict: FileChange | None = None


def plan_apply(changes: Sequence[FileChange], look: Callable[[FileChange], FileState]) -> ApplyPlan:
    """Compares each change with what lies there now."""
    steps: list[FileChange] = []
    done_count = 0
    others = _counterparts(changes)
    look = look_behind(changes, look)
    for change in changes:
        now = look(change)
        other = others.get((change.root, change.path))
        if _is_done(change, now) or (other is not None and _is_done(other, now) and change.kind is ChangeKind.DELETED):
            done_count += 1
        elif _is_untouched(change, now) or (other is not None and _is_untouched(other, now)):
            steps.append(change)
        else:
            return ApplyPlan(conflict=change)
    return ApplyPlan(steps=in_step_order(steps), done_count=done_count)


def look_behind(
    changes: Sequence[FileChange], look: Callable[[FileChange], FileState]
) -> Callable[[FileChange], FileState]:
    """Returns `look`, but what lies behind a file or a link of this very set is absent.

    Such a file becomes a folder, or was one. Its own change is compared with what lies there, so nothing else has to be.
    """
    named = {(change.root, change.path): change for change in changes}
    is_in_the_way = cache(lambda root, path: look(named[root, path]).sha256 not in (None, FOLDER_SHA256))

    def look_there(change: FileChange) -> FileState:
        parts = change.path.rstrip("/").split("/")
        above = ("/".join(parts[:count]) for count in range(1, len(parts)))
        is_behind = any((change.root, path) in named and is_in_the_way(change.root, path) for path in above)
        return ABSENT if is_behind else look(change)

    return look_there


def in_step_order(steps: Sequence[FileChange]) -> tuple[FileChange, ...]:
    """Deletes first, the deepest first, then creates from the top down."""
    deleted = [step for step in steps if step.kind is ChangeKind.DELETED]
    others = [step for step in steps if step.kind is not ChangeKind.DELETED]
    return (*sorted(deleted, key=lambda step: step.path, reverse=True), *sorted(others, key=lambda step: step.path))


def is_applied(change: FileChange, now: FileState) -> bool:
    """Tells whether a step has to be taken back. A step that was not taken may count too: taking it back does nothing."""
    if change.kind is ChangeKind.DELETED:
        return now.sha256 != (FOLDER_SHA256 if is_folder(change) else change.before_sha256)
    if is_folder(change):
        return now.sha256 == FOLDER_SHA256
    if change.kind is ChangeKind.MODE:
        return now.mode == change.mode
    return now.sha256 == change.after_sha256 and now.sha256 != change.before_sha256


def is_left_applied(change: FileChange, now: FileState) -> bool:
    """Tells whether a step was taken, and is not taken back."""
    return now.sha256 is None if change.kind is ChangeKind.DELETED else is_applied(change, now)


def reverse(change: FileChange) -> FileChange:
    """Returns the change that takes this one back."""
    kinds = {ChangeKind.CREATED: ChangeKind.DELETED, ChangeKind.DELETED: ChangeKind.CREATED}
    kind = kinds.get(change.kind, change.kind)
    if change.kind is ChangeKind.LINKED:
        kind = ChangeKind.DELETED if change.before_sha256 is None else ChangeKind.MODIFIED
    return FileChange(
        root=change.root,
        path=change.path,
        kind=kind,
        before_sha256=change.after_sha256,
        after_sha256=change.before_sha256,
        mode=change.before_mode,
        before_mode=change.mode,
    )


def join(changes: Sequence[FileChange]) -> tuple[FileChange, ...]:
    """Joins the changes of several calls, oldest first, to one change a path: from the first `before` to the last
    `after`. What came back to where it was is left out."""
    joined: dict[tuple[str, str], FileChange] = {}
    for change in changes:
        key = (change.root, change.path)
        first = joined.get(key)
        joined[key] = change if first is None else _joined(first, change)
    return tuple(change for change in joined.values() if not _is_nothing(change))


def _joined(first: FileChange, last: FileChange) -> FileChange:
    was_there = first.kind is not ChangeKind.CREATED and not (
        first.kind is ChangeKind.LINKED and first.before_sha256 is None
    )
    is_there = last.kind is not ChangeKind.DELETED
    kind = last.kind
    if was_there and is_there and last.kind in (ChangeKind.CREATED, ChangeKind.MODE):
        kind = ChangeKind.MODIFIED if first.before_sha256 != last.after_sha256 else ChangeKind.MODE
    if not was_there and is_there and last.kind is not ChangeKind.LINKED:
        kind = ChangeKind.CREATED
    return FileChange(
        root=last.root,
        path=last.path,
        kind=kind,
        before_sha256=first.before_sha256,
        after_sha256=last.after_sha256,
        mode=last.mode,
        before_mode=first.before_mode,
        bytes=last.bytes,
    )


def _is_nothing(change: FileChange) -> bool:
    is_gone = change.kind is ChangeKind.DELETED and change.before_sha256 is None and not is_folder(change)
    is_same = change.before_sha256 == change.after_sha256 and change.mode == change.before_mode
    return is_gone or (is_same and change.kind in (ChangeKind.MODIFIED, ChangeKind.MODE))


def _counterparts(changes: Sequence[FileChange]) -> dict[tuple[str, str], FileChange]:
    """Pairs a file that became a folder, or a folder that became a file, with its other half."""
    named = {(change.root, change.path): change for change in changes}
    pairs = {}
    for (root, path), change in named.items():
        other = named.get((root, path[:-1] if path.endswith("/") else f"{path}/"))
        if other is not None and ChangeKind.DELETED in (change.kind, other.kind):
            pairs[root, path] = other
    return pairs


def _is_done(change: FileChange, now: FileState) -> bool:
    if change.kind is ChangeKind.DELETED:
        return now.sha256 is None
    if is_folder(change):
        return now.sha256 == FOLDER_SHA256 and (change.kind is ChangeKind.CREATED or now.mode == change.mode)
    return now.sha256 == change.after_sha256 and (now.mode == change.mode or change.kind is ChangeKind.LINKED)


def _is_untouched(change: FileChange, now: FileState) -> bool:
    if is_folder(change):
        return now.sha256 == (None if change.kind is ChangeKind.CREATED else FOLDER_SHA256)
    if change.kind in (ChangeKind.MODIFIED, ChangeKind.MODE) and now.sha256 == change.after_sha256:
        return True  # Only the permissions are still to be set: a kill came between.
    return now.sha256 == change.before_sha256
