"""The vault's passphrase: where it is searched for, and asking for it on a terminal.

Does not own: what it opens (adapters.vault).
The sources are a variable, a file that a variable names, and a terminal, in this order. The file is read at every use,
so that a daemon can be given a new passphrase without a restart.
"""

import getpass
import os
import signal
import stat
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from palyra.core.errors import Invalid, Unavailable

PASSPHRASE_VARIABLE = "PALYRA_VAULT_PASSPHRASE"  # noqa: S105 - the name of a variable
PASSPHRASE_FILE_VARIABLE = "PALYRA_VAULT_PASSPHRASE_FILE"  # noqa: S105 - the name of a variable
FILE_BYTES_MAX = 8192

# The group may read: a service supervisor passes a file by an access list, which shows as a right of the group.
_TOO_OPEN = stat.S_IRWXO | stat.S_IWGRP

AskPerson = Callable[[], str]


class Passphrases:
    def __init__(self, environ: Mapping[str, str], ask_person: AskPerson | None) -> None:
        self._environ = environ
        self._ask_person = ask_person

    def ask(self) -> str:
        given = self._environ.get(PASSPHRASE_VARIABLE)
        if given:
            return given
        path = self._environ.get(PASSPHRASE_FILE_VARIABLE)
        if path:
            return _read(Path(path))
        if self._ask_person is not None:
            return self._ask_person()
        raise Unavailable(
            "vault_passphrase_missing",
            f"the vault has a passphrase; set {PASSPHRASE_FILE_VARIABLE} to a file that holds it, or "
            f"{PASSPHRASE_VARIABLE}, or start this on a terminal",
            is_retryable=False,
        )

    def leave_person_alone(self) -> None:
        """Asks nobody from now on: a daemon that serves must not wait for a terminal."""
        self._ask_person = None


def person_at_terminal() -> AskPerson | None:
    """Returns a function that asks for the passphrase; None if nobody can be asked."""
    return (lambda: ask_hidden("Passphrase of the vault: ")) if is_terminal() else None


def is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def ask_hidden(question: str) -> str:
    """Asks without showing what is typed. If hiding is not possible, nothing is asked."""
    try:
        with _interruptible(), warnings.catch_warnings():
            warnings.simplefilter("error", getpass.GetPassWarning)
            return getpass.getpass(question)
    except getpass.GetPassWarning as cause:
        message = "this terminal would show what you type; give it by standard input, a variable or a file instead"
        raise Unavailable("terminal_unsuited", message, is_retryable=False) from cause
    except (EOFError, UnicodeDecodeError):
        raise Invalid("nothing_given", "nothing was typed; nothing was changed") from None


@contextmanager
def _interruptible() -> Iterator[None]:
    """Lets Ctrl-C end the question, also where an event loop has taken over the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before if before is not None else signal.default_int_handler)


def _read(path: Path) -> str:
    """Reads the file, which may be a pipe that a shell made."""
    named = f"{path}, which {PASSPHRASE_FILE_VARIABLE} names,"
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & _TOO_OPEN:
                message = f"{named} is open to others (mode {mode:04o}); run: chmod 600 {path}"
                raise Unavailable("vault_passphrase_exposed", message, is_retryable=False)
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as cause:
        message = f"{named} cannot be read ({cause.strerror}); correct the variable or the file"
        raise Unavailable("vault_passphrase_missing", message, is_retryable=False) from cause
    try:
        text = data.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        text = ""
    if not text or len(data) > FILE_BYTES_MAX:
        raise Unavailable("vault_passphrase_missing", f"{named} holds no passphrase", is_retryable=False)
    return text
