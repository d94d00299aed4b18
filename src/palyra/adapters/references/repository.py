"""Finds the repository around a path, and makes a private copy of what a diff needs of it.

Does not own: running git (git_program).
The settings of a repository can name programs that git runs: filters, diff drivers, monitors, pagers, hooks. So git is
never shown the repository's own `.git`. It gets a private folder with a copy of the index, the last commit's id, our
settings and our attributes. Only the repository's objects and its working tree are used in place, both by descriptors
that were opened without following links.
Invariant: no byte of the repository's settings, hooks or attributes in `.git` reaches git.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from palyra.adapters.files.workspace import FOLDER_FLAGS, WorkspacePath, explained, read_bytes
from palyra.core.errors import Invalid, NotFound, PalyraError, Unauthorized

INDEX_BYTES_MAX = 64 * 1024 * 1024
PACKED_REFS_BYTES_MAX = 32 * 1024 * 1024
SMALL_BYTES_MAX = 64 * 1024
LINKS_MAX = 5  # A name of a branch that stands for another name. Git has the same limit.
GIT = ".git"
UNSUPPORTED = "repository_unsupported"

_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_COMMIT = re.compile(rb"(?:[0-9a-f]{64}|[0-9a-f]{40})\s*")
_SYMBOLIC = re.compile(rb"ref: (refs/[!-~]+)\s*")
_SHA256 = re.compile(rb"^\s*objectformat\s*=\s*\"?sha256", re.IGNORECASE | re.MULTILINE)
_CONFIG = "[core]\n\trepositoryformatversion = 0\n"
_CONFIG_SHA256 = "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectFormat = sha256\n"
# Attributes of this file outrank those of the working tree. They turn off what could run a program or a driver.
_ATTRIBUTES = "* -filter !diff !merge -working-tree-encoding\n"


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A repository as a diff sees it. `tree` and `objects` are open descriptors; `private` is what git takes for `.git`.

    `below` are the parts of the repository's folder below the workspace's root. `commit` is None before the first one.
    """

    tree: int
    objects: int
    private: Path
    root: str
    below: tuple[str, ...]
    commit: str | None


@contextmanager
def open_snapshot(place: WorkspacePath) -> Iterator[Snapshot]:
    """Opens the innermost repository that the place lies in. The place itself need not exist any more."""
    with ExitStack() as opened:
        with explained(place):
            snapshot = _open(place, opened)
        yield snapshot


def _open(place: WorkspacePath, opened: ExitStack) -> Snapshot:
    tree, depth = _open_tree(place)
    opened.callback(os.close, tree)
    git = _open_git(tree)
    opened.callback(os.close, git)
    objects = _open_objects(git)
    opened.callback(os.close, objects)
    private = Path(opened.enter_context(TemporaryDirectory(prefix="palyra-diff-")))
    return Snapshot(
        tree=tree,
        objects=objects,
        private=private,
        root=place.root,
        below=place.parts[:depth],
        commit=_copy(git, private),
    )


