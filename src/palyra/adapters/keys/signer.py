"""The node's signature: an Ed25519 key in a file, and its public half beside the journal.

Does not own: what is signed (core.checkpoint).
"""

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from palyra.adapters.keys.secret_file import load_or_create, publish
from palyra.core.checkpoint import key_id


class FileSigner:
    """Signs as this node.

    The public key is published before the first signature, so no signature ever has an unknown key.
    """

    def __init__(self, key_file: Path, public_directory: Path) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(load_or_create(key_file))
        self._public_key = self._key.public_key().public_bytes_raw()
        publish(public_directory / f"{key_id(self._public_key)}.pub", self._public_key.hex() + "\n")

    @property
    def public_key(self) -> bytes:
        return self._public_key

    def sign(self, message: bytes) -> bytes:
        return self._key.sign(message)
