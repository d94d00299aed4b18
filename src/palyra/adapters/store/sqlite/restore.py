"""Restores a backup: checks it, then puts it in place of the present journal.

Does not own: making backups (backup).
Order: copy into a staging directory of the home, checking every sum. Verify the copied journal. Add artifacts and keys
that are missing. Give the old journal a second name. Put the new one in its place with one rename.
Invariants: after a kill at any point, the home has the old journal or the new one, whole. Nothing is ever deleted; what
is replaced gets another name. A key that the home has is never replaced.
"""

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw

from palyra.adapters.files.durable import PUBLIC, replace_whole, sync_folder
from palyra.adapters.store.sqlite.archive import Archive
from palyra.adapters.store.sqlite.connection import BUSY_TIMEOUT_MS, WriterLock, as_our_error
from palyra.adapters.store.sqlite.manifest import (
    JOURNAL_NAME,
    PRIVATE_KEY_NAMES,
    BackupManifest,
    Places,
    copy_file,
    read_manifest,
)
from palyra.core.errors import Conflict, Corrupt, Unavailable
from palyra.core.verification import VerifyReport, verify
from palyra.ports.signer import SignatureCheck

KeysOf = Callable[[Path], SignatureCheck]
_STAGING_PREFIX = ".restore-"
_LOG_SUFFIXES = ("-wal", "-shm")


def restore(backup: Path, places: Places, keys_of: KeysOf, at_ms: int) -> VerifyReport:
    """Restores into a home that has no journal yet. The report is that of the journal now in place."""
    read_manifest(backup)  # What is no backup is told first: replacing a journal by it would help nobody.
    _require_absent(places.journal)
    return _restore(backup, places, keys_of, lambda: _put_first(places.journal, at_ms))


def restore_replacing(backup: Path, places: Places, keys_of: KeysOf, at_ms: int) -> VerifyReport:
    """Restores over a journal. The present one, if any, becomes `journal.db.replaced-<at_ms>`."""
    return _restore(backup, places, keys_of, lambda: _set_aside(places.journal, at_ms))


def _restore(backup: Path, places: Places, keys_of: KeysOf, make_room: Callable[[], None]) -> VerifyReport:
    manifest = read_manifest(backup)
    _require_regular(places.journal)
    try:
        places.journal.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(places.journal), _staging(places.journal.parent) as staging:
            _stage(backup, manifest, staging)
            report = _verified(backup, staging, keys_of)
            _add_missing(manifest, staging, places)
            _forget_begun(places, report)
            make_room()
            sync_folder(places.journal.parent)
            (staging / JOURNAL_NAME).replace(places.journal)
            sync_folder(places.journal.parent)
    except OSError as cause:
        message = f"{backup} could not be restored ({cause.strerror}); check space and permissions, then try again"
        raise Unavailable("restore_failed", message) from cause
    return report


@contextmanager
def _locked(journal: Path) -> Iterator[None]:
    lock = WriterLock(journal)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _staging(home: Path) -> Iterator[Path]:
    """Yields an empty directory on the same file system. The lock is held, so a crash left any other one."""
    for stale in home.glob(f"{_STAGING_PREFIX}*"):
        shutil.rmtree(stale, ignore_errors=True)
    staging = home / f"{_STAGING_PREFIX}{secrets.token_hex(4)}"
    staging.mkdir(mode=0o700)
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _stage(backup: Path, manifest: BackupManifest, staging: Path) -> None:
    """Copies and checks in one pass, so that the checked bytes are the ones used."""
    for name, expected in manifest.files.items():
        target = staging / name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            _require_no_link(backup, backup / name)
            digest = copy_file(backup / name, target, 0o644 if name.startswith("keys/") else 0o600)
        except FileNotFoundError as cause:
            raise Corrupt("backup_damaged", f"{backup} lacks {name}; use another backup") from cause
        if digest != expected:
            raise Corrupt("backup_damaged", f"{name} in {backup} is not what was backed up; use another backup")


def _verified(backup: Path, staging: Path, keys_of: KeysOf) -> VerifyReport:
    with Archive(staging / JOURNAL_NAME) as archive:
        archive.require_structure()
        report = verify(archive.evidence(keys_of(staging / "keys")))
    if not report.is_whole:
        raise Corrupt("backup_damaged", f"the journal in {backup} is damaged: {report.findings[0]}; use another backup")
    return report


