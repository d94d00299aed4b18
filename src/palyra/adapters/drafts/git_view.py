"""A repository before and after a draft, and git itself in a private folder to ask about its objects.

Owns: reading a file as it is or as the draft leaves it, finding repositories, and running git so that nothing else runs.
Does not own: what is asked (git_changes, git_objects), the settings that keep git quiet (files.git_settings).
Git is never shown the repository's own `.git`: its private folder holds copies. The objects are read in place, first
those of the draft. Each of them is checked against its name when the draft is sealed.
"""

import os
import re
import resource
import signal
import stat
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from palyra.adapters.drafts.tree import Tree
from palyra.adapters.files.archives import FILE_FLAGS
from palyra.adapters.files.git_settings import MEMORY_BYTES_MAX, environment, find_git, setting_words
from palyra.core.drafts.changes import is_folder
from palyra.core.errors import PalyraError
from palyra.core.events.draft import ChangeKind, FileChange

GIT_S = 20.0
OUTPUT_BYTES_MAX = 512 * 1024**2
FILE_BYTES_MAX = 128 * 1024**2  # Of an index, of packed refs, of a log.
ENTRIES_MAX = 200_000  # Of refs in a repository.
_SHA256 = re.compile(rb"^\s*objectformat\s*=\s*\"?sha256", re.IGNORECASE | re.MULTILINE)
_WORKTREE = re.compile(rb"^\s*worktree\s*=\s*\"?([^\"\n#;]+)", re.IGNORECASE | re.MULTILINE)
_CONFIG = "[core]\n\trepositoryformatversion = 0\n"
_CONFIG_SHA256 = "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectFormat = sha256\n"


class GitUnknownError(Exception):
    """Git could not tell. What it was asked about counts as if it were hidden."""


class LayeredFiles:
    """The files of roots, before a draft and after it."""

    def __init__(self, uppers: dict[str, str], changes: Iterable[FileChange]) -> None:
        self.uppers = uppers
        self.changes = tuple(changes)

    @cached_property
    def named(self) -> dict[tuple[str, str], FileChange]:
        return {(each.root, each.path): each for each in self.changes}

    def before(self, root: str, path: str) -> bytes | None:
        """Returns what lies there now; None if there is no file."""
        with suppress(OSError), Tree(root) as tree, tree.folder_of(path) as (folder, name):
            return _read_file(os.open(name, FILE_FLAGS, dir_fd=folder))
        return None

    def after(self, root: str, path: str) -> bytes | None:
        """Returns what the draft leaves there; None if there is no file, or a link."""
        change = self.named.get((root, path))
        if change is None:
            return self.before(root, path)
        if change.kind in (ChangeKind.DELETED, ChangeKind.LINKED):
            return None
        return _read_file(os.open(f"{self.uppers[root]}/{path}", FILE_FLAGS))

    def exists(self, root: str, path: str) -> bool:
        """Tells whether something is there after the draft."""
        for place in (self.uppers[root], root):
            with suppress(FileNotFoundError, NotADirectoryError):
                mode = os.lstat(f"{place}/{path}").st_mode
                return not stat.S_ISCHR(mode)
        return False


def _read_file(file: int) -> bytes | None:
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            return None
        if found.st_size > FILE_BYTES_MAX:
            raise GitUnknownError("a file is too large to be looked into")
        pieces = []
        while piece := os.read(file, 1 << 20):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(file)


