"""Finds which changes of a draft no review of the workspace would show.

Owns: reading their content, git's rules for what it ignores, the marks by which tools name a folder their own.
Does not own: the rule for a name and a content (core.drafts.review), the layer of a session (adapters.drafts.layers).
Git's rules are those of the workspace and, besides, those that the draft would leave: what either ignores is ignored.
A file that cannot be read counts as unseen.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from palyra.adapters.files.archives import FILE_FLAGS
from palyra.adapters.files.ignore import IGNORE_BYTES_MAX, IgnoreRules
from palyra.adapters.files.ignore_levels import IgnoreLevel, IgnoreLevels
from palyra.adapters.files.workspace import WorkspacePath
from palyra.core.drafts.changes import Place, is_folder, place_of
from palyra.core.drafts.known_formats import is_known_format
from palyra.core.drafts.review import (
    MARKERS,
    Unseen,
    folders_above,
    is_drop,
    is_output,
    read_bytes_max,
    stays_asked,
    unseen_name,
    unseen_reason,
)
from palyra.core.events.draft import ChangeKind, FileChange

_CONTENT = (ChangeKind.CREATED, ChangeKind.MODIFIED)
_EXCLUDES = re.compile(r"^\s*excludesfile\s*=\s*\"?([^\"\n]+?)\"?\s*$", re.IGNORECASE | re.MULTILINE)
HEAD_BYTES = 8192


def find_unseen(
    changes: Sequence[FileChange], uppers: Mapping[str, str], layers: Mapping[str, str]
) -> dict[Place, Unseen]:
    """Returns root and path of each change that no review shows. `layers` names the session's layer of a root, if any."""
    looks = {root: _Look(root, upper, layers.get(root, "")) for root, upper in uppers.items()}
    found: dict[Place, Unseen] = {}
    for change in changes:
        reason = None if is_drop(change) else looks[change.root].reason(change)
        if reason is not None and not stays_asked(change.path, reason):
            found[place_of(change)] = reason
    return found


def is_unseen_write(place: WorkspacePath, text: str | None) -> bool:
    """Tells whether no review would show the file with this text, or without one that it is deleted."""
    look, path = _Look(place.root, "", ""), "/".join(place.parts)
    reason = look.name_reason(path)
    if reason is None and text is not None:
        reason = look.content_reason(path, text.encode(errors="surrogatepass"))
    return reason is not None


class _Look:
    """One root with its upper folder and its layer."""

    def __init__(self, root: str, upper: str, layer: str) -> None:
        self._upper = upper
        self._places = tuple(place for place in (upper, layer, root) if place)
        top = _top_of(root)
        self._real = _Ignored(root, top, (root,))
        self._wanted = _Ignored(root, top, self._places) if len(self._places) > 1 else self._real
        self._marked: dict[str, bool] = {}
        self._undiffed = _Undiffed(root, top or root)
        self._has_git = top is not None

    def reason(self, change: FileChange) -> Unseen | None:
        path = change.path
        reason = self.name_reason(path)
        if reason is not None or ".git" in path.casefold().rstrip("/").split("/"):
            return reason
        if change.kind is not ChangeKind.DELETED and is_output(path, change.mode):
            return Unseen.OUTPUT
        if change.kind not in _CONTENT or is_folder(change):
            return None
        return self._read_reason(path)

    def name_reason(self, path: str) -> Unseen | None:
        if ".git" in path.casefold().rstrip("/").split("/"):
            return None
        named = unseen_name(path)
        if named is not None or any(map(self._is_marked, (*folders_above(path), path))):
            return named or Unseen.CACHE
        if self._real.holds(path) or (self._wanted is not self._real and self._wanted.holds(path)):
            return Unseen.IGNORED
        return None

    def content_reason(self, path: str, body: bytes, size: int | None = None) -> Unseen | None:
        reason = unseen_reason(path, body, size, has_git=self._has_git or self._real.has_git(path))
        if reason is None and self._undiffed.holds(path) and not is_known_format(path, body):
            return Unseen.UNDIFFED
        return reason

    def _read_reason(self, path: str) -> Unseen | None:
        try:
            file = os.open(f"{self._upper}/{path}", FILE_FLAGS)
        except OSError:
            return Unseen.BINARY
        with open(file, "rb") as reader:
            size, length_max = os.fstat(file).st_size, read_bytes_max(path)
            body = reader.read(length_max if size <= length_max else HEAD_BYTES)
        return self.content_reason(path, body, size)

    def _is_marked(self, folder: str) -> bool:
        if not folder.endswith("/"):
            return False
        if folder not in self._marked:
            names = (f"{place}/{folder}{name}" for place in self._places for name in MARKERS)
            self._marked[folder] = any(map(_is_file, names))
        return self._marked[folder]


