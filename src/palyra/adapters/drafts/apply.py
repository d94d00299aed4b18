"""Applies a sealed draft to the real folders: all of it or nothing, and again after a crash.

Owns: staging, the exchange of each file, the way back, the archive of what was replaced. Does not own: whether it may
(engine), what lies in the draft (upper).
Invariants: no link is followed. A file is replaced by an exchange, and what comes out is looked at: if it is not what
the command found, it goes back and everything else does too. So nobody's change is overwritten. New content is staged,
with its hash checked, before the first file changes, so a full disk changes nothing.
"""

import os
import stat
from contextlib import ExitStack, suppress
from pathlib import Path

from palyra.adapters.drafts.attributes import Attributes, handed_on, kept_attributes, read_attributes
from palyra.adapters.drafts.renames import Place, exchange, rename_new
from palyra.adapters.drafts.stage import exists, stage_file
from palyra.adapters.drafts.tree import FOLDER_FLAGS, PERMISSIONS, STRANGE_SHA256, Tree, look_at, remove_tree
from palyra.adapters.files.archives import FILE_FLAGS, ArchiveWriter
from palyra.adapters.files.durable import replace_whole, sync_folder
from palyra.adapters.files.own_writes import OWN_WRITES
from palyra.core.drafts.changes import find_alike, is_folder
from palyra.core.drafts.plan import FOLDER_SHA256, FileState, in_step_order, look_behind, plan_apply
from palyra.core.errors import Corrupt, Invalid
from palyra.core.events.draft import ChangeKind, ConflictCause, FileChange
from palyra.ports.drafts import AppliedDraft, DraftConflict, DraftFailure


class _ConflictError(Exception):
    """A file is not what it should be."""

    def __init__(self, change: FileChange) -> None:
        super().__init__(change.path)
        self.change = change