class RepositoryView:
    """One repository of a root. `path` is its folder below the root, with a slash behind it unless it is the root."""

    def __init__(self, files: LayeredFiles, root: str, path: str, changes: tuple[FileChange, ...]) -> None:
        self.files = files
        self.root = root
        self.path = path
        self.changes = changes  # Those in its folder.

    @cached_property
    def id_bytes(self) -> int:
        """How long the ids of its objects are."""
        return 32 if _SHA256.search(self.before("config") or self.after("config") or b"") else 20

    def inside(self, change: FileChange) -> str:
        return change.path[len(self.path) :]

    def before(self, name: str) -> bytes | None:
        return self.files.before(self.root, self.path + name)

    def after(self, name: str) -> bytes | None:
        return self.files.after(self.root, self.path + name)

    def worktree_of(self, place: str) -> str | None:
        """Returns the folder of the working tree below the root, with a slash behind it; None if there is none there.

        `place` is the folder of a linked working tree within the repository, or empty for its own.
        """
        if place:
            said = (self.before(f"{place}gitdir") or self.after(f"{place}gitdir") or b"").decode(errors="replace")
            return self._below_root(os.path.dirname(os.path.join(self._whole(place), said.strip())))
        named = _WORKTREE.search(self.before("config") or self.after("config") or b"")
        if named is not None:
            return self._below_root(os.path.join(self._whole(""), named[1].decode(errors="replace").strip()))
        name = self.path.rstrip("/").rpartition("/")[2]
        return self.path[: -len(name) - 1] if name == ".git" else None

    def _whole(self, place: str) -> str:
        return f"{self.root.rstrip('/')}/{self.path}{place}"

    def _below_root(self, folder: str) -> str | None:
        below = os.path.relpath(os.path.normpath(folder), self.root)
        if below.startswith(".."):
            return None
        return "" if below == "." else f"{below}/"

    def names_before(self, folder: str) -> Iterator[str]:
        """Yields the files below a folder of the repository as it is now."""
        top, count = self._whole(""), 0
        for place, folders, names in os.walk(top + folder):
            folders.sort()
            for name in names:
                count += 1
                if count > ENTRIES_MAX:
                    raise GitUnknownError("there are too many refs to be looked through")
                yield f"{place}/{name}"[len(top) :]

    @contextmanager
    def git(self) -> Iterator["GitRunner"]:
        """Yields git for the objects of this repository, with those of the draft."""
        with TemporaryDirectory(prefix="palyra-git-") as name:
            private = Path(name)
            for folder in ("refs", "objects"):
                (private / folder).mkdir()
            (private / "HEAD").write_text("ref: refs/heads/none\n")
            (private / "config").write_text(_CONFIG if self.id_bytes == 20 else _CONFIG_SHA256)
            shallow = self.before("shallow") or self.after("shallow")
            if shallow:
                (private / "shallow").write_bytes(shallow)
            stores = [f"{place.rstrip('/')}/{self.path}objects" for place in (self.files.uppers[self.root], self.root)]
            yield GitRunner(private, [store for store in stores if os.path.isdir(store)])


class GitRunner:
    """Runs git on a private folder. `private` may be written to; `stores` are only read."""

    def __init__(self, private: Path, stores: list[str]) -> None:
        self.private = private
        self._stores = stores

    def run(self, *words: str, stdin: bytes = b"", index: str | None = None) -> bytes:
        """Returns what git prints. Raises GitUnknownError if it fails, takes too long or prints too much."""
        body, status = self._run(words, stdin, index)
        if status != 0:
            raise GitUnknownError(f"git {words[0]} failed")
        return body

    def alone(self) -> "GitRunner":
        """Returns git for the objects of its private folder only."""
        return GitRunner(self.private, [])

    def tell(self, *words: str) -> bool:
        """Tells whether git agrees."""
        return self._run(words, b"", None)[1] == 0

    def _run(self, words: tuple[str, ...], stdin: bytes, index: str | None) -> tuple[bytes, int]:
        variables = environment(str(self.private), str(self.private / "objects"))
        variables["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = ":".join(map(_quote, self._stores))
        if index is not None:
            variables["GIT_INDEX_FILE"] = str(self.private / index)
        with TemporaryFile(dir=self.private) as given, TemporaryFile(dir=self.private) as found:
            given.write(stdin)
            given.seek(0)
            try:
                child = subprocess.Popen(  # noqa: S603 the program is the system's, and the words are ours
                    [find_git(), "--no-pager", *setting_words(), *words],
                    stdin=given,
                    stdout=found,
                    stderr=subprocess.DEVNULL,
                    env=variables,
                    cwd=self.private,
                    start_new_session=True,
                )
            except (PalyraError, OSError) as cause:
                raise GitUnknownError("git cannot be started") from cause
            status = _wait(child)
            found.seek(0)
            return found.read(OUTPUT_BYTES_MAX), status


def _wait(child: subprocess.Popen[bytes]) -> int:
    try:
        with suppress(OSError):
            resource.prlimit(child.pid, resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
            resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (OUTPUT_BYTES_MAX, OUTPUT_BYTES_MAX))
        return child.wait(timeout=GIT_S)
    except subprocess.TimeoutExpired as cause:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        raise GitUnknownError("git took too long") from cause


def _quote(path: str) -> str:
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def find_views(files: LayeredFiles) -> list[RepositoryView]:
    """Returns the repositories that changes lie in, as the draft leaves them. The name of their folder does not matter."""
    known: dict[tuple[str, str], bool] = {}
    found: dict[tuple[str, str], list[FileChange]] = {}
    for change in files.changes:
        if is_folder(change):
            continue
        place = change.path
        while place:
            place = place[: place.rstrip("/").rfind("/") + 1]
            key = (change.root, place)
            if key not in known:
                known[key] = _is_repository(files, *key)
            if known[key]:
                found.setdefault(key, []).append(change)
    return [RepositoryView(files, root, path, tuple(changes)) for (root, path), changes in found.items()]


def _is_repository(files: LayeredFiles, root: str, path: str) -> bool:
    """Tells whether a folder is a repository before or after the draft. A `.git` is one while it lacks something too."""
    if path.endswith("/.git/") or path == ".git/":
        return True
    parts = [f"{path}{name}" for name in ("HEAD", "objects", "refs")]
    return all(files.exists(root, part) for part in parts) or all(os.path.lexists(f"{root}/{part}") for part in parts)
