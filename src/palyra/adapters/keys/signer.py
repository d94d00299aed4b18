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
        name = key_id(self._public_key)
        self._begun = public_directory / f"{name}.begun"
        publish(public_directory / f"{name}.pub", self._public_key.hex() + "\n")

    @property
    def public_key(self) -> bytes:
        return self._public_key

    def has_begun(self) -> bool:
        return self._begun.is_file()

    def note_begun(self) -> None:
        publish(self._begun, "This key has signed a journal. Without its checkpoints no other is begun.\n")

    def sign(self, message: bytes) -> bytes:
        return self._key.sign(message)
