"""Sets of changes: their order, their digest, and what a model is told about them.

Does not own: reading changes from a disk (adapters.drafts).
"""

import hashlib
import unicodedata
from collections.abc import Iterable, Sequence

import msgspec

from palyra.core.drafts.git import GitReach
from palyra.core.events.draft import ChangeKind, FileChange, LeftOutFile
from palyra.core.events.tool import FileBytes
from palyra.core.plurals import counted
from palyra.core.spelling import spell_out

CHANGES_INLINE_BYTES_MAX = 32 * 1024  # A longer list is stored as an artifact; the event names it.
LEFT_OUT_SHOWN_MAX = 32
SHOWN_MAX = 200  # Of changes other than deletions, which are never cut off before DELETED_SHOWN_MAX.
DELETED_SHOWN_MAX = 1000
HELD_SHOWN_MAX = 5
_WORDS = {
    ChangeKind.DELETED: "deleted",
    ChangeKind.CREATED: "created",
    ChangeKind.MODIFIED: "changed",
    ChangeKind.LINKED: "linked",
    ChangeKind.MODE: "permissions of",
}


Place = tuple[str, str]  # A root, and a path in it.


class LinkedChange(msgspec.Struct, frozen=True, kw_only=True):
    """A changed path to which known links lead: changing it changes what they stand for."""

    root: str
    path: str
    names: tuple[str, ...]


class ChangeSet(msgspec.Struct, frozen=True, kw_only=True):
    """All that a command changed, and what of it is never applied. `emptied_roots` would hold nothing any more.

    `has_layer` says that the command saw the layer of its session, so that some changes may be of that. `git` is what
    the changes bring into reach of repositories. `wide_dot_files` are dot-files of a root that is a home, or lies above
    repositories.
    """

    changes: tuple[FileChange, ...] = ()
    left_out: tuple[LeftOutFile, ...] = ()
    left_out_count: int = 0
    emptied_roots: tuple[str, ...] = ()
    linked: tuple[LinkedChange, ...] = ()
    has_layer: bool = False
    git: GitReach = GitReach()
    wide_dot_files: tuple[Place, ...] = ()

    @property
    def digest(self) -> str:
        return digest_changes(self.changes)


def digest_changes(changes: Sequence[FileChange]) -> str:
    """Returns the hash that a verdict, an answer and an intent are bound to."""
    return hashlib.sha256(encode_changes(changes)).hexdigest()


def encode_changes(changes: Sequence[FileChange]) -> bytes:
    return msgspec.json.encode(tuple(changes), order="deterministic")


def decode_changes(body: bytes) -> tuple[FileChange, ...]:
    return msgspec.json.decode(body, type=tuple[FileChange, ...])


def is_folder(change: FileChange) -> bool:
    return change.path.endswith("/")


def in_order(changes: Iterable[FileChange]) -> tuple[FileChange, ...]:
    """Sorts by root and path, a folder before its content. The order does not depend on how a disk lists files."""
    return tuple(sorted(changes, key=lambda change: (change.root, change.path)))


def without_paths(changes: Sequence[FileChange], left_out: Iterable[str]) -> tuple[FileChange, ...]:
    """Leaves out paths with everything below them, and the folders that make no sense without what is left out."""
    gone = with_folders(changes, {place_of(change) for change in named_changes(changes, left_out)})
    return tuple(change for change in changes if place_of(change) not in gone)


def named_changes(changes: Sequence[FileChange], names: Iterable[str]) -> tuple[FileChange, ...]:
    """Returns the changes of these paths, and of everything below them."""
    known = {name for name in names if name.strip("/")}  # An empty name, or a slash, would mean all of them.
    folders = tuple(name if name.endswith("/") else f"{name}/" for name in known)
    return tuple(change for change in changes if any(_is_named(path, known, folders) for path in _names_of(change)))


