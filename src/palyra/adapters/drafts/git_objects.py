"""Objects and packs of a draft: each has to be what its name says, and what is deleted has to be elsewhere.

Owns: checking packs with git, counting objects that are lost, leaving out what git makes anew.
Does not own: loose objects, which are checked while their file is read (upper), and what refs reach (git_changes).
Git compares no object with its name when it writes a file. So an object that lies would change what a checkout writes.
"""

import os
import re
from collections.abc import Iterable
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from palyra.adapters.drafts.git_view import GitRunner, GitUnknownError, RepositoryView
from palyra.core.drafts.changes import is_folder
from palyra.core.drafts.git import GitWrite, hidden, is_made_anew, large_file_sha256, loose_id
from palyra.core.events.draft import ChangeKind, FileChange

_PACK = re.compile(r"^objects/pack/([^/]+)\.(pack|idx)$")  # Git reads packs of any name.
_NOT_ITSELF = "it is not what its name says"


class CheckedObjects(msgspec.Struct, frozen=True):
    """`lost_count` is how many objects are in no file any more."""

    writes: tuple[GitWrite, ...] = ()
    lost_count: int = 0


def settle_made_anew(changes: Iterable[FileChange]) -> tuple[FileChange, ...]:
    """Leaves out what git makes anew from its objects. One that was there before goes, so that it does not grow stale."""
    kept = []
    for change in changes:
        if is_folder(change) or not is_made_anew(change.path) or change.kind is ChangeKind.DELETED:
            kept.append(change)
        elif change.before_sha256 is not None:
            gone = replace(change, kind=ChangeKind.DELETED, after_sha256=None, mode=0, bytes=0)
            kept.append(gone)
    return tuple(kept)


def find_large_files(changes: Iterable[FileChange]) -> list[GitWrite]:
    """Returns the files of git-lfs that are not what their name says."""
    found = []
    for change in changes:
        wanted = large_file_sha256(change.path) if change.after_sha256 is not None else None
        if wanted is not None and wanted != change.after_sha256:
            found.append(hidden(change.root, change.path, "", _NOT_ITSELF))
    return found


def find_false_objects(root: str, paths: Iterable[str]) -> list[GitWrite]:
    """Names loose objects of which the reader of the draft found that they are not what their name says."""
    return [hidden(root, path, "", _NOT_ITSELF) for path in paths]


def check_objects(view: RepositoryView, git: GitRunner) -> CheckedObjects:
    packs: set[str] = set()
    gone: set[str] = set()
    come: set[str] = set()
    for change in view.changes:
        name = view.inside(change)
        pack = _PACK.match(name)
        object_id = loose_id(name)
        if pack is not None:
            packs.add(pack[1])
        elif object_id is not None:
            (come if change.after_sha256 is not None else gone).add(object_id)
    writes = []
    for pack_name in sorted(packs):
        now = _check_pack(view, git, pack_name)
        come |= now or set()
        gone |= _names_before(view, git, pack_name)
        if now is None:
            path = f"{view.path}objects/pack/{pack_name}.pack"
            writes.append(hidden(view.root, path, view.path, _NOT_ITSELF))
    lost = gone - come
    return CheckedObjects(tuple(writes), _count_lost(view, git, lost, packs) if lost else 0)


def _check_pack(view: RepositoryView, git: GitRunner, name: str) -> set[str] | None:
    """Returns the ids in a pack, once git found each object in it by itself; None if its index says something else."""
    path, listed = f"objects/pack/{name}.pack", view.after(f"objects/pack/{name}.idx")
    if not view.files.exists(view.root, view.path + path):
        return set()
    upper, lower = (f"{place.rstrip('/')}/{view.path}{path}" for place in (view.files.uppers[view.root], view.root))
    made = git.private / f"{name}.idx"
    with suppress(GitUnknownError):
        place = upper if os.path.lexists(upper) else lower
        git.run("index-pack", "--fsck-objects", "--no-rev-index", "-o", str(made), place)
        if made.read_bytes() == listed:
            return _names_in(git, listed)
    return None


def _names_before(view: RepositoryView, git: GitRunner, name: str) -> set[str]:
    listed = view.before(f"objects/pack/{name}.idx")
    return _names_in(git, listed) if listed else set()


def _names_in(git: GitRunner, listed: bytes) -> set[str]:
    printed = git.run("show-index", stdin=listed)
    return {line.split()[1] for line in printed.decode().splitlines()}


def _count_lost(view: RepositoryView, git: GitRunner, ids: set[str], packs: set[str]) -> int:
    """Counts the ids that are in no pack which stays. A loose object that stays was not deleted."""
    place = f"{view.root.rstrip('/')}/{view.path}objects/pack"
    pack_folder = git.private / "objects" / "pack"
    pack_folder.mkdir(exist_ok=True)
    with suppress(OSError):
        for file in os.listdir(place):
            name, dot, suffix = file.rpartition(".")
            if dot and suffix in ("pack", "idx") and name not in packs:
                (pack_folder / file).symlink_to(f"{place}/{file}")
    told = git.alone().run("cat-file", "--batch-check", stdin="".join(f"{each}\n" for each in ids).encode())
    return sum(line.endswith(" missing") for line in told.decode().splitlines())