def _add_missing(manifest: BackupManifest, staging: Path, places: Places) -> None:
    """Adds missing files.

    Artifacts are named by their hash and keys by their key: adding one does not affect the old journal.
    """
    directories = {"artifacts": places.artifacts, "keys": places.public_keys}
    touched = {places.journal.parent}
    for name in manifest.files:
        root, _, rest = name.partition("/")
        if name in PRIVATE_KEY_NAMES:
            target = places.journal.parent / name
        elif root in directories:
            target = directories[root] / rest
        else:
            continue
        _require_no_link(places.journal.parent, target.parent)
        if not target.parent.is_dir():
            target.parent.mkdir(mode=0o755 if root == "keys" else 0o700, parents=True)
        touched |= {target.parent, target.parent.parent}
        with suppress(FileExistsError):
            os.link(staging / name, target)
    for directory in touched:
        sync_folder(directory)


def _forget_begun(places: Places, report: VerifyReport) -> None:
    """Lets a key that signed only the journal before begin in this one: a person chose to replace that journal.

    A key that signed both goes on from an older checkpoint, and the next start records that.
    """
    for marker in places.public_keys.glob("*.begun"):
        if marker.stem not in report.summary.key_ids:
            marker.unlink(missing_ok=True)
        else:
            give_up_head(marker)


def give_up_head(marker: Path) -> None:
    """Makes the file beside a key name no newest checkpoint. Its next checkpoint records that it goes on from another."""
    first, *rest = marker.read_bytes().splitlines(keepends=True) or [b""]
    if rest:
        replace_whole(marker, first, PUBLIC)


def _require_no_link(root: Path, path: Path) -> None:
    """Refuses a link below `root`: it would bring in a file that was not backed up, or write outside the home."""
    for place in (path, *path.parents):
        if place == root:
            return
        if place.is_symlink():
            raise Conflict("restore_through_link", f"{place} is a link; put a file or folder of your own in its place")


def _require_regular(journal: Path) -> None:
    """Refuses a pipe or a device in the journal's place: opening one could wait for ever."""
    if journal.exists() and not journal.is_file():
        raise Conflict("journal_unfit", f"{journal} is not a file; remove it, then restore")


def _require_absent(journal: Path) -> None:
    if journal.exists():
        raise Conflict("journal_exists", f"{journal} exists; say --replace to move it aside and restore")


def _put_first(journal: Path, at_ms: int) -> None:
    _require_absent(journal)
    # These logs belong to a journal that someone removed. SQLite would apply them to the new one.
    _move_logs(journal, at_ms)


def _set_aside(journal: Path, at_ms: int) -> None:
    """Gives the old journal a second name. The rename that follows then takes its first name."""
    if journal.exists():
        if _is_settled(journal):
            _require_no_log(journal)
        os.link(journal, _aside(journal, at_ms))
    _move_logs(journal, at_ms)


def _move_logs(journal: Path, at_ms: int) -> None:
    for suffix in _LOG_SUFFIXES:
        log = journal.with_name(journal.name + suffix)
        if log.exists():
            log.rename(f"{_aside(journal, at_ms)}{suffix}")


def _aside(journal: Path, at_ms: int) -> Path:
    return journal.with_name(f"{journal.name}.replaced-{at_ms}")


def _is_settled(journal: Path) -> bool:
    """Tells whether the old journal is now complete in its one file; False if it cannot be opened.

    A damaged journal is a good reason to restore: it is set aside as it is, with its log.
    """
    try:
        connection = apsw.Connection(str(journal), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.set_busy_timeout(BUSY_TIMEOUT_MS)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            connection.close(True)
    except (apsw.NotADBError, apsw.CorruptError):
        return False
    except apsw.Error as cause:
        raise as_our_error(cause, journal) from cause
    return True


def _require_no_log(journal: Path) -> None:
    """Refuses to go on with an old log, which SQLite would apply to the new journal.

    The log is gone unless someone still has the old journal open.
    """
    for suffix in _LOG_SUFFIXES:
        if journal.with_name(journal.name + suffix).exists():
            message = f"another process still reads {journal}; stop it (a verify or a backup?), then try again"
            raise Unavailable("journal_busy", message)
