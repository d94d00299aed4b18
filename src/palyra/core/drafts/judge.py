"""Rules for judging a set of changes: which paths are asked about together, and sets that ask as a whole.

Does not own: the policy's answer for a path (ports.policy), the order of the checks (engine.session.draft_gate).
"""

import posixpath
from collections.abc import Collection, Mapping, Sequence

import msgspec

from palyra.core.drafts.changes import ChangeSet, Place, is_folder, written_files
from palyra.core.drafts.outside import is_run_outside
from palyra.core.events.draft import ChangeKind, FileChange, FileSet
from palyra.core.events.tool import EffectClass, FileBytes, ParallelClass, Risk
from palyra.core.file_sets import pack_files
from palyra.core.spelling import spell_out
from palyra.core.tools import CallNature, Capability, ToolSpec, Trait
from palyra.core.trust import Trust

DELETED_MAX = 20  # From so many deletions on a person is asked.
SHRUNK_BYTES_MIN = 1024  # A file of this size that keeps at most a tenth of it counts as deleted.
NAMES_SHOWN_MAX = 3  # Of the files of one kind in one folder.
DELETES_MANY = "deletes_many"
TAINTED_BYTES_MAX = 160 * 1024  # Of tainted files in one event, which has a cap. More of them become a set.
LISTED_MAX = 600
ALONE_MAX = 256  # So many paths are judged one by one. A larger set is judged by folders.
TOGETHER_MAX = 256

# Stands for the tool that writes files where the catalog has none.
WRITE_SPEC = ToolSpec(
    name="write_file",
    description="",
    input_schema={},
    capabilities=frozenset({Capability.FS_WRITE}),
    effect_class=EffectClass.IDEMPOTENT,
    parallel_class=ParallelClass.PATH_SCOPED,
    risk=Risk.MEDIUM,
    output_trust=Trust.SYSTEM,
)


class Written(msgspec.Struct, frozen=True):
    """The tainted files that applying a set leaves: a list, or sets instead of a long one."""

    files: tuple[FileBytes, ...] = ()
    sets: tuple[FileSet, ...] = ()


class PathGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Changes that are judged by one question. Their paths lie in one folder."""

    changes: tuple[FileChange, ...]

    def nature(
        self,
        workspace_root: str,
        linked: Mapping[tuple[str, str], tuple[str, ...]] | None = None,
        wide: Collection[Place] = (),
    ) -> CallNature:
        """Returns what the writes would do. Paths below the first root are relative to it, as everywhere."""
        return CallNature(
            effect_class=EffectClass.IDEMPOTENT,
            parallel_class=ParallelClass.PATH_SCOPED,
            paths=tuple(shown_path(change, workspace_root) for change in self.changes),
            makes_executable=any(_is_executable(change) for change in self.changes),
            is_wide_dot_file=any((change.root, change.path) in wide for change in self.changes),
            makes_link=any(change.kind is ChangeKind.LINKED for change in self.changes),
            linked_names=tuple(
                name for change in self.changes for name in (linked or {}).get((change.root, change.path), ())
            ),
        )


def group_changes(changes: Sequence[FileChange]) -> tuple[PathGroup, ...]:
    """Groups the changes for judging. A created folder by itself holds nothing that could be run or obeyed.

    Permissions of a folder let others write there, so they are judged.
    """
    judged = [change for change in changes if not is_folder(change) or change.kind is ChangeKind.MODE]
    judged = judged or list(changes)
    if len(judged) <= ALONE_MAX:
        return tuple(PathGroup(changes=(change,)) for change in judged)
    folders: dict[tuple[str, str, bool], list[FileChange]] = {}
    for change in judged:
        key = (change.root, posixpath.dirname(change.path.rstrip("/")), _is_executable(change))
        folders.setdefault(key, []).append(change)
    return tuple(
        PathGroup(changes=tuple(found[start : start + TOGETHER_MAX]))
        for found in folders.values()
        for start in range(0, len(found), TOGETHER_MAX)
    )


def write_spec(specs: Sequence[ToolSpec]) -> ToolSpec:
    """Returns the tool as whose calls changes are judged, so that policies about it hold for drafts too."""
    return next((spec for spec in specs if Trait.WRITES_FILE in spec.traits), WRITE_SPEC)


def name_written(changes: Sequence[FileChange], taint: tuple[str, ...]) -> Written:
    """Names the files that carry this taint once the changes are applied."""
    files = written_files(changes, taint) if taint else ()
    if len(files) <= LISTED_MAX and len(msgspec.json.encode(files)) <= TAINTED_BYTES_MAX:
        return Written(files)
    return Written(sets=pack_files(files, TAINTED_BYTES_MAX))


def split(group: PathGroup) -> tuple[PathGroup, ...]:
    return tuple(PathGroup(changes=(change,)) for change in group.changes)


def deletes_many(change_set: ChangeSet) -> bool:
    """Tells whether many files are deleted, or several that are all of a root and are nowhere else now."""
    deleted = deleted_files(change_set)
    left = {change.after_sha256 for change in change_set.changes if change.after_sha256 is not None}
    is_lost = any(change.before_sha256 not in left for change in deleted)
    is_many = len(deleted) + change_set.git.lost_count >= DELETED_MAX
    return is_many or (len(deleted) > 1 and is_lost and bool(change_set.emptied_roots))


def deleted_files(change_set: ChangeSet) -> tuple[FileChange, ...]:
    """Returns the files whose content goes: deleted ones, emptied ones, and those that keep at most a tenth.

    What a file of git's objects held may be in another one: lost objects count instead.
    """
    stores = change_set.git.stores
    return tuple(
        change
        for change in change_set.changes
        if not is_folder(change)
        and _is_lost(change)
        and not any(change.root == root and change.path.startswith(store) for root, store in stores)
    )


def is_emptied(before_bytes: int, after_bytes: int) -> bool:
    """Tells whether a file lost its content, or all but a tenth of it."""
    is_shrunk = before_bytes >= SHRUNK_BYTES_MIN and after_bytes * 10 <= before_bytes
    return before_bytes > 0 and (after_bytes == 0 or is_shrunk)


def order_asking(changes: Sequence[FileChange]) -> tuple[FileChange, ...]:
    """Returns the changes as a card shows them: the most dangerous kinds first, and few of a kind before many.

    So nothing hides behind a crowd of others, whatever their names are.
    """
    return tuple(change for found in _groups(changes) for change in found)


def name_asking(changes: Sequence[FileChange], first_root: str) -> tuple[str, ...]:
    """Names all of the changes by kind and folder, with counts, in the order of the card."""
    return tuple(_named(found, first_root) for found in _groups(changes))


def _groups(changes: Sequence[FileChange]) -> list[list[FileChange]]:
    groups: dict[tuple[int, str, str], list[FileChange]] = {}
    for change in changes:
        folder = posixpath.dirname(change.path.rstrip("/"))
        # A deleted tree is one thing, however many folders it had.
        folder = folder.partition("/")[0] if change.kind is ChangeKind.DELETED else folder
        key = (_danger(change), change.root, folder)
        groups.setdefault(key, []).append(change)
    return [found for _, found in sorted(groups.items(), key=lambda each: (each[0][0], len(each[1]), each[0][1:]))]


def _danger(change: FileChange) -> int:
    """Ranks a change: what a program outside runs or obeys by itself comes before the rest, and deletions come last."""
    if change.kind is ChangeKind.DELETED:
        return 6
    kind = 0 if change.kind is ChangeKind.LINKED else 1 if _is_executable(change) else 2
    return kind if is_run_outside(change.path, is_link=change.kind is ChangeKind.LINKED) else kind + 3


_KINDS = ("link", "file that can be executed", "file", "link", "file that can be executed", "file", "deletion")


def _named(found: Sequence[FileChange], first_root: str) -> str:
    paths = [spell_out(shown_path(change, first_root), kept="") for change in found]
    if len(paths) == 1:
        return f"{_KINDS[_danger(found[0])]}: {paths[0]}"
    folder = posixpath.commonpath([posixpath.dirname(path.rstrip("/")) for path in paths]) or "."
    names = [posixpath.basename(path.rstrip("/")) for path in paths[:NAMES_SHOWN_MAX]]
    rest = f" and {len(paths) - NAMES_SHOWN_MAX} more" if len(paths) > NAMES_SHOWN_MAX else ""
    return f"{len(paths)} {_KINDS[_danger(found[0])]}s in {folder}/: {', '.join(names)}{rest}"


def _is_lost(change: FileChange) -> bool:
    if change.kind is not ChangeKind.MODIFIED or not change.before_bytes:
        return change.kind is ChangeKind.DELETED
    return is_emptied(change.before_bytes, change.bytes)


def shown_path(change: FileChange, first_root: str) -> str:
    """Returns the path as tools show it: relative in the first root, else absolute."""
    return change.path if change.root == first_root else f"{change.root.rstrip('/')}/{change.path}"


def _is_executable(change: FileChange) -> bool:
    is_file = change.kind in (ChangeKind.CREATED, ChangeKind.MODIFIED, ChangeKind.MODE) and not is_folder(change)
    return is_file and bool(change.mode & 0o111)
