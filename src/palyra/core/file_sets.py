"""Sets of files that are too many to be listed on a tape, each as a Bloom filter.

Owns: what is asked of a set (the bytes at a path, a path, a folder), and how it is packed.
Does not own: which files are tainted (core.projections.provenance).
Invariant: what was put into a set is always found in it (L8). Something else is found by chance: about one question in
400, and more often in a set that is larger than its room. So a crowded set taints more, never less.
"""

import base64
import hashlib
import struct
from collections.abc import Iterable, Iterator

from palyra.core.events.draft import FileSet
from palyra.core.events.tool import FileBytes

BITS_EACH = 16
_PROBES = struct.Struct("<4Q")  # A hash is cut into four positions.


def pack_files(files: Iterable[FileBytes], size_bytes_max: int) -> tuple[FileSet, ...]:
    """Packs files of the same taint, one set for each root. The sets share the room, which is that of their text."""
    roots: dict[str, list[FileBytes]] = {}
    for file in files:
        roots.setdefault(file.root, []).append(file)
    room_bytes = size_bytes_max * 3 // 4 // max(len(roots), 1)
    return tuple(_pack(root, found, room_bytes) for root, found in roots.items())


def unpack_members(members: str) -> bytes:
    return base64.b64decode(members)


def may_hold(bits: bytes, name: str) -> bool:
    """Tells whether a set may hold this name. A name is what `name_bytes` returns, a path, or a folder's path and `/`."""
    count = len(bits) * 8
    return all(bits[place % count >> 3] >> (place % count & 7) & 1 for place in _places(name))


def name_bytes(path: str, sha256: str) -> str:
    return f"{path}\0{sha256}"


def folders_above(path: str) -> Iterator[str]:
    """Yields all folders above an absolute path, each with a slash at its end."""
    end = path.rfind("/", 0, max(len(path) - 1, 0))
    while end >= 0:
        yield path[: end + 1]
        end = path.rfind("/", 0, end) if end else -1


def _pack(root: str, files: list[FileBytes], room_bytes: int) -> FileSet:
    folder = f"{root.rstrip('/')}/"
    names: set[str] = set()
    for file in files:
        path = folder + file.path
        names |= {name_bytes(path, file.sha256), path}
        for above in folders_above(path):
            if above in names or len(above) <= len(folder):
                break
            names.add(above)
    bits = bytearray(max(1, min(room_bytes, len(names) * BITS_EACH // 8)))
    count = len(bits) * 8
    for name in names:
        for place in _places(name):
            bits[place % count >> 3] |= 1 << (place % count & 7)
    members = base64.b64encode(bits).decode()
    return FileSet(root=root, files_count=len(files), members=members, taint=files[0].taint)


def _places(name: str) -> tuple[int, ...]:
    return _PROBES.unpack(hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest())
