"""Finds the roots of a workspace in which git is sure to use the root's own `.git`.

Does not own: what git may do there (core.shell).
If `.git` is missing or broken, git takes the root itself for a repository if it holds the right files. Most of those
files can be written without asking; `.git` cannot. So everything is read as git reads it, and no link is followed.
"""

import os
import re
import stat
from contextlib import ExitStack

_HEAD = re.compile(rb"ref:\s*refs/[^\s]+\s*|(?:[0-9a-f]{40}|[0-9a-f]{64})\s*")
_GITFILE = re.compile(rb"gitdir: (.+?)[\r\n]*", re.DOTALL)
_FILE_BYTES_MAX = 4096  # Limits a file that names a branch or a folder.
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def repositories_of(roots: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(root for root in roots if _is_repository(root))


def _is_repository(root: str) -> bool:
    with ExitStack() as opened:
        try:
            folder = os.open(root, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
            opened.callback(os.close, folder)
            mode = _mode(".git", folder)
            if stat.S_ISREG(mode):
                return _leads_well(_read(".git", folder), root)
            if not stat.S_ISDIR(mode):
                return False
            git = os.open(".git", _OPEN | os.O_DIRECTORY, dir_fd=folder)
            opened.callback(os.close, git)
            are_folders = all(stat.S_ISDIR(_mode(name, git)) for name in ("objects", "refs"))
            return are_folders and stat.S_ISREG(_mode("HEAD", git)) and bool(_HEAD.fullmatch(_read("HEAD", git)))
        except (OSError, ValueError):
            return False


def _leads_well(text: bytes, root: str) -> bool:
    """Checks the `.git` file of a worktree.

    The folder it names must lie in a `.git` too, or its settings could be written.
    """
    named = _GITFILE.fullmatch(text)
    if named is None:
        return False
    folder = os.path.normpath(os.path.join(os.path.realpath(root), os.fsdecode(named[1])))
    return ".git" in folder.split("/") and os.path.realpath(folder) == folder


def _mode(name: str, folder: int) -> int:
    return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode


def _read(name: str, folder: int) -> bytes:
    file = os.open(name, _OPEN, dir_fd=folder)
    try:
        return os.read(file, _FILE_BYTES_MAX)
    finally:
        os.close(file)
