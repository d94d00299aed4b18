"""A secret key in a file: 32 random bytes as one line of hex.

Owns: making it once, and the form of its line. Does not own: its use, nor how files are written (adapters.files).
Invariant: two processes that start at once end up with the same key.
"""

import secrets
from pathlib import Path

from palyra.adapters.files.durable import PUBLIC, ensure_folder, replace_whole
from palyra.adapters.files.private import FileKind, PrivateFile

KEY_BYTES = 32
_KIND = FileKind(
    noun="key",
    remedy="restore it from a backup made with --with-keys",
    bytes_max=2 * KEY_BYTES + 2,  # A line of hex and its end fit; nothing longer is ours.
)
_PUBLIC_FOLDER = 0o755


def load_or_create(path: Path) -> bytes:
    """Returns the key, made if there is none yet."""
    try:
        return load(path)
    except FileNotFoundError:
        PrivateFile(path, _KIND).create(secrets.token_bytes(KEY_BYTES).hex().encode("ascii") + b"\n")
        return load(path)


def load(path: Path) -> bytes:
    """Returns the key. Raises FileNotFoundError if there is none; the caller knows whether that is a fault."""
    file = PrivateFile(path, _KIND)
    found = file.read()
    if found is None:
        raise FileNotFoundError(path)
    try:
        key = bytes.fromhex(found.data.decode("ascii").strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise file.damaged(f"does not hold a key of {KEY_BYTES} bytes in hex")
    return key


def publish(path: Path, line: str) -> None:
    """Writes a small public file whole. Writing the same content again is no change."""
    if path.is_file() and path.read_text(encoding="ascii") == line:
        return
    ensure_folder(path.parent, _PUBLIC_FOLDER)
    replace_whole(path, line.encode("ascii"), PUBLIC)
