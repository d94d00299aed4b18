"""The program of the searching process: walks a folder and finds lines.

Does not own: starting and killing the process (fs_search).
It gets the workspace's root as an open descriptor and its task as JSON on its input. It answers with one JSON document.
Everything is opened relative to its folder and without following links, so nothing that is replaced during the walk
leads out. The program imports little, because its start is most of a small search's time. The engine is linear; still,
the process ends by itself.
"""

import hashlib
import json
import os
import resource
import signal
import stat
import sys
from typing import TypedDict, cast

from palyra.adapters.files.ignore import Expression, compile_glob, keyed
from palyra.adapters.files.ignore_levels import IgnoreLevels, read_levels

CHUNK_BYTES = 4 * 1024 * 1024  # So much is held at once. A longer line is searched in pieces.
BINARY_LOOK_BYTES = 8 * 1024  # A NUL byte within these bytes shows that a file is no text. Git has the same rule.
PEEKED_ABOVE_BYTES = 128 * 1024  # A larger file is not read whole only to see that it is no text.
DEPTH_MAX = 64
MEMORY_BYTES_MAX = 2 * 1024 * 1024 * 1024
EXPRESSION_BYTES_MAX = 16 * 1024 * 1024
LIFE_S = 120  # The process ends then if nobody killed it before.
_NUMBER_BYTES = 12  # Allows for the line's number and the colons, about.

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class Task(TypedDict):
    root: int
    parts: list[str]
    pattern: str
    glob: str | None
    matches_max: int
    output_bytes_max: int
    line_length_max: int


class SearchReply(TypedDict):
    """`matches` holds the path below the searched folder (empty: the file itself), the line and the text.

    `hashes` has every file shown.
    """

    error: str | None
    matches: list[tuple[str, int, str]]
    hashes: dict[str, str]
    is_full: bool
    files_count: int
    unread_count: int


