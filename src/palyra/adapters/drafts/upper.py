"""Reads the upper folder of an overlay into a set of changes.

Owns: what deletions, replaced folders, copies and links look like there. Does not own: applying them (apply).
A deletion is a character device 0:0. A replaced folder has the attribute `user.overlay.opaque`. A file that was only
touched is no change. Links that lead out, devices, pipes, sockets, set-user-id bits, attributes, and permissions that
other names share are left out and named.
The cost depends on what changed, not on the size of the workspace.
"""

import hashlib
import os
import stat
from contextlib import ExitStack
from typing import Any

from palyra.adapters.drafts.attributes import handed_on, is_added, is_changed, plain_mode, read_attributes
from palyra.adapters.drafts.git_objects import find_false_objects
from palyra.adapters.drafts.tree import FOLDER_FLAGS, PERMISSIONS, STRANGE_SHA256, hash_file
from palyra.adapters.files.archives import FILE_FLAGS, hash_link
from palyra.core.drafts.changes import LEFT_OUT_SHOWN_MAX, ChangeSet, in_order
from palyra.core.drafts.git import INFLATED_BYTES_MAX, GitReach, LooseCheck, check_object, loose_id
from palyra.core.drafts.judge import is_emptied
from palyra.core.drafts.outside import is_stage
from palyra.core.errors import Invalid
from palyra.core.events.draft import ChangeKind, FileChange, LeftOutFile

CHANGES_MAX = 200_000
BYTES_MAX = 10 * 1024**3  # As much as a command may fill the disk with. Holes fill nothing, but are read as well.
OBJECT_PIECE_BYTES = 1 << 20
DEPTH_MAX = 200  # Folders are read one inside the other.
PATH_BYTES_MAX = 3000  # A draft's own folder comes before it, and the kernel takes 4096.
CHANGED = "changed"  # Stands for a hash that no file has: it changed after the command began.
PATH_SHOWN_MAX = 300
_OPAQUE = "user.overlay.opaque"
_SPECIAL_BITS = stat.S_ISUID | stat.S_ISGID
_LINK_OUT = "a link that leads out of the workspace"
_UNNAMEABLE = "its name holds a line end, or is not valid Unicode"
_STAGE = "its name is that of a folder in which the daemon keeps files while it applies changes"
_TOO_DEEP = "it lies too deep, or its path is too long"
_STRANGE = "a device, a pipe or a socket"
_ATTRIBUTES = "its attributes or access list; the file itself is applied without"
_FOLDER_ATTRIBUTES = "its attributes or access list; a draft never changes those"
_SHARED = "its permissions: the file has other names (hard links), whose permissions they are too"
_SETUID = "its set-user-id or set-group-id bit; the file itself is applied without"

_Named = tuple[int | None, str]  # A name in an open folder.


