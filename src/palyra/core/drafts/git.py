"""What a draft brings into reach of git: content that a checkout, a merge or a stash may write into the person's files.

Owns: `GitWrite` and how it is judged, the check of a loose object against its name, and which paths are git's objects.
Does not own: reading a repository (adapters.drafts.git_*), the policies.
A commit, an index entry or a stash is a file that is not written yet. So a pair of path and content that the repository
did not reach before, and that is not simply the person's own file, is judged as a write of that path.
Invariant: an object is what its name says. So content that was in reach once never changes.
"""

import hashlib
import re
import zlib
from collections.abc import Iterable

import msgspec

from palyra.core.events.draft import ChangeKind, FileChange
from palyra.core.spelling import spell_out

INFLATED_BYTES_MAX = 2 * 1024**3  # Of all loose objects of a draft. What is beyond is not checked, and asks.
TREE_BYTES_MAX = 16 * 1024**2
TEXT_BYTES_MAX = 64 * 1024  # A card shows no longer file.
# Judged together with a path that no review shows, as a link's other names are: git's own settings ask by every policy.
HIDDEN_NAME = ".git/config"
EXECUTABLE, LINK, COMMIT = 0o100755, 0o120000, 0o160000

_LOOSE = re.compile(r"(?:^|/)objects/([0-9a-f]{2})/([0-9a-f]{38}|[0-9a-f]{62})$")
_LARGE = re.compile(r"(?:^|/)lfs/objects/[0-9a-f]{2}/[0-9a-f]{2}/([0-9a-f]{64})$")
# Git makes these anew from its objects. One that lies shows other commits, or other objects, than there are.
_MADE_ANEW = re.compile(r"(?:^|/)objects/(?:info/commit-graph.*|pack/(?:multi-pack-index.*|.*\.(?:bitmap|rev)))$")
_HEADER = re.compile(rb"(blob|tree|commit|tag) (0|[1-9][0-9]{0,18})\0")
_HEADER_BYTES_MAX = 32
_TREE = b"tree "
_PIECE_BYTES = 1 << 20
_TREE_ENTRY = re.compile(rb"([1-7][0-7]{4,5}) ([^\0/]+)\0")
_FOLDER_MODE = b"40000"


