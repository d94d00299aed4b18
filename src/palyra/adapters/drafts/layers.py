"""The layer of a session: what its commands left and no review shows, kept beside the workspace.

Owns: where it lies, putting changes of a draft into it, its size, what it holds, its removal.
Does not own: which changes stay in it (core.drafts.review), the overlay that shows it to later commands (the sandbox).
`layers/<session>/<number>/tree` is the lower folder of later overlays, above the workspace; `root` beside it names which.
A deleted file is a character device 0:0 there, as in any overlay.
Invariants: putting a draft into the layer reads the draft and changes nothing in it, so after a kill it is done once
more and ends alike. No link is followed. Only commands of the same session see it.
"""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from palyra.adapters.drafts.attributes import show_attributes
from palyra.adapters.drafts.tree import FOLDER_FLAGS, PERMISSIONS, remove_tree
from palyra.adapters.files.durable import ensure_folder, replace_whole
from palyra.core.drafts.changes import is_folder
from palyra.core.drafts.review import is_drop
from palyra.core.events.draft import ChangeKind, FileChange
from palyra.core.ids import SessionId, StreamId

LAYERS_NAME = "layers"
_TREE, _ROOT = "tree", "root"
_WHITEOUT = os.makedev(0, 0)


class SessionLayers:
    def __init__(self, home: Path) -> None:
        self._home = home / LAYERS_NAME

    def has(self, session_id: str) -> bool:
        return bool(session_id) and (self._home / session_id).is_dir()

    def of(self, session_id: str, root: str) -> str:
        """Returns the layer over a root, or nothing if the session has none."""
        tree = self._place(session_id, root) / _TREE if session_id else None
        return str(tree) if tree is not None and tree.is_dir() else ""

    def begin(self, session_id: str, root: str) -> str:
        """Returns the layer for a command that begins, or nothing."""
        layer = self.of(session_id, root)
        if layer:
            _refresh(layer, root)
        return layer

    def roots_of(self, session_id: str) -> dict[str, str]:
        """Returns the layer over each root."""
        folder = self._home / session_id
        names = sorted(os.listdir(folder)) if session_id and folder.is_dir() else []
        found: dict[str, str] = {}
        for name in names:
            with suppress(OSError):
                found[(folder / name / _ROOT).read_text()] = str(folder / name / _TREE)
        return found

    def sessions(self) -> tuple[SessionId, ...]:
        names = os.listdir(self._home) if self._home.is_dir() else []
        return tuple(SessionId(StreamId(name)) for name in names)

    def forget(self, session_id: str) -> None:
        """Removes the layers of a session. Absent ones are no error."""
        folder = self._home / session_id
        if session_id and folder.is_dir():
            remove_tree(str(folder))

    def size_bytes(self, session_id: str) -> int:
        return sum(_size(layer) for layer in self.roots_of(session_id).values())

    def folders(self, session_id: str, changes: Iterable[FileChange]) -> frozenset[tuple[str, str]]:
        """Returns which of these folders the layers hold: root and path of each."""
        layers = self.roots_of(session_id)
        found = (each for each in changes if is_folder(each) and each.root in layers)
        return frozenset(
            (each.root, each.path) for each in found if os.path.isdir(f"{layers[each.root]}/{each.path.rstrip('/')}")
        )

    def put(self, session_id: str, held: Sequence[FileChange], applied: Sequence[FileChange], upper: str) -> None:
        """Puts changes of one root into the layer. What was applied to the root goes out of it."""
        root = (*held, *applied)[0].root
        if not held and not self.of(session_id, root):
            return
        with _Layer(root, self._made(session_id, root)) as layer:
            layer.put(held, applied, upper)

    def _made(self, session_id: str, root: str) -> str:
        place = self._place(session_id, root)
        if not (place / _TREE).is_dir():
            ensure_folder(place)
            replace_whole(place / _ROOT, root.encode())
            (place / _TREE).mkdir(mode=0o700, exist_ok=True)
        return str(place / _TREE)

    def _place(self, session_id: str, root: str) -> Path:
        return self._home / session_id / hashlib.sha256(root.encode()).hexdigest()[:16]


