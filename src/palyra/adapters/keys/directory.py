"""Public keys beside the journal: reads `<key id>.pub` files and checks signatures.

Does not own: whom to trust.
Whoever can write the journal can also add a key here. Such a key cannot speak for another node, because a node's name
is derived from its key. Keep a copy of the keys elsewhere, and verify against it to notice a journal made anew.
"""

import re
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from palyra.core.checkpoint import key_id as id_of

PUBLIC_KEY_BYTES = 32
_KEY_ID = re.compile(r"[0-9a-f]{16}")  # Ids come from tapes. Nothing else may become part of a path.
_LINE_BYTES_MAX = 2 * PUBLIC_KEY_BYTES + 2


class KeyDirectory:
    """Looks a key up when it is asked for, once each."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._found: dict[str, bytes | None] = {}
        self._loaded: dict[bytes, Ed25519PublicKey] = {}

    def public_key(self, key_id: str) -> bytes | None:
        if key_id not in self._found:
            self._found[key_id] = self._read(key_id)
        return self._found[key_id]

    def is_valid(self, public_key: bytes, message: bytes, signature: bytes) -> bool:
        try:
            if public_key not in self._loaded:
                self._loaded[public_key] = Ed25519PublicKey.from_public_bytes(public_key)
            self._loaded[public_key].verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True

    def _read(self, key_id: str) -> bytes | None:
        """Returns the key; None for a file that is absent, unreadable, or not the key its name says."""
        if _KEY_ID.fullmatch(key_id) is None:
            return None
        try:
            with (self._directory / f"{key_id}.pub").open("rb") as file:
                public_key = bytes.fromhex(file.read(_LINE_BYTES_MAX).decode("ascii").strip())
        except (OSError, ValueError):
            return None
        return public_key if len(public_key) == PUBLIC_KEY_BYTES and id_of(public_key) == key_id else None