class GitWrite(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pair of path and content that git would write. `where` names what reaches it, such as a branch or the index.

    `path` is relative to `root`, and `base` is its beginning that is no part of git's own path. `is_file` says that the
    repository has a working tree there, with which the content can be compared. `is_hidden` marks what no review shows, or
    what nobody can tell: it asks whatever the path is. `names` are those of links that lead to the path.
    """

    root: str
    path: str
    where: str
    repository: str
    mode: int = 0o100644
    blob: str = ""
    base: str = ""
    is_file: bool = False
    is_hidden: bool = False
    names: tuple[str, ...] = ()


class GitReach(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a draft brings into reach. `stores` are folders of objects, each a root and a path.

    An object deleted there is not lost if another file holds it: `lost_count` counts those that are.
    """

    writes: tuple[GitWrite, ...] = ()
    stores: tuple[tuple[str, str], ...] = ()
    lost_count: int = 0


class GitText(msgspec.Struct, frozen=True):
    """A write with its content: None if it is too long, missing, or no file."""

    write: GitWrite
    body: bytes | None


def hidden(root: str, path: str, repository: str, where: str) -> GitWrite:
    return GitWrite(root=root, path=path, repository=repository, where=where, is_hidden=True)


def as_change(write: GitWrite) -> FileChange:
    """Returns the change of a file that this write would be."""
    kind = ChangeKind.LINKED if write.mode == LINK else ChangeKind.MODIFIED
    return FileChange(
        root=write.root,
        path=write.path,
        kind=kind,
        after_sha256=f"{write.blob} {write.where}",  # Tells two writes of one path apart.
        mode=write.mode & 0o777,
    )


def linked_names(writes: Iterable[GitWrite]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Returns the other names by which writes are judged."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for write in writes:
        names = (*write.names, HIDDEN_NAME) if write.is_hidden else write.names
        if names:
            key = (write.root, write.path)
            found[key] = tuple(dict.fromkeys((*found.get(key, ()), *names)))
    return found


def describe_write(write: GitWrite, shown: str) -> str:
    return f"{spell_out(shown, kept='')} (in git: {spell_out(write.where, kept='')})"


def is_made_anew(path: str) -> bool:
    return _MADE_ANEW.search(path) is not None


def large_file_sha256(path: str) -> str | None:
    """Returns the hash that a file of git-lfs must have, by its name."""
    found = _LARGE.search(path)
    return found[1] if found else None


def loose_id(path: str) -> str | None:
    """Returns the id that a loose object has by its path; None if the path is none of a loose object."""
    found = _LOOSE.search(path)
    return found[1] + found[2] if found else None


def check_object(object_id: str, body: bytes, room: int) -> tuple[bool, int]:
    """Tells whether the body of a file is the object that its name says, and how long it is once inflated."""
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(body, min(room, _PIECE_BYTES))
    except zlib.error:
        return False, 0
    if inflater.eof and not inflater.unused_data:
        return _is_sound(object_id, raw, len(raw), _new_digest(object_id, raw)), len(raw)
    check = LooseCheck(object_id, room)
    check.update(body)
    return check.is_sound(), check.inflated_bytes


class LooseCheck:
    """Checks one loose object against its name while its file is read. `room` is how far it may be inflated."""

    def __init__(self, object_id: str, room: int) -> None:
        self._object_id = object_id
        self._room = room
        self._inflater = zlib.decompressobj()
        self._digest = _new_digest(object_id, b"")
        self._kept = bytearray()  # The beginning of each object, and all of a tree.
        self._keeps_all = True
        self._is_sound = True
        self.inflated_bytes = 0

    def update(self, piece: bytes) -> None:
        while self._is_sound and not self._inflater.eof:
            body = self._inflate(piece)
            piece = self._inflater.unconsumed_tail
            self._digest.update(body)
            self._keep(body)
            if not body and not piece:
                return
        self._is_sound &= not piece

    def _inflate(self, piece: bytes) -> bytes:
        try:
            body = self._inflater.decompress(piece, _PIECE_BYTES)
        except zlib.error:
            self._is_sound = False
            return b""
        self.inflated_bytes += len(body)
        self._is_sound = self.inflated_bytes <= self._room and not self._inflater.unused_data
        return body

    def _keep(self, body: bytes) -> None:
        """A tree is kept whole, because its entries have to be in order."""
        if not self._keeps_all:
            return
        self._kept += body
        self._is_sound &= len(self._kept) <= TREE_BYTES_MAX
        if len(self._kept) >= _HEADER_BYTES_MAX and not self._kept.startswith(_TREE):
            self._keeps_all = False
            del self._kept[_HEADER_BYTES_MAX:]

    def is_sound(self) -> bool:
        is_read = self._is_sound and self._inflater.eof
        return is_read and _is_sound(self._object_id, bytes(self._kept), self.inflated_bytes, self._digest)


def _new_digest(object_id: str, body: bytes) -> "hashlib._Hash":
    return hashlib.sha1(body, usedforsecurity=False) if len(object_id) == 40 else hashlib.sha256(body)


def _is_sound(object_id: str, kept: bytes, length: int, digest: "hashlib._Hash") -> bool:
    header = _HEADER.match(kept)
    if header is None or digest.hexdigest() != object_id or int(header[2]) != length - header.end():
        return False
    return header[1] != b"tree" or is_ordered_tree(kept[header.end() :], len(object_id) // 2)


def is_ordered_tree(body: bytes, id_bytes: int) -> bool:
    """Tells whether each name stands once and in git's order. In another tree programs may find different files."""
    place, last = 0, b""
    names: set[bytes] = set()
    while place < len(body):
        entry = _TREE_ENTRY.match(body, place)
        if entry is None or entry[2] in names or entry.end() + id_bytes > len(body):
            return False
        order = entry[2] + (b"/" if entry[1] == _FOLDER_MODE else b"")
        if order <= last:
            return False
        names.add(entry[2])
        place, last = entry.end() + id_bytes, order
    return True
