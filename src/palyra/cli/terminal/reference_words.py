"""The reference that is being typed: its kind, or the path behind its colon.

Owns: recognising it before the cursor, and the paths that may follow.
Does not own: whole references (core.references), nor the menu (completion).
"""

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from palyra.core.sensitive_files import is_secret

ENTRIES_LOOKED_MAX = 2_000
OFFERED_MAX = 60
KINDS = {
    "file": "a file of the workspace",
    "folder": "the names in a folder, and some of its files",
    "diff": "changes that are not staged",
    "staged": "changes that are staged",
    "url": "a page",
    "memory": "what is remembered",
    "run": "what was said in a run, by its id",
    "session": "what was said in a session, by its id",
}
WITH_COLON = frozenset(KINDS) - {"diff", "staged"}

_BEGIN = r"(?<![^\s(\[{<\"'*,;|])@"
_KIND = re.compile(rf"{_BEGIN}([a-z]*)$")
_PATH = re.compile(rf"{_BEGIN}(file|folder|diff|staged):(?:\"([^\"\n]*)|([^\s\"]*))$")


class TypedPath(msgspec.Struct, frozen=True):
    kind: str
    path: str
    is_quoted: bool


def typed_kind(text: str) -> str | None:
    """Returns how much of a kind stands before the cursor, after the sign `@`."""
    found = _KIND.search(text[-400:])
    return found[1] if found is not None else None


def typed_path(text: str) -> TypedPath | None:
    found = _PATH.search(text[-4_200:])
    if found is None:
        return None
    return TypedPath(found[1], found[2] if found[2] is not None else found[3], found[2] is not None)


def is_reference_typed(text: str) -> bool:
    return typed_kind(text) is not None or typed_path(text) is not None


def paths_below(root: Path, typed: TypedPath) -> Iterator[tuple[str, bool]]:
    """Yields paths that begin as typed, each with whether it is a folder. Keys and hidden files are left out."""
    folder, _, start = typed.path.rpartition("/")
    if os.path.isabs(typed.path) or ".." in folder.split("/"):
        return
    if not (root / folder).resolve().is_relative_to(root.resolve()):
        return
    count = 0
    for name, is_folder in _entries(root / folder):
        path = f"{folder}/{name}" if folder else name
        is_wanted = name.startswith(start) and (is_folder or typed.kind != "folder") and not is_secret(path)
        if is_wanted and (start.startswith(".") or not name.startswith(".")):
            yield path, is_folder
            count += 1
        if count == OFFERED_MAX:
            return


def _entries(folder: Path) -> list[tuple[str, bool]]:
    try:
        with os.scandir(folder) as entries:
            looked = list(islice(entries, ENTRIES_LOOKED_MAX))
        return sorted(
            (each.name, each.is_dir()) for each in looked if each.name.isprintable() and not each.is_symlink()
        )
    except OSError:
        return []
