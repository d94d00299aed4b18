"""Processes of bubblewrap that a killed daemon left.

Owns: the mark by which a daemon knows the sandboxes of its own home, and ending those of the daemon before it.
Does not own: commands (child). Those end with their daemon, or never begin: what is left waits for its dead parent.
"""

import hashlib
import os
import signal
from contextlib import suppress
from pathlib import Path

_MARK_LENGTH = 16


def mark_options(home: str) -> tuple[str, str]:
    """Returns an option that changes nothing. It stands in the list of processes, and the command cannot see it."""
    return "--unsetenv", f"palyra_{hashlib.sha256(os.fsencode(home)).hexdigest()[:_MARK_LENGTH]}"


def end_left(home: str) -> int:
    """Kills every sandbox of this home, and returns their number. Only a daemon that has begun none may call this."""
    wanted = b"\0" + b"\0".join(os.fsencode(word) for word in mark_options(home)) + b"\0"
    count = 0
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (place / "cmdline").read_bytes():
                os.kill(int(place.name), signal.SIGKILL)
                count += 1
    return count
