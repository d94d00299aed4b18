"""The history of lines typed in chats, in a private file that outlives restarts.

Owns: the form of the file: one JSON string a line, the newest last.
Does not own: which lines are remembered (prompt), or browsing them (prompt_toolkit).
Invariants: only the owner can read the file; it holds a bounded number of lines; a line with a secret is not written.
"""

import errno
import os
import stat
from pathlib import Path

import msgspec
from prompt_toolkit.history import History

from palyra.core.redaction import Redactor
from palyra.ports.tokens import TOKEN_PREFIX

LINES_MAX = 1000
LINE_BYTES_MAX = 16 * 1024  # Longer text was pasted, and nobody browses it.
FILE_BYTES_MAX = LINES_MAX * LINE_BYTES_MAX


class ChatHistory(History):
    """If the file cannot be read or written, the chat continues without history."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._lines_count = 0
        self._redactor = Redactor(b"")  # Its markers are dropped, so they need no key.

    def load_history_strings(self) -> list[str]:
        """Returns the newest line first, as prompt_toolkit requires."""
        lines = self._read()
        self._lines_count = len(lines)
        return lines[: -LINES_MAX - 1 : -1]

    def store_string(self, string: str) -> None:
        encoded = msgspec.json.encode(string) + b"\n"
        if len(encoded) > LINE_BYTES_MAX or self._holds_secret(string):
            return
        try:
            self._write(self._path, encoded, os.O_APPEND)
            self._lines_count += 1
            if self._lines_count > 2 * LINES_MAX:
                self._shorten()
        except OSError:
            return

    def _holds_secret(self, line: str) -> bool:
        """Finds secrets.

        The daemon's tokens are found by prefix, since the redactor needs the word "token" before them.
        """
        return TOKEN_PREFIX in line or bool(self._redactor.text(line).secrets)

    def _read(self) -> list[str]:
        try:
            with os.fdopen(_opened(self._path, os.O_RDONLY), "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - FILE_BYTES_MAX))
                return [line for each in file.read().splitlines() if (line := _decoded(each))]
        except OSError:
            return []

    def _shorten(self) -> None:
        lines = self._read()[-LINES_MAX:]
        fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        fresh.unlink(missing_ok=True)  # A killed chat of the same process id may have left it.
        self._write(fresh, b"".join(msgspec.json.encode(line) + b"\n" for line in lines), os.O_EXCL)
        fresh.replace(self._path)
        self._lines_count = len(lines)

    def _write(self, path: Path, encoded: bytes, flag: int) -> None:
        with os.fdopen(_opened(path, os.O_WRONLY | os.O_CREAT | flag), "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(encoded)


def _opened(path: Path, flags: int) -> int:
    """Opens a plain file of its own. A link or a pipe in its place is refused and is never waited for."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a plain file of its own", str(path))
    return descriptor


def _decoded(line: bytes) -> str:
    try:
        return msgspec.json.decode(line, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
