"""The layout of a home, and opening a node's parts for maintenance without a daemon.

Owns: which adapter implements which port outside the daemon.
Does not own: rules, commands, SQL.
Adapters are imported inside the functions that need them, so that a command loads only what it uses.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from palyra.core.errors import NotFound
from palyra.core.verification import VerifyReport
from palyra.ports.artifacts import Artifacts
from palyra.ports.signer import SignatureCheck

if TYPE_CHECKING:
    from palyra.adapters.store.sqlite.archive import Archive
    from palyra.adapters.store.sqlite.journal import SqliteJournal
    from palyra.adapters.store.sqlite.manifest import BackupManifest, Places
    from palyra.core.checkpoint import SignedHead


class Home(msgspec.Struct, frozen=True):
    """The directory that holds everything of one node."""

    root: Path

    @property
    def journal(self) -> Path:
        return self.root / "journal.db"

    @property
    def artifacts(self) -> Path:
        return self.root / "artifacts"

    @property
    def drafts(self) -> Path:
        return self.root / "drafts"

    @property
    def public_keys(self) -> Path:
        return self.root / "keys"

    @property
    def signing_key(self) -> Path:
        return self.root / "signing.key"

    @property
    def vault_key(self) -> Path:
        return self.root / "vault.key"

    @property
    def vault(self) -> Path:
        return self.root / "vault"

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    @property
    def policies(self) -> Path:
        return self.root / "policies"

    @property
    def admin_token(self) -> Path:
        return self.root / "admin.token"

    @property
    def tokens(self) -> Path:
        return self.root / "tokens.jsonl"


@dataclass(frozen=True, slots=True)
class Offline:
    """The parts of a node that maintenance works with."""

    journal: "SqliteJournal"
    artifacts: Artifacts


def open_archive(home: Home) -> "Archive":
    """Opens the journal for raw reading, beside a running daemon or without one."""
    from palyra.adapters.store.sqlite.archive import Archive

    return Archive(home.journal)


def count_memory_items(home: Home) -> tuple[int, int]:
    """Returns how many items are remembered, and in how many places they and their index do not agree."""
    from palyra.adapters.store.sqlite.archive import count_memory

    with open_archive(home) as archive:
        return count_memory(archive)


def open_public_keys(directory: Path) -> SignatureCheck:
    from palyra.adapters.keys.directory import KeyDirectory

    return KeyDirectory(directory)


def known_heads(directory: Path) -> "tuple[SignedHead, ...]":
    """Returns the newest checkpoints that keys in this directory signed. Read them before you open an archive."""
    from palyra.adapters.keys.signer import read_heads

    return read_heads(directory)


async def accept_loss(home: Home) -> None:
    """Goes on from a journal that is older than its key knows, and from the time of this machine. Both are recorded."""
    from palyra.adapters.store.sqlite.restore import give_up_head

    async with _opened(home):  # Its end signs a checkpoint, and records that.
        for marker in home.public_keys.glob("*.begun"):
            give_up_head(marker)


@asynccontextmanager
async def open_offline(home: Home) -> AsyncIterator["Offline"]:
    """Opens a node for maintenance. Raises Unavailable if a daemon runs, NotFound if there is no journal."""
    from palyra.adapters.clock import advance_clock

    async with _opened(home) as offline:
        advance_clock(offline.journal.signed_at_ms)
        yield offline


@asynccontextmanager
async def _opened(home: Home) -> AsyncIterator["Offline"]:
    from palyra.adapters.artifacts.files import FileArtifacts
    from palyra.adapters.clock import SystemClock
    from palyra.adapters.keys.signer import FileSigner
    from palyra.adapters.store.sqlite.connection import JournalSettings
    from palyra.adapters.store.sqlite.journal import open_journal

    _require_journal(home)
    signer = FileSigner(home.signing_key, home.public_keys)
    journal = open_journal(JournalSettings(path=home.journal), signer, SystemClock())
    try:
        yield Offline(journal, FileArtifacts(home.artifacts))
    finally:
        await journal.close()


def rebuild_projections(home: Home) -> int:
    """Computes every projection row from its tape again, and returns how many differed. No daemon may run."""
    from palyra.adapters.store.sqlite.connection import JournalSettings, WriterLock, open_writing, our_errors
    from palyra.adapters.store.sqlite.refold import rebuild_projections as rebuild

    _require_journal(home)
    lock = WriterLock(home.journal)
    try:
        with our_errors(home.journal), closing(open_writing(JournalSettings(path=home.journal))) as connection:
            return rebuild(connection)
    finally:
        lock.release()


def back_up(home: Home, destination: Path, on_progress: Callable[[int, int], None]) -> "BackupManifest":
    from palyra.adapters.store.sqlite.backup import back_up as copy

    return copy(_places(home), destination, now_ms(), on_progress)


def back_up_with_keys(home: Home, destination: Path, on_progress: Callable[[int, int], None]) -> "BackupManifest":
    """Backs up the private keys and the vault too.

    Whoever has such a backup can sign as this node and open its secrets.
    """
    from palyra.adapters.store.sqlite.backup import back_up as copy

    places = msgspec.structs.replace(_places(home), private_keys=(home.signing_key, home.vault_key, home.vault))
    return copy(places, destination, now_ms(), on_progress)


def restore(home: Home, backup: Path) -> VerifyReport:
    from palyra.adapters.store.sqlite.restore import restore as put_back

    return put_back(backup, _places(home), open_public_keys, now_ms())


def restore_replacing(home: Home, backup: Path) -> VerifyReport:
    from palyra.adapters.store.sqlite.restore import restore_replacing as put_back

    return put_back(backup, _places(home), open_public_keys, now_ms())


def now_ms() -> int:
    from palyra.adapters.clock import SystemClock

    return SystemClock().now_ms()


def _places(home: Home) -> "Places":
    from palyra.adapters.store.sqlite.manifest import Places

    return Places(journal=home.journal, artifacts=home.artifacts, public_keys=home.public_keys)


def _require_journal(home: Home) -> None:
    """Requires a journal, because opening one that does not exist would create an empty one."""
    if not home.journal.is_file():
        raise NotFound("journal_missing", f"there is no journal at {home.journal}; check --home")