class Applier:
    """Applies one draft. `uppers` names the upper folder of each root; `stages` a folder on the root's file system."""

    def __init__(self, changes: tuple[FileChange, ...], uppers: dict[str, str], stages: dict[str, str]) -> None:
        self._changes = changes
        self._uppers = uppers
        self._stages = stages
        self._numbers = {(change.root, change.path): number for number, change in enumerate(changes)}
        self._trees: dict[str, Tree] = {}
        self._stage_handles: dict[str, int] = {}

    def apply(self, undo_path: Path) -> AppliedDraft | DraftConflict | DraftFailure:
        with ExitStack() as opened:
            try:
                self._open(opened)
                self._compare_names()
                self._stage_all()
                self._carry_out()
                archive = self._keep(undo_path)
                self._let_go()
            except _ConflictError as found:
                self._go_back()
                return DraftConflict(path=found.change.path, cause=_cause(found.change))
            except Invalid as refused:
                self._go_back()
                return DraftFailure(message=refused.message)
            except OSError as cause:
                self._go_back()
                return DraftFailure(message=f"{cause.strerror or cause}; nothing of it was applied")
        for stage in self._stages.values():
            remove_tree(stage)
        return archive

    def _open(self, opened: ExitStack) -> None:
        for root, stage in self._stages.items():
            os.makedirs(stage, mode=0o700, exist_ok=True)
            handle = os.open(stage, FOLDER_FLAGS)
            opened.callback(os.close, handle)
            self._stage_handles[root] = handle
            self._trees[root] = opened.enter_context(Tree(root))

    def _compare_names(self) -> None:
        """Refuses a set in which one file of this disk has two names. The command saw two files."""
        for one, other in find_alike(self._changes):
            if self._trees[other.root].ignores_case(other.path):
                message = (
                    f"{one.path} and {other.path} are one name on this disk, which ignores case; rename one of them"
                )
                raise Invalid("names_alike", f"{message}. Nothing of it was applied.")

    def _carry_out(self) -> None:
        plan = plan_apply(self._changes, self._look)
        if plan.conflict is not None:
            raise _ConflictError(plan.conflict)
        self._unlock(plan.steps)
        for change in plan.steps:
            self._step(change)
        self._sync()
        self._set_folder_modes()

    def _unlock(self, steps: tuple[FileChange, ...]) -> None:
        """Lets the owner change folders that the command could change only because it gave itself the permission."""
        for change in steps:
            is_locked = is_folder(change) and change.before_mode & 0o700 != 0o700
            if is_locked and change.kind is not ChangeKind.CREATED:
                with suppress(PermissionError), self._trees[change.root].folder_of(change.path) as (folder, name):
                    _set_mode(folder, name, change.before_mode | 0o700)

    def _set_folder_modes(self) -> None:
        """Sets the permissions of folders last, the deepest first: a locked folder could not be filled."""
        for change in reversed(self._changes):
            if is_folder(change) and change.kind in (ChangeKind.CREATED, ChangeKind.MODE):
                with self._trees[change.root].folder_of(change.path) as (folder, name):
                    _set_mode(folder, name, change.mode)

    def _let_go(self) -> None:
        """Removes the draft's own links to the applied files: removing them later would look like a new change."""
        for change in self._changes:
            if change.after_sha256 is not None and not is_folder(change):
                with suppress(FileNotFoundError, NotADirectoryError):
                    os.unlink(f"{self._uppers[change.root]}/{change.path}")
            OWN_WRITES.note(_full(change))

    def _look(self, change: FileChange) -> FileState:
        return self._trees[change.root].look(change.path)

    def _stage_all(self) -> None:
        """Puts the new content of every file beside the old: linked where it can be, else copied."""
        look = look_behind(self._changes, self._look)
        for change in self._changes:
            if change.after_sha256 is None or is_folder(change) or change.kind is ChangeKind.MODE:
                continue
            stage = self._stage_handles[change.root]
            name = self._new(change)
            if look(change).sha256 == change.after_sha256:
                continue
            staged = look_at(stage, name).sha256
            if staged is not None and staged == change.before_sha256:
                continue  # It came out of the workspace before a kill.
            source = f"{self._uppers[change.root]}/{change.path}"
            if change.kind is ChangeKind.LINKED or os.path.islink(source):
                if staged is None:
                    os.symlink(os.readlink(source), name, dir_fd=stage)
            else:
                stage_file(source, (stage, name), change.mode & PERMISSIONS, self._attributes(change))
            if look_at(stage, name).sha256 != change.after_sha256:
                raise Corrupt("draft_damaged", f"the sealed content of {change.path} is not what was judged")

    def _attributes(self, change: FileChange) -> Attributes:
        """Returns what the new file gets: what the file has that it replaces, or what a folder hands on to a new one."""
        tree = self._trees[change.root]
        with suppress(FileNotFoundError, NotADirectoryError), tree.folder_of(change.path) as (folder, name):
            place = f"/proc/self/fd/{folder}/{name}"
            if stat.S_ISREG(os.stat(place, follow_symlinks=False).st_mode):
                return kept_attributes(read_attributes(place))
        with tree.nearest(change.path) as folder:
            return kept_attributes(handed_on(folder))

    def _step(self, change: FileChange) -> None:
        tree, stage = self._trees[change.root], self._stage_handles[change.root]
        try:
            with tree.folder_of(change.path) as (folder, name):
                if is_folder(change):
                    _step_folder(change, (folder, name), (stage, self._old(change)))
                elif change.kind is ChangeKind.DELETED:
                    self._take_away(change, (folder, name), (stage, self._old(change)))
                elif change.kind is ChangeKind.MODE:
                    _set_mode(folder, name, change.mode)
                elif change.before_sha256 is None:
                    rename_new((stage, self._new(change)), (folder, name))
                else:
                    self._exchange(change, (folder, name), stage)
        except (FileExistsError, FileNotFoundError, NotADirectoryError) as cause:
            raise _ConflictError(change) from cause
        except OSError as cause:
            if is_folder(change) and change.kind is ChangeKind.DELETED:
                raise _ConflictError(change) from cause  # Somebody put something into it.
            raise

    def _take_away(self, change: FileChange, place: Place, old: Place) -> None:
        rename_new(place, old)
        if look_at(*old).sha256 != change.before_sha256:
            rename_new(old, place)
            raise _ConflictError(change)

    def _exchange(self, change: FileChange, place: Place, stage: int) -> None:
        new = (stage, self._new(change))
        if look_at(*place).sha256 == change.after_sha256:
            _set_mode(*place, change.mode)
            return
        if not exchange(new, place):
            # Without an exchange the moment between looking and renaming stays open.
            if look_at(*place).sha256 != change.before_sha256:
                raise _ConflictError(change)
            os.link(place[1], self._old(change), src_dir_fd=place[0], dst_dir_fd=stage, follow_symlinks=False)
            os.rename(new[1], place[1], src_dir_fd=stage, dst_dir_fd=place[0])
            return
        if look_at(*new).sha256 != change.before_sha256:
            exchange(new, place)
            raise _ConflictError(change)
        rename_new(new, (stage, self._old(change)))

    def _go_back(self) -> None:
        """Undoes what was applied, in the opposite order. What cannot go back is left for a person to see."""
        is_open = len(self._trees) == len(self._stages)
        look = look_behind(self._changes, self._look)
        applied = [change for change in self._changes if _is_applied(change, look(change))] if is_open else []
        for change in reversed(in_step_order(applied)):
            with suppress(OSError, _ConflictError):
                self._step_back(change)
        for change in reversed(self._changes) if is_open else ():
            if is_folder(change) and change.kind is not ChangeKind.CREATED:
                with suppress(OSError), self._trees[change.root].folder_of(change.path) as (folder, name):
                    _set_mode(folder, name, change.before_mode)
        for root, stage in self._stages.items():
            if root in self._stage_handles and not self._holds_old(root):
                remove_tree(stage)

    def _step_back(self, change: FileChange) -> None:
        tree, stage = self._trees[change.root], self._stage_handles[change.root]
        with tree.folder_of(change.path) as (folder, name):
            if is_folder(change):
                _step_folder_back(change, (folder, name), (stage, self._old(change)))
            elif change.kind is ChangeKind.MODE:
                _set_mode(folder, name, change.before_mode)
            elif change.before_sha256 is None:
                os.rename(name, f"back-{self._new(change)}", src_dir_fd=folder, dst_dir_fd=stage)
            elif change.kind is ChangeKind.DELETED:
                rename_new((stage, self._old(change)), (folder, name))
            else:
                self._put_back(change, (folder, name), stage)

    def _put_back(self, change: FileChange, place: Place, stage: int) -> None:
        """Puts back what came out, also if somebody still wrote to it afterwards."""
        for name in (self._old(change), self._new(change)):
            is_old = name == self._old(change)
            if exists(stage, name) and (is_old or look_at(stage, name).sha256 == change.before_sha256):
                os.rename(name, place[1], src_dir_fd=stage, dst_dir_fd=place[0])
                return

    def _holds_old(self, root: str) -> bool:
        with os.scandir(self._stages[root]) as entries:
            return any(entry.name.startswith("old-") for entry in entries)

    def _keep(self, undo_path: Path) -> AppliedDraft:
        """Writes the archive of what was replaced, durably, before the last copy of it goes."""
        if undo_path.exists():
            return AppliedDraft(undo=undo_path.read_bytes() or None)
        writer = ArchiveWriter()
        for change in self._changes:
            has_content = change.before_sha256 not in (None, STRANGE_SHA256)
            if not has_content or change.kind is ChangeKind.MODE or is_folder(change):
                continue
            stage = self._stage_handles[change.root]
            names = [name for name in (self._old(change), self._new(change)) if exists(stage, name)]
            kept = [name for name in names if look_at(stage, name).sha256 == change.before_sha256]
            if kept:
                writer.add(change.root, change.path, stage, kept[0])
            elif exists(stage, self._old(change)):
                raise _ConflictError(change)  # An editor had it open, and wrote to it after it came out.
        body = writer.finish()
        replace_whole(undo_path, body or b"")
        return AppliedDraft(undo=body, unkept_count=writer.unkept_count)

    def _sync(self) -> None:
        folders = {os.path.dirname(_full(change).rstrip("/")) for change in self._changes}
        for folder in sorted(folders):
            with suppress(OSError):
                sync_folder(Path(folder))

    def _new(self, change: FileChange) -> str:
        return f"new-{self._numbers[change.root, change.path]}"

    def _old(self, change: FileChange) -> str:
        return f"old-{self._numbers[change.root, change.path]}"


