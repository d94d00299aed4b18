"""Paths as words. Owns: where a path leads, by its letters alone. Not: links and mounts, which the sandbox holds.

Nothing is looked up on a disk: a link inside the workspace that leads out of it is the sandbox's business.
"""

import posixpath
import re
from collections.abc import Iterable
from enum import Enum
from fnmatch import fnmatchcase

# Installed software: the same for every user of the machine, and nobody's own.
SYSTEM_FOLDERS = (
    "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64",
    "/usr/libexec", "/usr/include", "/usr/share", "/usr/src", "/usr/local/bin", "/usr/local/lib", "/usr/local/include",
    "/usr/local/share",
)  # fmt: skip
PROGRAM_FOLDERS = ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/opt/homebrew/bin")
_DEVICES = re.compile(r"/dev/(?:null|zero|full|random|urandom|stdin|stdout|stderr|fd/[0-9]+)")
_SINKS = re.compile(r"/dev/(?:null|stdout|stderr|fd/[12])")
_WILD = re.compile(r"[*?\[]")


class Reach(Enum):
    INSIDE = "inside"
    SYSTEM = "system"
    DEVICE = "device"
    OUTSIDE = "outside"


def resolve(path: str, folder: str) -> str:
    joined = posixpath.normpath(posixpath.join(folder, path or "."))
    return "/" + joined.lstrip("/")  # POSIX lets `//x` be something else; to the kernels we know it is `/x`.


def is_under(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or folder == "/" or path.startswith(folder + "/") for folder in folders)


def reach_of(path: str, roots: Iterable[str]) -> Reach:
    """Where an absolute, normal path leads."""
    if _DEVICES.fullmatch(path):
        return Reach.DEVICE
    if is_under(path, roots):
        return Reach.INSIDE
    return Reach.SYSTEM if is_under(path, SYSTEM_FOLDERS) else Reach.OUTSIDE


def readings(path: str, *, is_pattern: bool) -> tuple[str, ...]:
    """The path, and if it is a pattern whose parts may match `..`, the path it is then."""
    if not is_pattern:
        return (path,)
    parts = path.split("/")
    up = [".." if _WILD.search(part) and part.startswith(".") and may_match("..", part) else part for part in parts]
    return (path,) if up == parts else (path, "/".join(up))


def may_match(name: str, pattern: str) -> bool:
    """Whether a pattern may match a name. Between brackets shells know more than Python, so there anything may stand."""
    return fnmatchcase(name, re.sub(r"\[.*", "*", pattern))


def is_sink(path: str) -> bool:
    """Where output may go without a trace."""
    return bool(_SINKS.fullmatch(path))


def looks_outside(text: str) -> bool:
    """Whether a word that need not be a path would lead away if it were one."""
    return text.startswith(("/", "~")) or ".." in text.split("/")
