"""Repositories of a workspace: folders that git takes for one under another name, and files that its settings name.

Owns: finding both. Does not own: what a name means (core.drafts.outside), links (known_links).
A repository without a working tree, or apart from it, is no `.git` folder, and git obeys its settings all the same. The
settings of `.git` may name further settings, hooks, filters and other programs that lie in the workspace.
The look-up is bounded: the folders above the paths that are asked about, and a few files of settings.
"""

import os
import re
from collections.abc import Iterable, Iterator

SETTINGS_MAX = 8
SETTINGS_BYTES_MAX = 64 * 1024
WORDS_MAX = 500
_INCLUDED = "path"
_PROGRAM_KEYS = frozenset(
    """
    hookspath fsmonitor sshcommand editor pager askpass attributesfile gitproxy path clean smudge process textconv command
    driver external program cmd helper tool update uploadpack receivepack templatedir vcs proccommand
    difffilter alternaterefscommand packobjectshook recentobjectshook defaultkeycommand tunnel tocmd cccmd headercmd
    smtpserver
    """.split()
)
_PROGRAM_SECTIONS = frozenset({"alias", "pager"})  # Their keys are names of git's commands.
_SECTION = re.compile(r"\s*\[([\w.-]++)[^\]]*+\]")
_SETTING = re.compile(r"\s*([\w-]+)\s*=\s*(.*)")
_BETWEEN_WORDS = re.compile(r"[\s\\\"'`;|&()<>=,!$]+")

Named = tuple[tuple[str, str], ...]  # A name below the root that git obeys, and the absolute path it stands for.


def find_repositories(root: str, paths: Iterable[str]) -> Named:
    """Returns the repositories above these absolute paths, each by the name it would have as a `.git` folder."""
    folders = _folders_above(root, paths)
    found = (folder for folder in sorted(folders) if _is_repository(f"{root}/{folder}".rstrip("/")))
    return tuple((f"{folder}/.git".lstrip("/"), f"{root}/{folder}".rstrip("/")) for folder in found)


def find_named(root: str, paths: Iterable[str]) -> Named:
    """Returns what lies in the root and is named by git's settings, or by settings they include.

    These are the settings of the repository that holds the root, and of those in it that hold one of the paths.
    """
    found: dict[str, None] = {}
    folders = sorted(f"{root}/{folder}".rstrip("/") for folder in _folders_above(root, paths))
    for folder in (*folders, *_parents(root)):
        git = _git_folder(f"{folder}/.git")
        if git is not None:
            named = (place for place in _named_by(folder, git) if place.startswith(f"{root}/"))
            found |= dict.fromkeys(place for place in named if not place.startswith(f"{git}/"))
    return tuple((".git/config", place) for place in found)


def _folders_above(root: str, paths: Iterable[str]) -> set[str]:
    folders = {""}
    for path in paths:
        parts = os.path.relpath(path, root).split("/")[:-1]
        if ".git" not in parts and ".." not in parts:
            folders |= {"/".join(parts[:count]) for count in range(1, len(parts) + 1)}
    return folders


def _parents(root: str) -> Iterator[str]:
    while root != (root := os.path.dirname(root)):
        yield root


def _git_folder(path: str) -> str | None:
    """Returns where git keeps a repository: there, or where a file in its place says. None if there is none."""
    if os.path.isdir(path):
        return path
    label, _, target = _read(path).strip().partition(": ") if os.path.isfile(path) else ("", "", "")
    return os.path.normpath(os.path.join(os.path.dirname(path), target)) if label == "gitdir" else None


def _named_by(folder: str, git: str) -> Iterator[str]:
    """Yields what the settings name. Their paths are relative to the working tree, or to the file itself."""
    shared = os.path.normpath(os.path.join(git, _read(f"{git}/commondir").strip()))
    pending, read = [f"{shared}/config", f"{git}/config.worktree"], set[str]()
    while pending and len(read) < SETTINGS_MAX:
        file = pending.pop()
        if file in read:
            continue
        read.add(file)
        for key, word in _words_of(file):
            path = os.path.expanduser(word)
            places = [os.path.normpath(os.path.join(base, path)) for base in (folder, os.path.dirname(file))]
            # A word that is a dot means no file, but the folder in which everything lies.
            there = [place for place in places if os.path.lexists(place) and not f"{folder}/".startswith(f"{place}/")]
            yield from there
            pending += there if key == _INCLUDED else []


def _is_repository(folder: str) -> bool:
    return os.path.lexists(f"{folder}/HEAD") and os.path.isdir(f"{folder}/objects") and os.path.isdir(f"{folder}/refs")


def _words_of(file: str) -> list[tuple[str, str]]:
    """Returns the words of all settings that name a program, a file or a folder, each with the name of its setting."""
    found: list[tuple[str, str]] = []
    section = ""
    for line in _read(file).replace("\\\n", " ").splitlines():
        heading = _SECTION.match(line)
        if heading is not None:
            section, line = heading[1].lower(), line[heading.end() :]
        setting = _SETTING.match(line)
        if setting is not None and (setting[1].lower() in _PROGRAM_KEYS or section in _PROGRAM_SECTIONS):
            found += [(setting[1].lower(), word) for word in _BETWEEN_WORDS.split(setting[2]) if word]
    return found[:WORDS_MAX]


def _read(file: str) -> str:
    try:
        handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError):  # A file that git reads may name a path in which there is a zero.
        return ""
    try:
        return os.read(handle, SETTINGS_BYTES_MAX).decode(errors="surrogateescape")
    except OSError:
        return ""
    finally:
        os.close(handle)
