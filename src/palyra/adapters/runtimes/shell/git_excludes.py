"""What git passes over in a sandbox: files that are kept from the workspace, as the person's own git does not see them.

Owns: the patterns. Does not own: what is kept (core.drafts.review), the layer (adapters.drafts.layers).
A layer lies above the workspace, so `git add -A` would bring what nobody reviewed into the repository, and every commit
would ask. A command may still add such a file by its name and force; then it asks.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from palyra.core.drafts.review import UNSEEN_FOLDERS
from palyra.ports.drafts import OverlayRoot

PATTERNS_MAX = 10_000  # What comes after these asks when it is added.
_SPECIAL = str.maketrans({letter: f"\\{letter}" for letter in "\\*?[ "})


def git_excludes(overlays: Sequence[OverlayRoot]) -> str:
    """Returns the lines of an exclude file, for a command whose files may be kept from the workspace."""
    names = (f"{name}/" for name in sorted(UNSEEN_FOLDERS))
    kept = chain.from_iterable(_kept(each.root, each.layer) for each in overlays if each.layer)
    return "".join(f"{line}\n" for line in chain(names, islice(kept, PATTERNS_MAX)))


def _kept(root: str, layer: str, folder: str = "", base: str = "") -> Iterator[str]:
    """Yields a pattern for what only the layer holds. A pattern begins at the folder that is the repository."""
    for entry in sorted(os.scandir(os.path.join(layer, folder)), key=lambda each: each.name):
        path = f"{folder}{entry.name}"
        pattern = f"/{path[len(base) :]}".translate(_SPECIAL)
        if not entry.is_dir(follow_symlinks=False):
            if not stat.S_ISCHR(entry.stat(follow_symlinks=False).st_mode):  # A deletion.
                yield pattern
        elif not os.path.isdir(f"{root}/{path}"):
            yield f"{pattern}/"
        else:
            inner = f"{path}/" if os.path.lexists(f"{root}/{path}/.git") else base
            yield from _kept(root, layer, f"{path}/", inner)
