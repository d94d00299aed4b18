"""The parts of an index of git besides its entries: finding them, and checking the trees that are cached there.

Owns: where the entries end, which parts follow, and whether each cached tree is the tree of the entries.
Does not own: reading the entries, which is git's work (adapters.drafts.git_changes).
A commit takes a cached tree for what the entries say, and `git status` compares by it. So one that lies would bring files
into a commit that no command shows.
Invariant: whatever is not understood is an error, and so asks.
"""

import hashlib
import re
from collections.abc import Iterable

import msgspec

TREES = "TREE"
# What git writes. Any other part, or one in another place, may be read by one git and passed over by the next.
_KNOWN = frozenset({TREES, "REUC", "link", "UNTR", "FSMN", "EOIE", "IEOT", "sdir"})
_HEAD_BYTES = 12
_TIMES_BYTES = 40  # Times, sizes and the like of an entry, before the id of its content.
_LENGTH, _IS_EXTENDED = 0x0FFF, 0x4000
_NODE = re.compile(rb"([^\0/]*)\0(-1|\d{1,10}) (\d{1,10})\n")

Entry = tuple[int, str, str]  # Mode, id of the content, and path.


class IndexParts(msgspec.Struct, frozen=True):
    """The parts of an index that follow its entries, each a name and its content."""

    parts: tuple[tuple[str, bytes], ...] = ()

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.parts)


def read_parts(body: bytes | None, id_bytes: int) -> IndexParts:
    """Finds the parts behind the entries. Raises ValueError for an index of another form than git writes."""
    if not body:
        return IndexParts()
    starts = _entry_starts(body, id_bytes)
    at, parts = starts[-1], []
    while at <= len(body) - id_bytes - 8:
        end = at + 8 + int.from_bytes(body[at + 4 : at + 8], "big")
        parts.append((body[at : at + 4].decode("latin-1"), body[at + 8 : end]))
        at = end
    if at != len(body) - id_bytes or not {name for name, _ in parts} <= _KNOWN:
        raise ValueError("the index has parts that are not known")
    for name, part in parts:
        is_wrong = name == "EOIE" and int.from_bytes(part[:4], "big") != starts[-1]
        if is_wrong or (name == "IEOT" and not _is_table(part, starts)):
            raise ValueError("the index has other entries for another reader")
    return IndexParts(tuple(parts))


def _entry_starts(body: bytes, id_bytes: int) -> list[int]:
    """Returns where each entry begins, and where the last one ends."""
    version, count = int.from_bytes(body[4:8], "big"), int.from_bytes(body[8:12], "big")
    if body[:4] != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("the index has a form that is not known")
    at, starts = _HEAD_BYTES, [_HEAD_BYTES]
    for _ in range(count):
        place = at + _TIMES_BYTES + id_bytes
        flags = int.from_bytes(body[place : place + 2], "big")
        place += 4 if flags & _IS_EXTENDED and version > 2 else 2
        if version == 4:
            while body[place] & 0x80:  # How much of the name before stays.
                place += 1
            at = body.index(b"\0", place + 1) + 1
        else:
            length = flags & _LENGTH
            end = place + length if length < _LENGTH else body.index(b"\0", place)
            at += (end - at + 8) & ~7
        starts.append(at)
    return starts


def _is_table(part: bytes, starts: list[int]) -> bool:
    """Tells whether a table by which several threads read the entries leads to the very entries."""
    at = 0
    for place in range(4, len(part), 8):
        if at >= len(starts) or int.from_bytes(part[place : place + 4], "big") != starts[at]:
            return False
        at += int.from_bytes(part[place + 4 : place + 8], "big")
    return at == len(starts) - 1


def lying_trees(parts: IndexParts, entries: Iterable[Entry], id_bytes: int) -> tuple[str, ...]:
    """Returns the folders whose cached tree is not the tree of the entries."""
    cached = [node for name, part in parts.parts if name == TREES for node in _read_trees(part, id_bytes)]
    if not cached:
        return ()
    actual = _make_trees(entries, id_bytes)
    return tuple(folder.decode(errors="surrogateescape") for folder, tree in cached if actual.get(folder) != tree)


def _read_trees(part: bytes, id_bytes: int) -> list[tuple[bytes, bytes]]:
    """Returns the cached trees, each with its folder. One that git must make anew has none."""
    found: list[tuple[bytes, bytes]] = []
    open_folders: list[tuple[bytes, int]] = [(b"", 1)]  # Each with how many folders are still to come in it.
    at = 0
    while open_folders:
        above, left = open_folders.pop()
        if not left:
            continue
        open_folders.append((above, left - 1))
        node = _NODE.match(part, at)
        if node is None:
            raise ValueError("the index has cached trees that cannot be read")
        folder, at = above + node[1] + (b"/" if node[1] else b""), node.end()
        if node[2] != b"-1":
            found.append((folder, part[at : at + id_bytes]))
            at += id_bytes
        open_folders.append((folder, int(node[3])))
    if at != len(part):
        raise ValueError("the index has cached trees that cannot be read")
    return found


def _make_trees(entries: Iterable[Entry], id_bytes: int) -> dict[bytes, bytes]:
    """Returns the id of the tree of each folder, as git makes it from the entries."""
    folders: dict[bytes, list[tuple[bytes, bytes]]] = {b"": []}
    for mode, blob, path in entries:
        folder, slash, name = path.encode(errors="surrogateescape").rpartition(b"/")
        body = b"%o %s\0%s" % (mode, name, bytes.fromhex(blob))
        folders.setdefault(folder + slash, []).append((name, body))
    for folder in list(folders):
        while folder:
            folder = folder[: folder.rstrip(b"/").rfind(b"/") + 1]
            folders.setdefault(folder, [])
    made: dict[bytes, bytes] = {}
    for folder in sorted(folders, key=lambda each: -each.count(b"/")):
        body = b"".join(line for _, line in sorted(folders[folder]))
        digest = hashlib.sha1(usedforsecurity=False) if id_bytes == 20 else hashlib.sha256()
        digest.update(b"tree %d\0%s" % (len(body), body))
        made[folder] = digest.digest()
        if folder:
            above, _, name = folder.rstrip(b"/").rpartition(b"/")
            line = b"40000 %s\0%s" % (name, made[folder])
            folders[above + b"/" if above else b""].append((name + b"/", line))
    return made
