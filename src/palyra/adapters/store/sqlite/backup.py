"""Backs up a home: copies journal, artifacts and keys into one directory that appears whole.

Does not own: restoring (restore).
The journal is copied from one snapshot, in steps, while a daemon may go on writing. Artifacts are copied after it, so
every one that the snapshot refers to is there.
Invariant: the directory gets its name last, after every byte in it is durable. A backup that is killed before leaves
only a hidden partial directory.
"""

import os
import secrets
import shutil
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

import apsw
import msgspec

from palyra.adapters.files.durable import sync_folder, write_new
from palyra.adapters.store.sqlite.archive import Archive
from palyra.adapters.store.sqlite.connection import our_errors
from palyra.adapters.store.sqlite.manifest import (
    FORMAT_VERSION,
    JOURNAL_NAME,
    MANIFEST_NAME,
    BackupManifest,
    Places,
    copy_file,
    hash_file,
)
from palyra.core.errors import Conflict, NotFound, Unavailable

PAGES_PER_STEP = 256  # This is a mebibyte: progress moves, and a cancelled backup stops soon.

OnProgress = Callable[[int, int], None]


def back_up(places: Places, destination: Path, created_at_ms: int, on_progress: OnProgress) -> BackupManifest:
    """Makes the directory `destination`, which must not exist.

    `on_progress` gets the pages copied and the pages in all.
    """
    if destination.exists():
        raise Conflict("backup_exists", f"{destination} exists already; name a directory that does not")
    if not destination.parent.is_dir():
        raise NotFound("directory_missing", f"the directory {destination.parent} does not exist; create it first")
    partial = destination.parent / f".{destination.name}.partial-{secrets.token_hex(4)}"
    try:
        partial.mkdir(mode=0o700)
        manifest = _fill(places, partial, created_at_ms, on_progress)
        partial.rename(destination)
        sync_folder(destination.parent)
    except OSError as cause:
        message = f"{destination} could not be written ({cause.strerror}); check space and permissions"
        raise Unavailable("backup_unwritable", message) from cause
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return manifest


def _fill(places: Places, partial: Path, created_at_ms: int, on_progress: OnProgress) -> BackupManifest:
    with Archive(places.journal) as archive:
        totals = archive.totals()
        _copy_journal(archive, partial / JOURNAL_NAME, on_progress)
    files = {JOURNAL_NAME: hash_file(partial / JOURNAL_NAME)}
    files |= _copy_tree(places.artifacts.glob("[0-9a-f][0-9a-f]/" + "[0-9a-f]" * 64), partial / "artifacts", 0o600)
    files |= _copy_tree(places.public_keys.glob("[0-9a-f]" * 16 + ".pub"), partial / "keys", 0o644)
    for key in places.private_keys:
        if key.is_file():
            files[key.name] = copy_file(key, partial / key.name, 0o600)
    manifest = BackupManifest(
        format_version=FORMAT_VERSION,
        created_at_ms=created_at_ms,
        schema_version=totals.schema_version,
        last_position=totals.last_position,
        files=dict(sorted(files.items())),
    )
    _write_manifest(manifest, partial)
    return manifest


def _copy_journal(archive: Archive, target: Path, on_progress: OnProgress) -> None:
    # SQLite would create the file with the modes of the process.
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    # The source holds its snapshot, so a writer neither waits nor makes the copy start again.
    with our_errors(target), closing(apsw.Connection(str(target))) as copy:
        with copy.backup("main", archive.connection, "main") as steps:
            while not steps.done:
                steps.step(PAGES_PER_STEP)
                on_progress(steps.page_count - steps.remaining, steps.page_count)
        # A log beside it would have to be copied too. Without one the file is complete in itself.
        copy.execute("PRAGMA journal_mode = DELETE").fetchall()
    with target.open("rb") as file:
        os.fsync(file.fileno())


def _copy_tree(files: Iterable[Path], target: Path, mode: int) -> dict[str, str]:
    """Returns sums of the copies by name. A file that was erased since it was listed is left out."""
    target.mkdir(mode=0o700)
    sums: dict[str, str] = {}
    folders = {target}
    for file in files:
        folder = target / file.parent.name if target.name == "artifacts" else target
        if folder not in folders:
            folder.mkdir(mode=0o700)
            folders.add(folder)
        try:
            digest = copy_file(file, folder / file.name, mode)
        except FileNotFoundError:
            continue
        sums[(folder / file.name).relative_to(target.parent).as_posix()] = digest
    for folder in folders:
        sync_folder(folder)
    return sums


def _write_manifest(manifest: BackupManifest, partial: Path) -> None:
    write_new(partial / MANIFEST_NAME, msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
    sync_folder(partial)
