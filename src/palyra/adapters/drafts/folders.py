"""Where drafts lie on disk: one folder for each effect, in the daemon's own folder.

Owns: names, the sealed list of changes, the sync that makes them durable. Does not own: their content (upper, apply).
`<effect>/0/upper` and `<effect>/0/work` belong to the first root, `1` to the second. `set.json` says that the draft is
sealed. `undo.tar` says that it was applied, and holds what that replaced. `kept-<effect>-<time>` is a draft in which lies
what came out of the workspace, could not go back, and is nowhere else.
"""

import os
import re
import stat
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from palyra.adapters.drafts.attributes import show_attributes
from palyra.adapters.drafts.stage import OLD_PREFIX, STEPS_NAME
from palyra.adapters.drafts.tree import remove_tree
from palyra.adapters.files.durable import ensure_folder, replace_whole, sync_folder
from palyra.core.drafts.changes import ChangeSet
from palyra.core.errors import Corrupt, NotFound
from palyra.core.events.draft import ChangeKind
from palyra.core.ids import EffectId
from palyra.ports.drafts import AppliedDraft, OverlayRoot

SYNCED_MAX = 256  # So many files are synced one by one. For more, the whole file system is quicker.
TRIAL_AGE_S = 24 * 3600  # A trial takes seconds.
TRIAL_PREFIX = "try-"
KEPT_PREFIX = "kept-"
_EFFECT = re.compile("[0-9a-f]{64}")
SET_NAME, UNDO_NAME, STAGE_NAME = "set.json", "undo.tar", "stage"


class SealedSet(msgspec.Struct, frozen=True, kw_only=True):
    roots: tuple[str, ...]
    change_set: ChangeSet


class DraftFolders:
    def __init__(self, home: Path) -> None:
        self._home = home

    def of(self, effect_id: EffectId) -> Path:
        return self._home / effect_id

    def make(self, effect_id: EffectId, roots: tuple[str, ...]) -> tuple[tuple[OverlayRoot, ...], int]:
        """Makes empty folders for an overlay of each root. Also returns the time on the disk's own clock."""
        folder = self.of(effect_id)
        self.forget(effect_id)
        ensure_folder(self._home)
        made = []
        for number, root in enumerate(roots):
            upper, work = folder / str(number) / "upper", folder / str(number) / "work"
            upper.mkdir(parents=True, mode=0o700)
            work.mkdir(mode=0o700)
            # The root inside the overlay has the attributes and permissions of the upper folder.
            show_attributes(root, str(upper))
            upper.chmod(os.stat(root).st_mode & 0o777)
            made.append(OverlayRoot(root=root, upper=str(upper), work=str(work)))
        return tuple(made), folder.stat().st_ctime_ns

    def upper_of(self, effect_id: EffectId, roots: tuple[str, ...], root: str) -> str:
        return str(self.of(effect_id) / str(roots.index(root)) / "upper")

    def write_set(self, effect_id: EffectId, sealed: SealedSet) -> None:
        """Seals a draft: from now on it is judged and applied, and its command does not run again."""
        self._sync_content(effect_id, sealed)
        replace_whole(self.of(effect_id) / SET_NAME, msgspec.json.encode(sealed))
        sync_folder(self._home)

    def read_set(self, effect_id: EffectId) -> SealedSet:
        try:
            body = (self.of(effect_id) / SET_NAME).read_bytes()
        except FileNotFoundError as cause:
            raise NotFound("draft_missing", "the draft of this call is not there any more") from cause
        try:
            return msgspec.json.decode(body, type=SealedSet)
        except msgspec.DecodeError as cause:
            raise Corrupt("draft_damaged", "the sealed list of what the command changed is damaged") from cause

    def forget(self, effect_id: EffectId) -> None:
        """Removes a draft. One is put aside if it may hold what came out of the workspace and is nowhere else."""
        folder = self.of(effect_id)
        has_begun = any(any(folder.glob(f"{STAGE_NAME}*/{name}")) for name in (STEPS_NAME, f"{OLD_PREFIX}*"))
        if has_begun and not (folder / UNDO_NAME).exists():
            folder.rename(self._home / f"{KEPT_PREFIX}{effect_id}-{time.time_ns()}")
        else:
            remove_tree(str(folder))

    def list_effects(self) -> tuple[EffectId, ...]:
        names = os.listdir(self._home) if self._home.is_dir() else []
        return tuple(EffectId(name) for name in names if _EFFECT.fullmatch(name))

    def _sync_content(self, effect_id: EffectId, sealed: SealedSet) -> None:
        """Syncs the new files, and the folders that lead to them."""
        kept = [change for change in sealed.change_set.changes if change.kind is not ChangeKind.DELETED]
        if len(kept) > SYNCED_MAX:
            os.sync()
            return
        folder = self.of(effect_id)
        paths = {folder}
        for change in kept:
            path = Path(self.upper_of(effect_id, sealed.roots, change.root), change.path)
            paths |= {path, *(above for above in path.parents if above.is_relative_to(folder))}
        for each in paths:
            _sync(str(each))


def read_undo(undo_path: Path) -> AppliedDraft | None:
    """Returns the archive that a kill left. All was applied before it was written: what changed since is a person's."""
    return AppliedDraft(undo=undo_path.read_bytes() or None) if undo_path.exists() else None


def sweep_trials(home: Path) -> int:
    """Removes trials of overlays that a kill left, and returns their number."""
    oldest = time.time() - TRIAL_AGE_S
    stale = [path for path in home.glob(f"{TRIAL_PREFIX}*") if path.is_dir() and path.stat().st_mtime < oldest]
    for path in stale:
        with suppress(OSError):  # The daemon starts all the same.
            remove_tree(str(path))
    return len(stale)


def _sync(path: str) -> None:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return  # A deletion, a link, or the overlay's own folder: none of them has content.
    try:
        if stat.S_ISREG(mode := os.fstat(file).st_mode) or stat.S_ISDIR(mode):
            os.fsync(file)
    finally:
        os.close(file)