def _is_applied(change: FileChange, now: FileState) -> bool:
    if change.kind is ChangeKind.DELETED:
        return now.sha256 != (FOLDER_SHA256 if is_folder(change) else change.before_sha256)
    if is_folder(change):
        return now.sha256 == FOLDER_SHA256
    if change.kind is ChangeKind.MODE:
        return now.mode == change.mode
    return now.sha256 == change.after_sha256 and now.sha256 != change.before_sha256


def _step_folder(change: FileChange, place: Place, old: Place) -> None:
    match change.kind:
        case ChangeKind.CREATED:
            os.mkdir(place[1], 0o700, dir_fd=place[0])
        case ChangeKind.DELETED:
            _take_folder_away(change, place, old)
        case _:
            return  # Permissions are set once everything else is done.


def _take_folder_away(change: FileChange, place: Place, old: Place) -> None:
    """Moves an empty folder out, so that it can go back with its owner, its time and all of its permissions."""
    try:
        rename_new(place, old)
    except PermissionError:
        os.rmdir(place[1], dir_fd=place[0])  # Somebody else's folder: it can be removed, but not moved.
        return
    if os.listdir(f"/proc/self/fd/{old[0]}/{old[1]}"):
        rename_new(old, place)
        raise _ConflictError(change)


def _step_folder_back(change: FileChange, place: Place, old: Place) -> None:
    match change.kind:
        case ChangeKind.CREATED:
            os.rmdir(place[1], dir_fd=place[0])
        case ChangeKind.DELETED if exists(*old):
            rename_new(old, place)
        case ChangeKind.DELETED:
            os.mkdir(place[1], 0o700, dir_fd=place[0])
        case _:
            return  # Permissions are set once everything else is back.


def _set_mode(folder: int, name: str, mode: int) -> None:
    """Sets permissions. A folder keeps its special bits, such as the one that hands its group on."""
    file = os.open(name, FILE_FLAGS, dir_fd=folder)
    try:
        found = os.fstat(file).st_mode
        special = stat.S_IMODE(found) & ~PERMISSIONS if stat.S_ISDIR(found) else 0
        os.fchmod(file, special | (mode & PERMISSIONS))
    finally:
        os.close(file)


def _full(change: FileChange) -> str:
    return f"{change.root.rstrip('/')}/{change.path}".rstrip("/")


def _cause(change: FileChange) -> ConflictCause:
    return ConflictCause.DRAFT if OWN_WRITES.is_own(_full(change)) else ConflictCause.PERSON