class FolderSearch:
    def __init__(self, task: Task) -> None:
        self._task = task
        self._expression = _compile(task["pattern"])
        glob = task["glob"]
        self._glob, self._is_glob_negated = compile_glob(glob) if glob is not None else (None, True)
        self._bytes_left = task["output_bytes_max"]
        self._start = 0
        self.answer = SearchReply(error=None, matches=[], hashes={}, is_full=False, files_count=0, unread_count=0)

    def run(self) -> None:
        """Walks from the root through the named folders, whose ignore files count too, into all that is below."""
        folder, path, levels = os.dup(self._task["root"]), b"", IgnoreLevels()
        try:
            for part in self._task["parts"]:
                levels = read_levels(folder, set(os.listdir(folder)), len(path), levels)
                try:
                    inner = os.open(part, _FOLDER_FLAGS, dir_fd=folder)
                except NotADirectoryError:
                    return self._search_file(folder, part, b"")
                os.close(folder)
                folder, path = inner, path + os.fsencode(part) + b"/"
            self._start = len(path)
            self._walk(folder, path, levels)
        finally:
            os.close(folder)

    def _walk(self, folder: int, path: bytes, levels: IgnoreLevels) -> None:
        found = _entries(folder)
        levels = read_levels(folder, found.keys(), len(path), levels)
        for name in sorted(found):
            is_folder = found[name]
            if is_folder is None or name.startswith("."):
                continue
            if self.answer["is_full"]:
                return
            try:
                inner = path + name.encode() + (b"/" if is_folder else b"")
            except UnicodeEncodeError:
                self.answer["unread_count"] += 1
                continue
            if not levels.is_ignored(inner):
                self._visit(folder, name, inner, levels)

    def _visit(self, folder: int, name: str, path: bytes, levels: IgnoreLevels) -> None:
        below = path[self._start :]
        if self._glob is not None and self._is_glob_negated and self._glob.fullmatch(keyed(below)) is not None:
            return
        if path.endswith(b"/"):
            self._descend(folder, name, path, levels)
        elif self._is_wanted(below):
            self._search_file(folder, name, below)

    def _is_wanted(self, below: bytes) -> bool:
        """Tells whether the globs want the path. A glob that names a folder means the files in it."""
        if self._is_glob_negated:
            return True
        if self._glob is None:
            return False
        ends = [at + 1 for at, letter in enumerate(below) if letter == ord("/")]
        return any(self._glob.fullmatch(keyed(below[:end])) is not None for end in (len(below), *ends))

    def _descend(self, folder: int, name: str, path: bytes, levels: IgnoreLevels) -> None:
        try:
            inner = os.open(name, _FOLDER_FLAGS, dir_fd=folder) if path.count(b"/") <= DEPTH_MAX else -1
        except OSError:
            inner = -1
        if inner < 0:
            # The folder is gone, was replaced by a link, is too deep, or may not be read.
            self.answer["unread_count"] += 1
            return
        try:
            self._walk(inner, path, levels)
        finally:
            os.close(inner)

    def _search_file(self, folder: int, name: str, below: bytes) -> None:
        try:
            file = os.open(name, _FILE_FLAGS, dir_fd=folder)
        except OSError:
            self.answer["unread_count"] += 1
            return
        try:
            looked = os.fstat(file)
            if stat.S_ISREG(looked.st_mode):
                # One byte more than there should be is asked for: a shorter answer shows that this was all.
                self._search_open(file, min(looked.st_size + 1, CHUNK_BYTES), below.decode())
        except OSError:
            self.answer["unread_count"] += 1
        finally:
            os.close(file)

    def _search_open(self, file: int, wanted_bytes: int, path: str) -> None:
        if wanted_bytes > PEEKED_ABOVE_BYTES and b"\x00" in os.pread(file, BINARY_LOOK_BYTES, 0):
            return
        chunk = os.read(file, wanted_bytes)
        if chunk.find(b"\x00", 0, BINARY_LOOK_BYTES) >= 0:
            return
        self.answer["files_count"] += 1
        before = len(self.answer["matches"])
        if len(chunk) < wanted_bytes:
            self._search_lines(chunk, 1, path)
            digest = None
        else:
            digest = self._search_large(file, chunk, path)
        if len(self.answer["matches"]) > before:
            self.answer["hashes"][path] = digest or hashlib.sha256(chunk).hexdigest()

    def _search_large(self, file: int, chunk: bytes, path: str) -> str:
        """Searches piece by piece, each ending with a line.

        The file is always read to its end, because its hash covers all of it.
        """
        digest, carry, line = hashlib.sha256(), b"", 1
        while chunk:
            digest.update(chunk)
            body = carry + chunk
            end = body.rfind(b"\n") + 1 or len(body)
            self._search_lines(body[:end], line, path)
            line += body.count(b"\n", 0, end)
            carry, chunk = body[end:], os.read(file, CHUNK_BYTES)
        self._search_lines(carry, line, path)
        return digest.hexdigest()

    def _search_lines(self, body: bytes, line: int, path: str) -> None:
        """Finds lines. The engine never matches a line feed, so a match lies in one line."""
        at = counted = 0
        end = len(body)
        while at < end and not self.answer["is_full"]:
            found = self._expression.search(body, at)
            start = found.start() if found is not None else end
            if found is None or (start == end and body.endswith(b"\n")):
                return
            begin = body.rfind(b"\n", 0, start) + 1
            stop = body.find(b"\n", start)
            at = end if stop < 0 else stop
            line += body.count(b"\n", counted, begin)
            counted = begin
            self._add(path, line, body[begin:at], start - begin)
            at += 1

    def _add(self, path: str, line: int, body: bytes, column: int) -> None:
        answer, length_max = self.answer, self._task["line_length_max"]
        text = _shown(body, column, length_max)
        self._bytes_left -= len(text.encode()) + len(path.encode()) + _NUMBER_BYTES
        if len(answer["matches"]) >= self._task["matches_max"] or self._bytes_left < 0:
            answer["is_full"] = True
        else:
            answer["matches"].append((path, line, text))


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    signal.alarm(LIFE_S)
    task = cast(Task, json.load(sys.stdin))
    answer = SearchReply(error=None, matches=[], hashes={}, is_full=False, files_count=0, unread_count=0)
    try:
        search = FolderSearch(task)
        answer = search.answer
        search.run()
    except ValueError as refused:
        answer["error"] = f"pattern_invalid {refused}"
    except OSError as refused:
        answer["error"] = f"not_found {refused.strerror}"
    json.dump(answer, sys.stdout)


def _compile(pattern: str) -> Expression:
    import re2  # type: ignore[import-untyped]

    options = re2.Options()
    options.never_nl = True
    options.never_capture = True
    options.log_errors = False
    options.max_mem = EXPRESSION_BYTES_MAX
    try:
        return cast(Expression, re2.compile(f"(?m){pattern}", options))
    except re2.error as cause:
        said = cause.args[0] if cause.args else b""
        raise ValueError(said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)) from cause


def _entries(folder: int) -> dict[str, bool | None]:
    """Returns the names, each with whether it is a folder; None for anything but a folder or a file."""
    with os.scandir(folder) as found:
        return {
            entry.name: True
            if entry.is_dir(follow_symlinks=False)
            else (False if entry.is_file(follow_symlinks=False) else None)
            for entry in found
        }


def _shown(body: bytes, column: int, length_max: int) -> str:
    """Returns the line, or so much of a long one that the match is seen."""
    text = body.removesuffix(b"\r")
    if len(text) <= length_max:
        return text.decode("utf-8", "replace")
    first = max(0, min(column - length_max // 4, len(text) - length_max))
    cut = text[first : first + length_max].decode("utf-8", "ignore")
    return f"{'[…] ' if first else ''}{cut} [… line of {len(text)} bytes]"


if __name__ == "__main__":
    main()