class UpperReader:
    """Reads one root. `began_ns` is when the command began: a file that changed later is a conflict.

    `layer` is the layer of the session that lay between, if there was one. The changes are those of the root. What the
    command took away or made anew, and only the layer holds, is a deletion without a hash.
    """

    def __init__(self, root: str, upper: str, began_ns: int, layer: str = "") -> None:
        self._root = root
        self._layer = layer
        self._upper = upper
        self._began_ns = began_ns
        self._changes: list[FileChange] = []
        self._left_out: list[LeftOutFile] = []
        self._left_out_count = 0
        self._left_bytes = self._replaced_bytes = 0
        self._inflate_room = INFLATED_BYTES_MAX
        self._false_objects: list[str] = []
        self._real = -1  # The deepest folder of the root on the way to what is being read.

    def read(self) -> ChangeSet:
        upper = os.open(self._upper, FOLDER_FLAGS)
        try:
            lower = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self._real = lower
                self._folder(upper, lower, "")
                is_bare = _hides_all(upper, lower)
                if is_added(read_attributes(lower), read_attributes(upper)):
                    self._leave_out(".", _FOLDER_ATTRIBUTES)
            finally:
                os.close(lower)
        finally:
            os.close(upper)
        return ChangeSet(
            changes=in_order(self._changes),
            left_out=tuple(self._left_out),
            left_out_count=self._left_out_count,
            emptied_roots=(self._root,) if is_bare else (),
            git=GitReach(writes=tuple(find_false_objects(self._root, self._false_objects))),
        )

    def _folder(self, upper: int, lower: int | None, prefix: str, *, is_whole: bool = False) -> None:
        """Reads a folder of the upper layer. `lower` is the same folder below.

        If the upper folder `is_whole`, it hides what lies below: what it does not hold itself is deleted.
        """
        names = sorted(os.listdir(upper))
        if is_whole and lower is not None:
            kept = set(names)
            for name in sorted(os.listdir(lower)):
                if name not in kept:
                    self._deleted(lower, name, f"{prefix}{name}")
        for name in names:
            path = f"{prefix}{name}"
            found = os.stat(name, dir_fd=upper, follow_symlinks=False)
            unfit = _unfit(path)
            if unfit is not None:
                self._leave_out(_shown(path), unfit)
            elif _is_whiteout(found):
                self._deleted(lower, name, path)
            elif stat.S_ISDIR(found.st_mode):
                self._inner(upper, lower, path, is_whole=is_whole)
            elif stat.S_ISLNK(found.st_mode):
                self._link(upper, lower, name, path)
            elif stat.S_ISREG(found.st_mode):
                self._file(upper, lower, name, path)
            else:
                self._leave_out(path, _STRANGE)

    def _inner(self, upper: int, lower: int | None, path: str, *, is_whole: bool) -> None:
        name = path.rpartition("/")[2]
        mode = os.stat(name, dir_fd=upper, follow_symlinks=False).st_mode
        before = _stat(lower, name)
        is_folder_below = before is not None and stat.S_ISDIR(before.st_mode)
        if before is not None and not is_folder_below:
            self._deleted(lower, name, path)
        with ExitStack() as opened:
            inner = _open(name, FOLDER_FLAGS, upper, 0o700)
            opened.callback(os.close, inner)
            below = os.open(name, FOLDER_FLAGS, dir_fd=lower) if is_folder_below and lower is not None else None
            mode = self._mode(f"{path}/", mode, (upper, name), (lower, name) if is_folder_below else None)
            if not is_folder_below:
                self._add(path=f"{path}/", kind=ChangeKind.CREATED, mode=mode)
            elif before is not None and mode != before.st_mode & PERMISSIONS:
                self._add(path=f"{path}/", kind=ChangeKind.MODE, mode=mode, before_mode=before.st_mode & PERMISSIONS)
            if self._in_layer(path) and (_is_opaque(inner) or not os.path.isdir(f"{self._layer}/{path}")):
                self._drop(path)
            if below is not None:
                opened.callback(os.close, below)
                opened.callback(setattr, self, "_real", self._real)
                self._real = below
            self._folder(inner, below, f"{path}/", is_whole=is_whole or _is_opaque(inner))

    def _file(self, upper: int, lower: int | None, name: str, path: str) -> None:
        before = _stat(lower, name)
        if before is not None and stat.S_ISDIR(before.st_mode):
            self._deleted(lower, name, path)
            before = None
        found = os.stat(name, dir_fd=upper, follow_symlinks=False)
        self._left_bytes += found.st_size  # Each name of a file counts: each may become a copy.
        _require_readable(self._left_bytes, "leaves")
        object_id = loose_id(path)
        after = _hash(upper, name, 0o600) if object_id is None else self._hash_object(upper, name, path, object_id)
        if found.st_mode & _SPECIAL_BITS:
            self._leave_out(path, _SETUID)
        is_file_below = before is not None and stat.S_ISREG(before.st_mode)
        mode = self._mode(path, found.st_mode, (upper, name), (lower, name) if is_file_below else None)
        if before is None:
            self._add(path=path, kind=ChangeKind.CREATED, after_sha256=after, mode=mode, bytes=found.st_size)
            return
        before_hash, before_mode = self._before(lower, name, before), before.st_mode & PERMISSIONS
        if before_hash == after and (mode == before_mode or stat.S_ISLNK(before.st_mode)):
            self._drop(path)
            return
        kind = ChangeKind.MODE if before_hash == after else ChangeKind.MODIFIED
        if kind is ChangeKind.MODE and before.st_nlink > 1:
            self._leave_out(path, _SHARED)
            return
        self._add(
            path=path,
            kind=kind,
            before_sha256=before_hash,
            after_sha256=after,
            mode=mode,
            before_mode=before_mode,
            bytes=found.st_size,
            before_bytes=before.st_size if kind is ChangeKind.MODIFIED and stat.S_ISREG(before.st_mode) else 0,
        )

    def _hash_object(self, upper: int, name: str, path: str, object_id: str) -> str:
        """Hashes a loose object of git, and notes it if it is not what its name says."""
        digest = hashlib.sha256()
        file = _open(name, FILE_FLAGS, upper, 0o600)
        try:
            body = os.read(file, OBJECT_PIECE_BYTES)
            digest.update(body)
            if len(body) < OBJECT_PIECE_BYTES:
                is_sound, inflated_bytes = check_object(object_id, body, self._inflate_room)
            else:
                check = LooseCheck(object_id, self._inflate_room)
                check.update(body)
                while body := os.read(file, OBJECT_PIECE_BYTES):
                    digest.update(body)
                    check.update(body)
                is_sound, inflated_bytes = check.is_sound(), check.inflated_bytes
        finally:
            os.close(file)
        self._inflate_room = max(self._inflate_room - inflated_bytes, 1)
        if not is_sound:
            self._false_objects.append(path)
        return digest.hexdigest()

    def _mode(self, path: str, mode: int, found: _Named, below: _Named | None) -> int:
        """Returns the permissions to apply. Attributes that the command gave or took away are named and left out."""
        after = read_attributes(_reach(found))
        is_same = not (
            is_changed(read_attributes(_reach(below)), after) if below else is_added(handed_on(self._real), after)
        )
        if is_same:
            return mode & PERMISSIONS
        self._leave_out(path, _FOLDER_ATTRIBUTES if path.endswith("/") else _ATTRIBUTES)
        return plain_mode(mode & PERMISSIONS, after)

    def _link(self, upper: int, lower: int | None, name: str, path: str) -> None:
        target = os.readlink(name, dir_fd=upper)
        if not leads_inside(path, target, self._root):
            self._leave_out(path, _LINK_OUT)
            return
        before = _stat(lower, name)
        if before is not None and stat.S_ISDIR(before.st_mode):
            self._deleted(lower, name, path)
            before = None
        before_hash = self._before(lower, name, before) if before is not None else None
        after = hash_link(target)
        if before_hash == after:
            self._drop(path)
            return
        self._add(
            path=path,
            kind=ChangeKind.LINKED,
            before_sha256=before_hash,
            after_sha256=after,
            mode=PERMISSIONS,
            before_mode=before.st_mode & PERMISSIONS if before is not None else 0,
        )

    def _deleted(self, lower: int | None, name: str, path: str) -> bool:
        """Adds a deletion, of a folder with everything in it. Returns False if something of it stays."""
        found = _stat(lower, name)
        if found is None or lower is None:
            self._drop(path)
            return True
        unfit = _unfit(path)
        if unfit is not None:
            self._leave_out(_shown(path), unfit)
            return False
        mode = found.st_mode & PERMISSIONS
        if not stat.S_ISDIR(found.st_mode):
            self._add(
                path=path, kind=ChangeKind.DELETED, before_sha256=self._before(lower, name, found), before_mode=mode
            )
            return True
        inner = os.open(name, FOLDER_FLAGS, dir_fd=lower)
        try:
            gone = [self._deleted(inner, each, f"{path}/{each}") for each in sorted(os.listdir(inner))]
        finally:
            os.close(inner)
        if all(gone):
            self._add(path=f"{path}/", kind=ChangeKind.DELETED, before_mode=mode)
        return all(gone)

    def _in_layer(self, path: str) -> bool:
        return bool(self._layer) and os.path.lexists(f"{self._layer}/{path}")

    def _drop(self, path: str) -> None:
        """Adds that the layer holds this no more. The root is as it was."""
        if self._in_layer(path):
            self._add(path=path, kind=ChangeKind.DELETED)

    def _before(self, lower: int | None, name: str, found: os.stat_result) -> str:
        """Returns the hash of what the command saw. A file that is put there while it is read is not that."""
        if found.st_ctime_ns >= self._began_ns or lower is None:
            return CHANGED
        seen = self._hash_before(lower, name, found)
        now = _stat(lower, name)
        is_same = now is not None and (now.st_ino, now.st_ctime_ns) == (found.st_ino, found.st_ctime_ns)
        return seen if is_same else CHANGED

    def _hash_before(self, lower: int, name: str, found: os.stat_result) -> str:
        if stat.S_ISLNK(found.st_mode):
            return hash_link(os.readlink(name, dir_fd=lower))
        if not stat.S_ISREG(found.st_mode):
            return STRANGE_SHA256
        self._replaced_bytes += found.st_size
        _require_readable(self._replaced_bytes, "replaces or deletes")
        try:
            return _hash(lower, name)
        except (PermissionError, FileNotFoundError):
            return CHANGED  # Nobody can tell what it holds, so nothing replaces it.

    def _add(self, path: str, kind: ChangeKind, **fields: Any) -> None:
        if len(self._changes) >= CHANGES_MAX:
            raise Invalid("draft_too_large", f"a command may change at most {CHANGES_MAX} files; do it in parts")
        self._changes.append(FileChange(root=self._root, path=path, kind=kind, **fields))

    def _leave_out(self, path: str, reason: str) -> None:
        self._left_out_count += 1
        if len(self._left_out) < LEFT_OUT_SHOWN_MAX:
            self._left_out.append(LeftOutFile(path=path, reason=reason))