class _Ignored:
    """Git's rules as they stand in the first of `places` that has a file of them."""

    def __init__(self, root: str, top: str | None, places: tuple[str, ...]) -> None:
        self._root, self._places = root, places
        self._prefix = f"{os.path.relpath(root, top)}/" if top is not None and top != root else ""
        self._levels: dict[str, IgnoreLevels | None] = {}
        self._verdicts: dict[str, bool] = {"": False}
        if top is not None:
            above = [_rules(text, 0) for text in _excludes(top)]
            folders = [""] + [
                "/".join(self._prefix.split("/")[:count]) + "/" for count in range(1, self._prefix.count("/"))
            ]
            own = [
                _rules(_read(f"{top}/{folder}.gitignore"), len(folder.encode())) for folder in folders if self._prefix
            ]
            self._levels[""] = self._with_own(IgnoreLevels(git=(*reversed(own), *above)), "", self._prefix)
        else:
            self._levels[""] = None

    def has_git(self, path: str) -> bool:
        return self._levels_of(path.rpartition("/")[0]) is not None

    def holds(self, path: str) -> bool:
        """Tells whether git ignores the path, or a folder above it."""
        for folder in folders_above(path):
            if self._verdict(folder):
                return True
        return self._verdict(path)

    def _verdict(self, path: str) -> bool:
        if path not in self._verdicts:
            levels = self._levels_of(path.rstrip("/").rpartition("/")[0])
            name = f"{self._prefix}{path}".encode(errors="surrogateescape")
            verdict = levels is not None and levels.is_ignored(name)
            if not path.endswith("/"):
                return verdict
            self._verdicts[path] = verdict
        return self._verdicts[path]

    def _levels_of(self, folder: str) -> IgnoreLevels | None:
        if folder not in self._levels:
            above = self._levels_of(folder.rpartition("/")[0])
            shown = f"{self._prefix}{folder}/"
            if _is_repository(f"{self._root}/{folder}"):
                own = f"{self._root}/{folder}"
                above = IgnoreLevels(git=tuple(_rules(text, len(shown.encode())) for text in _excludes(own)))
            self._levels[folder] = above if above is None else self._with_own(above, f"{folder}/", shown)
        return self._levels[folder]

    def _with_own(self, levels: IgnoreLevels, folder: str, shown: str) -> IgnoreLevels:
        for place in self._places:
            path = f"{place}/{folder}.gitignore"
            if os.path.lexists(path):
                text = _read(path)
                return IgnoreLevels(git=(_rules(text, len(shown.encode())), *levels.git)) if text else levels
        return levels


