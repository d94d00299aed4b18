"""Applies a sealed draft to the real folders: all of it or nothing, and again after a crash.

Owns: staging, the exchange of each file, the way back, the archive of what was replaced. Does not own: whether it may
(engine), what lies in the draft (upper).
Invariants: no link is followed. A file is replaced by an exchange, and what comes out is looked at: if it is not what
the command found, it goes back and everything else does too. So nobody's change is overwritten. New content is staged,
with its hash checked, before the first file changes, so a full disk changes nothing.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec

from palyra.adapters.drafts.attributes import Attributes, handed_on, kept_attributes, read_attributes
from palyra.adapters.drafts.folders import read_undo
from palyra.adapters.drafts.renames import Place, exchange, rename_new
from palyra.adapters.drafts.stage import OLD_PREFIX, STEPS_NAME, exists, keep_out, note_steps, noted_steps, stage_change
from palyra.adapters.drafts.steps import (
    BESIDE,
    ConflictError,
    bring_back,
    change_mode,
    full,
    itself,
    name_left,
    parent,
    set_mode,
    step_folder,
    step_folder_back,
    swap_back,
    withdraw,
)
from palyra.adapters.drafts.tree import FOLDER_FLAGS, Tree, look_at, remove_tree
from palyra.adapters.files.archives import ArchiveWriter
from palyra.adapters.files.durable import replace_whole, sync_folder
from palyra.adapters.files.own_writes import OWN_WRITES
from palyra.core.drafts.changes import find_alike, is_folder
from palyra.core.drafts.plan import FileState, in_step_order, is_applied, is_left_applied, look_behind, plan_apply
from palyra.core.errors import Corrupt, Invalid, PalyraError
from palyra.core.events.draft import ChangeKind, ConflictCause, FileChange
from palyra.ports.drafts import AppliedDraft, DraftConflict, DraftFailure

KEPT = "; what it replaced is kept, in drafts/kept-… of the daemon's folder or in .palyra-draft-… of the workspace"
TOUCHED_MAX = 256  # Folders that are kept open at once: a process has at least 1024 files.


class Applier:
    """Applies one draft. `uppers` names the upper folder of each root; `stages` a folder on the root's file system.

    Without `uppers` nothing is applied, and what a kill left applied is taken back: nobody can tell what they hold.
    """

    def __init__(self, changes: tuple[FileChange, ...], uppers: dict[str, str], stages: dict[str, str]) -> None:
        self._changes = changes
        self._uppers = uppers
        self._stages = stages
        self._numbers = {(change.root, change.path): number for number, change in enumerate(changes)}
        self._trees: dict[str, Tree] = {}
        self._stage_handles: dict[str, int] = {}
        self._touched: dict[tuple[str, str], int] = {}
        self._opened = ExitStack()

    def apply(self, undo_path: Path) -> AppliedDraft | DraftConflict | DraftFailure:
        archive = read_undo(undo_path)
        with self._opened:
            try:
                self._open()
                archive = archive or self._apply_all(undo_path)
            except ConflictError as found:
                return self._conflicted(found.change)
            except PalyraError as refused:
                return self._failed(refused.message, self._go_back())
            except OSError as cause:
                return self._failed(f"{cause.strerror or cause}; nothing of it was applied", self._go_back())
            self._let_go()
            for root in self._stages:
                self._remove_stage(root)
        return archive

    def _conflicted(self, change: FileChange) -> DraftConflict | DraftFailure:
        own = self._go_back()
        if self._is_kept(own):
            return self._failed(f"{full(change)} was changed meanwhile; nothing of it was applied", own)
        return DraftConflict(path=change.path, cause=_cause(change))

    def _failed(self, message: str, own: list[FileChange]) -> DraftFailure:
        """Names what stays applied although everything was to be taken back, and where what that replaced is kept."""
        look = look_behind(self._changes, self._look_back)
        left = name_left(each for each in own if is_left_applied(each, look(each)))
        return DraftFailure(message=message + left + (KEPT if self._is_kept(own) else ""))

    def _apply_all(self, undo_path: Path) -> AppliedDraft:
        if not self._uppers:
            raise Corrupt("draft_damaged", "the sealed list of the changes is damaged; nothing of it is applied")
        self._compare_names()
        self._stage_all()
        steps = self._carry_out()
        return msgspec.structs.replace(self._keep(undo_path), carried_out=steps)

    def _open(self) -> None:
        for root in self._stages:
            self._trees[root] = self._opened.enter_context(Tree(root))
            with suppress(FileExistsError):
                os.mkdir(self._stage_path(root), 0o700)
            handle = os.open(self._stage_path(root), FOLDER_FLAGS)
            self._opened.callback(os.close, handle)
            self._stage_handles[root] = handle

    def _stage_path(self, root: str) -> str:
        """Returns where the stage is. One that lies in the root is reached by its handle, whatever stands there now."""
        folder, name = os.path.split(self._stages[root])
        return f"/proc/self/fd/{self._trees[root].handle}/{name}" if folder == root.rstrip("/") else self._stages[root]

    def _remove_stage(self, root: str) -> None:
        with suppress(OSError):  # It is out of use: the draft is applied, or is not, whatever stays of it.
            remove_tree(self._stage_path(root))

    def _compare_names(self) -> None:
        """Refuses a set in which one file of this disk has two names. The command saw two files."""
        for one, other in find_alike(self._changes):
            if self._trees[other.root].ignores_case(other.path):
                message = (
                    f"{one.path} and {other.path} are one name on this disk, which ignores case; rename one of them"
                )
                raise Invalid("names_alike", f"{message}. Nothing of it was applied.")

    def _carry_out(self) -> tuple[FileChange, ...]:
        plan = plan_apply(self._changes, self._look)
        if plan.conflict is not None:
            raise ConflictError(plan.conflict)
        note_steps(self._stage_handles, map(self._new, plan.steps))
        self._unlock(plan.steps)
        for change in plan.steps:
            self._step(change)
        self._require_in_place(plan.steps)
        self._sync()
        self._set_folder_modes()
        return plan.steps

    def _require_in_place(self, steps: tuple[FileChange, ...]) -> None:
        """Refuses the set if a folder was moved while it was changed: what was put into it does not lie in the root."""
        gone = {itself(each) for each in steps if is_folder(each) and each.kind is ChangeKind.DELETED}
        touched = {parent(change): change for change in steps if parent(change) not in gone}
        for name, change in touched.items():
            if name in self._touched and not self._trees[change.root].holds(self._touched[name], change.path):
                raise ConflictError(change)

    def _unlock(self, steps: tuple[FileChange, ...]) -> None:
        """Lets the owner change folders that the command could change only because it gave itself the permission."""
        for change in steps:
            is_locked = is_folder(change) and change.before_mode & 0o700 != 0o700
            if is_locked and change.kind is not ChangeKind.CREATED:
                with suppress(PermissionError):
                    self._set_folder_mode(change, change.before_mode | 0o700)

    def _set_folder_modes(self) -> None:
        """Sets the permissions of folders last, the deepest first: a locked folder could not be filled."""
        for change in reversed(self._changes):
            if is_folder(change) and change.kind in (ChangeKind.CREATED, ChangeKind.MODE):
                self._set_folder_mode(change, change.mode)

    def _set_folder_mode(self, change: FileChange, mode: int) -> None:
        """Sets the permissions of the folder that stands there, and refuses the set if it was moved meanwhile."""
        with self._trees[change.root].folder_of(change.path) as (folder, name):
            file = os.open(name, FOLDER_FLAGS, dir_fd=folder)
            try:
                self._keep_open(change, itself(change), file)
                change_mode(file, mode)
            finally:
                os.close(file)
            if not self._trees[change.root].holds(folder, change.path):
                raise ConflictError(change)

    def _let_go(self) -> None:
        """Removes the draft's own links to the applied files: removing them later would look like a new change."""
        for change in self._changes:
            if change.after_sha256 is not None and not is_folder(change):
                with suppress(OSError, KeyError):
                    os.unlink(f"{self._uppers[change.root]}/{change.path}")
            OWN_WRITES.note(full(change))

    def _look(self, change: FileChange) -> FileState:
        return self._trees[change.root].look(change.path)

    def _stage_all(self) -> None:
        """Puts the new content of every file beside the old: linked where it can be, else copied."""
        look = look_behind(self._changes, self._look)
        for change in self._changes:
            if change.after_sha256 is None or is_folder(change) or change.kind is ChangeKind.MODE:
                continue
            stage, name = self._stage_handles[change.root], self._new(change)
            if look(change).sha256 == change.after_sha256:
                continue
            source = f"{self._uppers[change.root]}/{change.path}"
            stage_change(change, source, (stage, name), self._attributes)

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
                is_kept = self._keep_open(change, parent(change), folder)
                if is_folder(change):
                    step_folder(change, (folder, name), (stage, self._old(change)), self._touched.get(itself(change)))
                elif change.kind is ChangeKind.DELETED:
                    self._take_away(change, (folder, name), (stage, self._old(change)))
                elif change.kind is ChangeKind.MODE:
                    set_mode(change, (folder, name), change.mode)
                elif change.before_sha256 is None:
                    rename_new((stage, self._new(change)), (folder, name))
                else:
                    self._exchange(change, (folder, name), stage)
                if not is_kept and not tree.holds(folder, change.path):
                    self._step_back(change, (folder, name))
                    raise ConflictError(change)
        except (FileExistsError, FileNotFoundError, NotADirectoryError) as cause:
            raise ConflictError(change) from cause
        except OSError as cause:
            if is_folder(change) and change.kind is ChangeKind.DELETED:
                raise ConflictError(change) from cause  # Somebody put something into it.
            raise

    def _keep_open(self, change: FileChange, name: tuple[str, str], folder: int) -> bool:
        """Keeps a folder open in which something changes, so that it can be taken back wherever the folder goes."""
        if name not in self._touched and len(self._touched) < TOUCHED_MAX:
            self._touched[name] = handle = os.dup(folder)
            self._opened.callback(os.close, handle)
        if name in self._touched and not os.path.sameopenfile(self._touched[name], folder):
            raise ConflictError(change)  # Another folder stands there now.
        return name in self._touched

    def _take_away(self, change: FileChange, place: Place, old: Place) -> None:
        rename_new(place, old)
        if look_at(*old).sha256 != change.before_sha256:
            rename_new(old, place)
            raise ConflictError(change)

    def _exchange(self, change: FileChange, place: Place, stage: int) -> None:
        new = (stage, self._new(change))
        if look_at(*place).sha256 == change.after_sha256:
            set_mode(change, place, change.mode)
            return
        if not exchange(new, place):
            # Without an exchange the moment between looking and renaming stays open.
            if look_at(*place).sha256 != change.before_sha256:
                raise ConflictError(change)
            os.link(place[1], self._old(change), src_dir_fd=place[0], dst_dir_fd=stage, follow_symlinks=False)
            os.rename(new[1], place[1], src_dir_fd=stage, dst_dir_fd=place[0])
            return
        if look_at(*new).sha256 != change.before_sha256:
            exchange(new, place)
            raise ConflictError(change)
        rename_new(new, (stage, self._old(change)))

    def _go_back(self) -> list[FileChange]:
        """Undoes what was applied, in the opposite order. What cannot go back is left for a person to see."""
        own, look = self._own_steps(), look_behind(self._changes, self._look_back)
        folders = [change for change in reversed(own) if is_folder(change)]
        for change in folders:
            self._restore_mode(change, 0o700)  # Nothing goes back into a locked folder.
        applied = [each for each in own if self._has_old(each) or is_applied(each, look(each))]
        for change in reversed(in_step_order(applied)):
            try:
                with self._touched_place(change) as place:
                    self._step_back(change, place)
            except (OSError, ConflictError):
                self._leave_in_root(change)
        for change in folders:
            self._restore_mode(change, 0)
        if not self._is_kept(own):
            for root in self._stage_handles:
                self._remove_stage(root)
        return own

    def _is_kept(self, own: list[FileChange]) -> bool:
        """Tells whether a stage holds what came out. If a root cannot be opened, nobody knows what went back."""
        signs = (OLD_PREFIX,) if len(self._stage_handles) == len(self._stages) else (OLD_PREFIX, STEPS_NAME)
        names = (name for stage in self._stage_handles.values() for name in os.listdir(stage))
        return any(name.startswith(signs) for name in names) or any(map(self._has_out, own))

    def _own_steps(self) -> list[FileChange]:
        """Returns what this draft changed. Other files may be as it leaves them, and are somebody else's."""
        if len(self._stage_handles) < len(self._stages):
            return []
        noted = noted_steps(self._stage_handles)
        return [each for each in self._changes if self._new(each) in noted or self._has_old(each)]

    def _has_old(self, change: FileChange) -> bool:
        return exists(self._stage_handles[change.root], self._old(change))

    def _has_out(self, change: FileChange) -> bool:
        """Tells whether the new name has what came out: for a moment after an exchange."""
        is_replaced = change.kind is not ChangeKind.MODE and change.before_sha256 not in (None, change.after_sha256)
        return (
            is_replaced and look_at(self._stage_handles[change.root], self._new(change)).sha256 == change.before_sha256
        )

    def _leave_in_root(self, change: FileChange) -> None:
        """Puts what came out into the root itself: its folder cannot be found, and nothing of it may be lost."""
        name = f"{itself(change)[1].rpartition('/')[2]}{BESIDE}"
        with suppress(OSError):
            rename_new((self._stage_handles[change.root], self._old(change)), (self._trees[change.root].handle, name))

    def _restore_mode(self, change: FileChange, more: int) -> None:
        known = self._touched.get(itself(change))
        with suppress(OSError, ConflictError):
            if known is not None:
                # A folder that the draft made stays if somebody put something into it.
                mode = change.mode if change.kind is ChangeKind.CREATED else change.before_mode
                change_mode(known, mode | more)
            elif change.kind is not ChangeKind.CREATED:
                with self._touched_place(change) as place:
                    set_mode(change, place, change.before_mode | more)

    def _look_back(self, change: FileChange) -> FileState:
        try:
            with self._touched_place(change) as place:
                return look_at(*place)
        except OSError:
            return self._look(change)

    @contextmanager
    def _touched_place(self, change: FileChange) -> Iterator[Place]:
        """Yields where a change was made: in the folder that was open then, unless that was removed."""
        folder = self._touched.get(parent(change))
        if folder is not None and os.fstat(folder).st_nlink > 0:
            yield folder, change.path.rstrip("/").rpartition("/")[2]
            return
        with self._trees[change.root].folder_of(change.path) as place:
            yield place

    def _step_back(self, change: FileChange, place: Place) -> None:
        stage = self._stage_handles[change.root]
        if is_folder(change):
            step_folder_back(change, place, (stage, self._old(change)))
        elif change.kind is ChangeKind.MODE:
            set_mode(change, place, change.before_mode)
        elif change.before_sha256 is None:
            withdraw(change, place, (stage, f"back-{self._new(change)}"))
        elif change.kind is ChangeKind.DELETED:
            bring_back((stage, self._old(change)), place)
        else:
            self._put_back(change, place, stage)

    def _put_back(self, change: FileChange, place: Place, stage: int) -> None:
        """Puts back what came out, also if somebody still wrote to it afterwards."""
        for name in (self._old(change), self._new(change)):
            is_old = name == self._old(change)
            if not exists(stage, name) or not (is_old or look_at(stage, name).sha256 == change.before_sha256):
                continue
            is_kept_open = parent(change) in self._touched
            if not swap_back(change, (stage, name), place) and not is_kept_open:
                # The folder may be another one than it came out of, so its content is kept beside.
                bring_back((stage, name), place)
            return

    def _keep(self, undo_path: Path) -> AppliedDraft:
        """Writes the archive of what was replaced, durably, before the last copy of it goes."""
        writer = ArchiveWriter()
        for change in self._changes:
            if not keep_out(writer, change, self._stage_handles[change.root], (self._old(change), self._new(change))):
                raise ConflictError(change)  # An editor had it open, and wrote to it after it came out.
        body = writer.finish()
        try:
            replace_whole(undo_path, body or b"")
        except OSError:
            undo_path.unlink(missing_ok=True)  # It would say that the draft is applied.
            raise
        return AppliedDraft(undo=body, unkept_count=writer.unkept_count)

    def _sync(self) -> None:
        folders = {os.path.dirname(full(change).rstrip("/")) for change in self._changes}
        for folder in sorted(folders):
            with suppress(OSError):
                sync_folder(Path(folder))

    def _new(self, change: FileChange) -> str:
        return f"new-{self._numbers[change.root, change.path]}"

    def _old(self, change: FileChange) -> str:
        return f"{OLD_PREFIX}{self._numbers[change.root, change.path]}"


def _cause(change: FileChange) -> ConflictCause:
    return ConflictCause.DRAFT if OWN_WRITES.is_own(full(change)) else ConflictCause.PERSON