class _Layer:
    """An open layer over one root."""

    def __init__(self, root: str, tree: str) -> None:
        self._root = root
        self._tree = os.open(tree, FOLDER_FLAGS)

    def __enter__(self) -> "_Layer":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._tree)

    def put(self, held: Sequence[FileChange], applied: Sequence[FileChange], upper: str) -> None:
        for change in applied:
            if not (is_folder(change) and change.kind in (ChangeKind.CREATED, ChangeKind.MODE)):
                self._take_out(change.path)
        for change in (each for each in held if is_drop(each)):
            self._take_out(change.path)
        ordered = sorted((each for each in held if not is_drop(each)), key=lambda each: each.path)
        for change in (each for each in ordered if each.kind is ChangeKind.DELETED):
            self._delete(change)
        for change in (each for each in ordered if each.kind is not ChangeKind.DELETED):
            self._leave(change, upper)
        os.fsync(self._tree)

    def _take_out(self, path: str) -> None:
        with self._folder_of(path) as (folder, name):
            if folder is not None:
                _remove(folder, name)

    def _delete(self, change: FileChange) -> None:
        """Hides what lies in the workspace. A folder that is hidden hides all that it holds."""
        if not os.path.lexists(f"{self._root}/{change.path}".rstrip("/")):
            self._take_out(change.path)
            return
        with self._folder_of(change.path, is_made=True) as (folder, name):
            if folder is not None and not _is_whiteout(folder, name):
                _remove(folder, name)
                os.mknod(name, stat.S_IFCHR, _WHITEOUT, dir_fd=folder)

    def _leave(self, change: FileChange, upper: str) -> None:
        with self._folder_of(change.path, is_made=True, is_opened=True) as (folder, name):
            if folder is None:
                return
            if is_folder(change):
                _make_folder(folder, name, "")
                os.chmod(name, change.mode & PERMISSIONS | 0o700, dir_fd=folder)
                return
            partial = f".palyra-layer-{hashlib.sha256(change.path.encode()).hexdigest()[:16]}"
            with suppress(FileNotFoundError):
                os.unlink(partial, dir_fd=folder)
            os.link(f"{upper}/{change.path}", partial, dst_dir_fd=folder, follow_symlinks=False)
            if change.kind is not ChangeKind.LINKED:
                os.chmod(partial, change.mode & PERMISSIONS, dir_fd=folder)
            if _is_real_folder(folder, name):
                _remove(folder, name)
            os.replace(partial, name, src_dir_fd=folder, dst_dir_fd=folder)

    @contextmanager
    def _folder_of(
        self, path: str, *, is_made: bool = False, is_opened: bool = False
    ) -> Iterator[tuple[int | None, str]]:
        """Yields the folder that holds the path, or None if the layer has none, or hides it whole.

        With `is_made` missing folders are made; with `is_opened` also where something else stands.
        """
        *folders, name = path.rstrip("/").split("/")
        handle = os.dup(self._tree)
        try:
            for count, part in enumerate(folders, 1):
                if is_opened or (is_made and not _exists(handle, part)):
                    _make_folder(handle, part, f"{self._root}/{'/'.join(folders[:count])}")
                if not _is_real_folder(handle, part):
                    yield None, name
                    return
                inner = os.open(part, FOLDER_FLAGS, dir_fd=handle)
                os.close(handle)
                handle = inner
            yield handle, name
        finally:
            os.close(handle)


def _make_folder(folder: int, name: str, below: str) -> None:
    """Makes a folder with the permissions and attributes of the one below, which it would else seem to change."""
    if not _is_real_folder(folder, name):
        _remove(folder, name)
        os.mkdir(name, 0o755, dir_fd=folder)
        if below and os.path.isdir(below):
            _look_alike(f"/proc/self/fd/{folder}/{name}", below)


def _look_alike(path: str, below: str) -> None:
    with suppress(OSError):
        show_attributes(below, path)
        os.chmod(path, os.stat(below).st_mode & PERMISSIONS | 0o700)


def _refresh(path: str, below: str) -> None:
    """Gives folders the permissions that those of the workspace have now."""
    _look_alike(path, below)
    with os.scandir(path) as entries:
        names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    for name in names:
        if _is_folder(f"{below}/{name}"):
            _refresh(f"{path}/{name}", f"{below}/{name}")


def _is_folder(path: str) -> bool:
    with suppress(OSError):
        return stat.S_ISDIR(os.lstat(path).st_mode)
    return False


def _remove(folder: int, name: str) -> None:
    if _is_real_folder(folder, name):
        remove_tree(f"/proc/self/fd/{folder}/{name}")
        return
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _mode(folder: int, name: str) -> int:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0


def _exists(folder: int, name: str) -> bool:
    return _mode(folder, name) != 0


def _is_real_folder(folder: int, name: str) -> bool:
    return stat.S_ISDIR(_mode(folder, name))


def _is_whiteout(folder: int, name: str) -> bool:
    return stat.S_ISCHR(_mode(folder, name))


def _size(layer: str) -> int:
    total = 0
    for folder, _, names in os.walk(layer):
        for name in names:
            with suppress(OSError):
                total += os.lstat(f"{folder}/{name}").st_size
    return total
