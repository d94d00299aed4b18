"""The boundary of the workspace: which file a path means, and opening it so that nothing leads outside.

Does not own: whether a call may touch the place (policy).
Invariants: a path is normalised as text and then walked from its root, one component at a time. Each component is
opened relative to the folder before it and without following links. So neither a symbolic link nor a folder that is
replaced by one meanwhile can lead out: the kernel refuses that very step. Links inside the workspace are refused too,
because their target may change after it was checked. `..` is resolved in the text and never walked.
Hard links and mounts inside a root are the operator's own responsibility.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import msgspec

from palyra.core.argument_schemas import text_schema
from palyra.core.errors import Invalid, NotFound, PalyraError, Unauthorized, Unavailable
from palyra.core.events.tool import FileBytes

PATH_LENGTH_MAX = 4096
DEPTH_MAX = 64  # Every component costs an open. Real trees are far flatter.
PATH_SCHEMA = text_schema(
    PATH_LENGTH_MAX,
    "A path inside the workspace, relative to its root (or absolute below it). Symbolic links are refused.",
)

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opening does not block, so that a pipe in a file's place cannot hold the thread.
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class WorkspacePath(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the workspace.

    `shown` names it the same way for everyone: relative to the first root if it lies there.
    """

    root: str
    parts: tuple[str, ...]
    shown: str

    @property
    def name(self) -> str:
        return self.parts[-1]


def locate(path: object, workspace: tuple[str, ...]) -> WorkspacePath:
    """Returns what the path means, without reading the disk.

    Raises Invalid or Unauthorized if it means nothing inside.
    """
    place = locate_folder(path, workspace)
    if not place.parts:
        raise Invalid("is_folder", "the path is the workspace itself; name a file in it")
    return place


def locate_folder(path: object, workspace: tuple[str, ...]) -> WorkspacePath:
    """Does the same for a path that may be a root itself. A root has no parts and is shown as a dot."""
    wanted = absolute(path, workspace)
    roots = [_normal(root) for root in workspace]
    # The outermost root counts. Whoever writes in it could replace a root within it by a link.
    holding = min((root for root in roots if _is_under(wanted, root)), key=len, default=None)
    if holding is None:
        raise Unauthorized("outside_workspace", f"{path!r} leads outside the workspace; use a path below its root")
    parts = tuple(part for part in wanted[len(holding) :].split("/") if part)
    if len(parts) > DEPTH_MAX:
        raise Invalid("path_too_deep", f"the path has {len(parts)} components, at most {DEPTH_MAX}")
    return WorkspacePath(root=holding, parts=parts, shown=_shown(wanted, roots[0]) or ".")


def absolute(path: object, workspace: tuple[str, ...]) -> str:
    """Returns the normalised path, wherever it leads."""
    if not workspace:
        raise Unavailable("workspace_missing", "this agent has no workspace; give it one in palyra.toml")
    if not isinstance(path, str) or not 1 <= len(path) <= PATH_LENGTH_MAX or "\x00" in path:
        raise Invalid("path_invalid", f"a path is text of 1 to {PATH_LENGTH_MAX} characters without NUL")
    try:
        path.encode()
    except UnicodeEncodeError as cause:
        raise Invalid("path_invalid", "the path is not valid Unicode") from cause
    return _normal(os.path.join(workspace[0], path))


def open_folder(place: WorkspacePath) -> AbstractContextManager[int]:
    """Opens the folder that holds the file. Errors inside the block are explained as this place's."""
    return _opened(place, place.parts[:-1], _open_existing)


def open_itself(place: WorkspacePath) -> AbstractContextManager[int]:
    """Opens the folder that the place itself is."""
    return _opened(place, place.parts, _open_existing)


def make_folder(place: WorkspacePath) -> AbstractContextManager[int]:
    """Opens the folder that holds the file, and creates the folders that are missing."""
    return _opened(place, place.parts[:-1], _open_or_create)


def open_file(folder: int, place: WorkspacePath) -> int:
    """Opens the file, which must be regular.

    It is checked before and after opening, because opening may have effects.
    """
    look(folder, place)
    file = os.open(place.name, _FILE_FLAGS, dir_fd=folder)
    try:
        _require_regular(os.fstat(file), place)
    except PalyraError:
        os.close(file)
        raise
    return file