def with_folders(changes: Sequence[FileChange], left_out: set[Place]) -> set[Place]:
    """Adds new folders that would stay empty, folders that would go with something in them, and what needs their place."""
    gone: set[Place] = set()
    holds_left, holds_kept = set[Place](), set[Place]()
    for change in reversed(in_order(changes)):  # What a folder holds comes before it.
        root, path = place = place_of(change)
        is_bare = change.kind is ChangeKind.CREATED and place in holds_left and place not in holds_kept
        is_held = change.kind is ChangeKind.DELETED and place in holds_left
        is_left = place in left_out or is_bare or is_held or (root, f"{path}/") in gone
        if is_left:
            gone.add(place)
        holder = (root, f"{path.rstrip('/').rpartition('/')[0]}/")
        (holds_left if is_left else holds_kept).add(holder)
    return gone


def place_of(change: FileChange) -> Place:
    return change.root, change.path


def unmatched(changes: Sequence[FileChange], left_out: Iterable[str]) -> tuple[str, ...]:
    """Returns the names that mean none of the changes. What a person meant by them is not known."""
    return tuple(name for name in left_out if len(without_paths(changes, (name,))) == len(changes))


def _names_of(change: FileChange) -> tuple[str, str]:
    """A path is known relative to its root, and whole."""
    return change.path, f"{change.root.rstrip('/')}/{change.path}"


def _is_named(path: str, names: set[str], folders: tuple[str, ...]) -> bool:
    return path in names or path.rstrip("/") in names or path.startswith(folders)


def find_alike(changes: Iterable[FileChange]) -> tuple[tuple[FileChange, FileChange], ...]:
    """Returns pairs whose paths differ in case or in the form of their letters only: on some disks they are one file."""
    first: dict[tuple[str, str], FileChange] = {}
    pairs = []
    for change in changes:
        folded = unicodedata.normalize("NFD", change.path.rstrip("/").casefold())
        other = first.setdefault((change.root, folded), change)
        if other.path.rstrip("/") != change.path.rstrip("/"):
            pairs.append((other, change))
    return tuple(pairs)


def written_files(changes: Sequence[FileChange], taint: tuple[str, ...]) -> tuple[FileBytes, ...]:
    """Returns the files that applying the changes leaves, with the taint they carry."""
    return tuple(
        FileBytes(root=change.root, path=change.path, sha256=change.after_sha256, taint=taint)
        for change in changes
        if change.after_sha256 is not None and change.kind in (ChangeKind.CREATED, ChangeKind.MODIFIED)
    )


def describe_changes(changes: Sequence[FileChange]) -> str:
    """Lists the changes for a model: deletions first, and those are not cut off."""
    if not changes:
        return ""
    deleted = [change for change in changes if change.kind is ChangeKind.DELETED]
    others = [change for change in changes if change.kind is not ChangeKind.DELETED]
    lines = [_line(change) for change in deleted[:DELETED_SHOWN_MAX]]
    lines += _rest(len(deleted) - DELETED_SHOWN_MAX, "deletions")
    lines += [_line(change) for change in others[:SHOWN_MAX]]
    lines += _rest(len(others) - SHOWN_MAX, "changes")
    return "\n".join(lines)


def describe_left_out(left_out: Sequence[LeftOutFile], count: int) -> str:
    lines = [f"not applied: {spell_out(each.path)} ({each.reason})" for each in left_out]
    return "\n".join([*lines, *_rest(count - len(left_out), "things that were not applied")])


def describe_held(held: Sequence[FileChange]) -> str:
    """Says what stays in the layer of the session, for a model and for the person who reads along."""
    if not held:
        return ""
    files = [each for each in held if not is_folder(each)] or list(held)
    named = ", ".join(spell_out(each.path) for each in files[:HELD_SHOWN_MAX])
    more = ", …" if len(files) > HELD_SHOWN_MAX else ""
    count = counted(len(files), "file")
    return (
        f"[kept in this session only: {count} ({named}{more}); later commands see them; palyra runs keep applies them]"
    )


def _rest(count: int, noun: str) -> list[str]:
    return [f"and {count} more {noun}"] if count > 0 else []


def _line(change: FileChange) -> str:
    words, path = _WORDS[change.kind], spell_out(change.path)
    if change.kind is ChangeKind.MODE:
        return f"{words} {path}: {change.before_mode:o} to {change.mode:o}"
    size = f", {change.bytes} bytes" if change.after_sha256 is not None and change.kind is not ChangeKind.LINKED else ""
    return f"{words} {path}{size}"