def _open_tree(place: WorkspacePath) -> tuple[int, int]:
    """Walks down as far as there are folders. Returns the innermost one with a `.git`, and how deep it lies."""
    found: list[tuple[int, int]] = []
    folder = os.open(place.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for depth in range(len(place.parts) + 1):
            if _kind(folder, GIT) is not None:
                found.append((os.dup(folder), depth))
            if depth == len(place.parts) or _kind(folder, place.parts[depth]) != stat.S_IFDIR:
                break
            inner = os.open(place.parts[depth], FOLDER_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = inner
    finally:
        os.close(folder)
        for outer, _ in found[:-1]:
            os.close(outer)
    if not found:
        raise NotFound("not_a_repository", f"{place.shown} lies in no git repository of the workspace")
    return found[-1]


def _open_git(tree: int) -> int:
    if _kind(tree, GIT) != stat.S_IFDIR:
        raise Invalid(
            UNSUPPORTED, "its .git is a link or a file, so the repository lies elsewhere; refer to files instead"
        )
    git = os.open(GIT, FOLDER_FLAGS, dir_fd=tree)
    if _kind(git, "commondir") is not None or _kind(git, "reftable") is not None:
        os.close(git)
        raise Invalid(UNSUPPORTED, "the repository is of a form that references do not read; refer to files instead")
    return git


def _open_objects(git: int) -> int:
    """Opens the folder of objects. Objects that are borrowed from elsewhere would lead outside the workspace."""
    objects = os.open("objects", FOLDER_FLAGS, dir_fd=git)
    try:
        _require_own_objects(objects)
    except (PalyraError, OSError):
        os.close(objects)
        raise
    return objects


def _require_own_objects(objects: int) -> None:
    if _kind(objects, "pack") not in (None, stat.S_IFDIR) or _kind(objects, "info") not in (None, stat.S_IFDIR):
        raise Unauthorized(UNSUPPORTED, "the repository's objects are links, which may lead outside the workspace")
    if _kind(objects, "info") is None:
        return
    folder = os.open("info", FOLDER_FLAGS, dir_fd=objects)
    try:
        if _kind(folder, "alternates") is not None:
            raise Unauthorized(UNSUPPORTED, "the repository borrows objects from another one; refer to files instead")
    finally:
        os.close(folder)


def _copy(git: int, private: Path) -> str | None:
    """Writes the private folder, and returns the id of the last commit."""
    is_sha256 = _SHA256.search(_read(git, "config", SMALL_BYTES_MAX) or b"") is not None
    for name in ("refs", "info", "hooks", "objects"):
        (private / name).mkdir()
    (private / "HEAD").write_text("ref: refs/heads/none\n")
    (private / "config").write_text(_CONFIG_SHA256 if is_sha256 else _CONFIG)
    (private / "info" / "attributes").write_text(_ATTRIBUTES)
    _copy_index(git, private / "index")
    return _find_commit(git)


def _copy_index(git: int, copy: Path) -> None:
    """Copies the index with its time. By it, git tells which files may have changed in the same moment."""
    body = _read(git, "index", INDEX_BYTES_MAX)
    if body is None:
        return
    modified_at_ns = os.stat("index", dir_fd=git, follow_symlinks=False).st_mtime_ns
    copy.write_bytes(body)
    os.utime(copy, ns=(modified_at_ns, modified_at_ns))


def _find_commit(git: int) -> str | None:
    said = _read(git, "HEAD", SMALL_BYTES_MAX)
    for _ in range(LINKS_MAX):
        if said is None:
            return None
        if _COMMIT.fullmatch(said):
            return said.split()[0].decode()
        symbolic = _SYMBOLIC.fullmatch(said)
        if symbolic is None:
            raise Invalid(UNSUPPORTED, "the repository's HEAD cannot be read; refer to files instead")
        said = _read_ref(git, symbolic[1])
    raise Invalid(UNSUPPORTED, "the repository's HEAD leads in a circle")


def _read_ref(git: int, name: bytes) -> bytes | None:
    loose = _read_below(git, name.decode().split("/"))
    if loose is not None:
        return loose
    packed = _read(git, "packed-refs", PACKED_REFS_BYTES_MAX) or b""
    found = re.search(rb"^([0-9a-f]{40,64}) " + re.escape(name) + rb"$", packed, re.MULTILINE)
    return found[1] if found is not None else None


def _read_below(git: int, parts: list[str]) -> bytes | None:
    if any(part in ("", ".", "..") for part in parts):
        raise Invalid(UNSUPPORTED, "the repository's HEAD names no branch; refer to files instead")
    folder = os.dup(git)
    try:
        for part in parts[:-1]:
            if _kind(folder, part) != stat.S_IFDIR:
                return None
            inner = os.open(part, FOLDER_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = inner
        return _read(folder, parts[-1], SMALL_BYTES_MAX)
    finally:
        os.close(folder)


def _read(folder: int, name: str, bytes_max: int) -> bytes | None:
    """Reads a regular file; None if there is nothing."""
    kind = _kind(folder, name)
    if kind is None:
        return None
    if kind != stat.S_IFREG:
        raise Unauthorized(UNSUPPORTED, f"{name} of the repository is no regular file")
    file = os.open(name, _FILE_FLAGS, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise Unauthorized(UNSUPPORTED, f"{name} of the repository is no regular file")
        body = read_bytes(file, bytes_max + 1)
    finally:
        os.close(file)
    if len(body) > bytes_max:
        raise Invalid(UNSUPPORTED, f"{name} of the repository is larger than {bytes_max} bytes")
    return body


def _kind(folder: int, name: str) -> int | None:
    try:
        return stat.S_IFMT(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None