class _Undiffed:
    """Git's attributes, as far as they say that the difference of a text is not shown. Those below `top` count."""

    def __init__(self, root: str, top: str) -> None:
        self._top = top
        self._prefix = f"{os.path.relpath(root, top)}/" if top != root else ""
        self._first = _hiding(_read(f"{top}/.git/info/attributes"), "")
        self._last = _hiding(_read(f"{os.path.expanduser('~')}/.config/git/attributes"), "")
        self._levels: dict[str, tuple[IgnoreLevel, ...]] = {}

    def holds(self, path: str) -> bool:
        name = f"{self._prefix}{path}"
        levels = (*self._first, *self._levels_of(name.rpartition("/")[0]), *self._last)
        return IgnoreLevels(git=levels).is_ignored(name.encode(errors="surrogateescape"))

    def _levels_of(self, folder: str) -> tuple[IgnoreLevel, ...]:
        if folder not in self._levels:
            above = self._levels_of(folder.rpartition("/")[0]) if folder else ()
            shown = f"{folder}/" if folder else ""
            self._levels[folder] = (*_hiding(_read(f"{self._top}/{shown}.gitattributes"), shown), *above)
        return self._levels[folder]


def _hiding(text: bytes, folder: str) -> tuple[IgnoreLevel, ...]:
    """Returns the lines of attributes that say whether a difference is shown, as rules that hold for those it is not."""
    hiding, rules = {b"-diff", b"binary"}, []
    for line in text.splitlines():
        words = line.split()
        if not words or words[0].startswith((b"#", b"!")):
            continue
        pattern, attributes = words[0], words[1:]
        if pattern.startswith(b'"'):
            pattern, _, rest = line.strip()[1:].partition(b'"')
            attributes = rest.split()
        says = [
            each in hiding for each in attributes if each in hiding or each.lstrip(b"!").partition(b"=")[0] == b"diff"
        ]
        if says and says[-1] and pattern.startswith(b"[attr]"):
            hiding.add(pattern.removeprefix(b"[attr]"))
        elif says:
            rules.append(pattern if says[-1] else b"!" + pattern)
    return (_rules(b"\n".join(rules), len(folder.encode())),) if rules else ()


def _top_of(root: str) -> str | None:
    """Returns the folder of the repository that holds the root."""
    for folder in (root, *_above(root)):
        if _is_repository(folder):
            return folder
    return None


def _is_repository(folder: str) -> bool:
    """Tells whether a folder is a repository of its own. Git's data alone makes none: a command may leave that unasked."""
    return _is_file(f"{folder}/.git") or _is_file(f"{folder}/.git/config")


def _above(path: str) -> Iterator[str]:
    while path != (path := os.path.dirname(path)):
        yield path


def _excludes(top: str) -> Iterable[bytes]:
    """Yields what a repository ignores by its own settings, and by those of the daemon's user."""
    git = f"{top}/.git"
    if os.path.isfile(git):
        label, _, target = _read(git).decode(errors="replace").strip().partition(": ")
        git = os.path.normpath(os.path.join(top, target)) if label == "gitdir" else git
    shared = os.path.normpath(os.path.join(git, _read(f"{git}/commondir").decode(errors="replace").strip()))
    home = os.path.expanduser("~")
    settings = (f"{shared}/config", f"{git}/config.worktree", f"{home}/.gitconfig", f"{home}/.config/git/config")
    named = [name for file in settings for name in _EXCLUDES.findall(_read(file).decode(errors="replace"))]
    files = [f"{shared}/info/exclude", f"{home}/.config/git/ignore"]
    files += [os.path.join(top, os.path.expanduser(name)) for name in named]
    return filter(None, map(_read, files))


def _rules(text: bytes, length: int) -> IgnoreLevel:
    return IgnoreLevel(IgnoreRules(text), length)


def _read(path: str) -> bytes:
    """Reads a file of rules or settings. Git takes no file of rules that is a link."""
    with suppress(OSError, ValueError):
        file = os.open(path, FILE_FLAGS)
        try:
            if stat.S_ISREG(os.fstat(file).st_mode):
                return os.read(file, IGNORE_BYTES_MAX)
        finally:
            os.close(file)
    return b""


def _is_file(path: str) -> bool:
    with suppress(OSError):
        return stat.S_ISREG(os.lstat(path).st_mode)
    return False