def _require_readable(length: int, verb: str) -> None:
    """Refuses a draft that would take hours to read."""
    if length > BYTES_MAX:
        message = f"the files that a command {verb} may have {BYTES_MAX} bytes in one workspace; do it in parts"
        raise Invalid("draft_too_large", message)


def leads_inside(path: str, target: str, root: str) -> bool:
    """Tells whether a link's target stays in its root, by its text.

    `..` counts only at the beginning: behind a name it could climb from wherever that name leads.
    """
    if target.startswith("/"):
        inside = os.path.normpath(target)
        return (inside == root or inside.startswith(root.rstrip("/") + "/")) and ".." not in target.split("/")
    parts = [part for part in target.split("/") if part not in ("", ".")]
    climbs = 0
    while climbs < len(parts) and parts[climbs] == "..":
        climbs += 1
    return climbs <= path.count("/") and ".." not in parts[climbs:]


def _is_whiteout(found: os.stat_result) -> bool:
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _hides_all(upper: int | None, lower: int, *, is_whole: bool = False, depth: int = 0) -> bool:
    """Tells whether the upper folder deletes or empties each file below, whatever else it holds. Folders may stay."""
    if depth > DEPTH_MAX:
        return False
    try:
        return all(_hides(upper, lower, name, is_whole=is_whole, depth=depth) for name in os.listdir(lower))
    except PermissionError:
        return False  # The command could not delete what it could not see.


