"""Rules for judging a set of changes: which paths are asked about together, and sets that ask as a whole.

Does not own: the policy's answer for a path (ports.policy), the order of the checks (engine.session.draft_gate).
"""

import posixpath
from collections.abc import Collection, Mapping, Sequence

import msgspec

from palyra.core.drafts.changes import ChangeSet, Place, is_folder, written_files
from palyra.core.events.draft import ChangeKind, FileChange, FileSet
from palyra.core.events.tool import EffectClass, FileBytes, ParallelClass, Risk
from palyra.core.file_sets import pack_files
from palyra.core.tools import CallNature, Capability, ToolSpec, Trait
from palyra.core.trust import Trust

DELETED_MAX = 20  # From so many deletions on a person is asked.
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
    deleted = [change for change in change_set.changes if change.kind is ChangeKind.DELETED and not is_folder(change)]
    left = {change.after_sha256 for change in change_set.changes if change.after_sha256 is not None}
    is_lost = any(change.before_sha256 not in left for change in deleted)
    return len(deleted) >= DELETED_MAX or (len(deleted) > 1 and is_lost and bool(change_set.emptied_roots))


def shown_path(change: FileChange, first_root: str) -> str:
    """Returns the path as tools show it: relative in the first root, else absolute."""
    return change.path if change.root == first_root else f"{change.root.rstrip('/')}/{change.path}"


def _is_executable(change: FileChange) -> bool:
    is_file = change.kind in (ChangeKind.CREATED, ChangeKind.MODIFIED, ChangeKind.MODE) and not is_folder(change)
    return is_file and bool(change.mode & 0o111)