def look(folder: int, place: WorkspacePath) -> os.stat_result:
    """Returns the status of the file, which must be regular. Raises FileNotFoundError if there is nothing."""
    found = os.stat(place.name, dir_fd=folder, follow_symlinks=False)
    _require_regular(found, place)
    return found


def read_bytes(file: int, bytes_max: int) -> bytes:
    """Reads at most so many bytes, whatever the file's size said."""
    pieces: list[bytes] = []
    left = bytes_max
    while left > 0 and (piece := os.read(file, min(left, 1 << 20))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def bytes_at(place: WorkspacePath, body: bytes) -> FileBytes:
    """Returns these bytes at this place, named the same way whichever link led to the root."""
    sha256 = hashlib.sha256(body).hexdigest()
    return FileBytes(root=os.path.realpath(place.root), path="/".join(place.parts), sha256=sha256)


_Step = Callable[[int, str, WorkspacePath], int]


@contextmanager
def _opened(place: WorkspacePath, parts: tuple[str, ...], step: _Step) -> Iterator[int]:
    with explained(place):
        folder = _walk(place, parts, step)
        try:
            yield folder
        finally:
            os.close(folder)


def _walk(place: WorkspacePath, parts: tuple[str, ...], step: _Step) -> int:
    try:
        folder = os.open(place.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError as cause:
        raise Unavailable("workspace_missing", "the workspace folder does not exist; create it") from cause
    for part in parts:
        try:
            inner = step(folder, part, place)
        finally:
            os.close(folder)
        folder = inner
    return folder


def _open_existing(folder: int, part: str, place: WorkspacePath) -> int:
    try:
        return os.open(part, FOLDER_FLAGS, dir_fd=folder)
    except OSError as cause:
        # The kernel says the same of a link and of a file here. This check is for the words only.
        if cause.errno in (errno.ENOTDIR, errno.ELOOP):
            raise _not_a_folder(folder, part, place) from cause
        raise


def _open_or_create(folder: int, part: str, place: WorkspacePath) -> int:
    try:
        return _open_existing(folder, part, place)
    except FileNotFoundError:
        pass
    try:
        os.mkdir(part, dir_fd=folder)
        os.fsync(folder)
    except FileExistsError:
        pass  # Somebody else made it meanwhile. Opening it tells whether it is a folder.
    return _open_existing(folder, part, place)


def _not_a_folder(folder: int, part: str, place: WorkspacePath) -> PalyraError:
    try:
        is_link = stat.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        is_link = False
    if is_link:
        return _link_refused(place)
    return Invalid("not_a_folder", f"{place.shown}: {part!r} is not a folder")


def _require_regular(found: os.stat_result, place: WorkspacePath) -> None:
    mode = found.st_mode
    if stat.S_ISREG(mode):
        return
    if stat.S_ISLNK(mode):
        raise _link_refused(place)
    if stat.S_ISDIR(mode):
        raise Invalid("is_folder", f"{place.shown} is a folder, not a file")
    raise Invalid("not_a_file", f"{place.shown} is a device, pipe or socket, not a file")


def _link_refused(place: WorkspacePath) -> PalyraError:
    return Unauthorized("symlink_refused", f"{place.shown} leads through a symbolic link; use the real path")


@contextmanager
def explained(place: WorkspacePath) -> Iterator[None]:
    """Turns errors of the operating system into our words."""
    try:
        yield
    except FileNotFoundError as cause:
        raise NotFound("not_found", f"there is no file {place.shown}") from cause
    except PermissionError as cause:
        raise Unauthorized("permission_denied", f"the daemon's user may not do that to {place.shown}") from cause
    except OSError as cause:
        if cause.errno == errno.ELOOP:
            raise _link_refused(place) from cause
        if cause.errno in (errno.EISDIR, errno.ENAMETOOLONG):
            raise Invalid("path_invalid", f"{place.shown}: {cause.strerror}") from cause
        raise Unavailable("io_error", f"{place.shown}: {cause.strerror}; check the disk") from cause


def _normal(path: str) -> str:
    """Normalises a path. POSIX lets two leading slashes mean something else; nowhere we run does."""
    return "/" + os.path.abspath(path).lstrip("/")


def _is_under(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _shown(path: str, root: str) -> str:
    return path[len(root) :].lstrip("/") if _is_under(path, root) else path