def _hides(upper: int | None, lower: int, name: str, *, is_whole: bool, depth: int) -> bool:
    found, before = _stat(upper, name), _stat(lower, name)
    is_gone = is_whole if found is None else _is_whiteout(found)
    if before is None or is_gone:
        return _unfit(name) is None
    if not stat.S_ISDIR(before.st_mode) or (found is not None and not stat.S_ISDIR(found.st_mode)):
        return _is_bare(before, found)
    with ExitStack() as opened:
        below = os.open(name, FOLDER_FLAGS, dir_fd=lower)
        opened.callback(os.close, below)
        inner = _open(name, FOLDER_FLAGS, upper, 0o700) if found is not None and upper is not None else None
        if inner is not None:
            opened.callback(os.close, inner)
        is_opaque = inner is not None and _is_opaque(inner)
        return _hides_all(inner, below, is_whole=is_whole or is_opaque, depth=depth + 1)


def _is_bare(before: os.stat_result, found: os.stat_result | None) -> bool:
    """Tells whether a file that is still there holds nothing any more. One that was empty all along never did."""
    after = before if found is None else found
    if not (stat.S_ISREG(before.st_mode) and stat.S_ISREG(after.st_mode)):
        return False
    return after.st_size == 0 or is_emptied(before.st_size, after.st_size)


def _is_opaque(folder: int) -> bool:
    try:
        return os.getxattr(folder, _OPAQUE) == b"y"
    except OSError:
        return False


def _unfit(path: str) -> str | None:
    """Returns why a path cannot be a change; None if it can."""
    try:
        length = len(path.encode())
    except UnicodeEncodeError:
        return _UNNAMEABLE
    if "\n" in path:
        return _UNNAMEABLE
    if is_stage(path):
        return _STAGE
    return _TOO_DEEP if length > PATH_BYTES_MAX or path.count("/") > DEPTH_MAX else None


def _shown(path: str) -> str:
    return path[:PATH_SHOWN_MAX].encode(errors="replace").decode(errors="replace")


def _reach(named: _Named) -> str:
    """Returns a path for calls that take no open folder. It leads through no link."""
    return f"/proc/self/fd/{named[0]}/{named[1]}"


def _stat(folder: int | None, name: str) -> os.stat_result | None:
    if folder is None:
        return None
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _hash(folder: int, name: str, opening_mode: int | None = None) -> str:
    file = _open(name, FILE_FLAGS, folder, opening_mode)
    try:
        return hash_file(file)
    finally:
        os.close(file)


def _open(name: str, flags: int, folder: int, opening_mode: int | None) -> int:
    """Opens something. In the upper layer, which is ours, permissions that a command took away are put aside."""
    try:
        return os.open(name, flags, dir_fd=folder)
    except PermissionError:
        if opening_mode is None:
            raise
        os.chmod(name, opening_mode, dir_fd=folder)
        return os.open(name, flags, dir_fd=folder)
