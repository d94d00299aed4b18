"""Seals secrets with ChaCha20-Poly1305 under a key in a file.

Does not own: where sealed bytes are stored, nor for how long (journal).
A sealed value is one byte of version, a nonce of 12 random bytes, then the ciphertext with its tag. Each use has its
own key, derived by HKDF-SHA256 from the one in the file.
"""

import hmac
import secrets
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from palyra.adapters.keys.secret_file import KEY_BYTES, load_or_create
from palyra.core.errors import Corrupt

NONCE_BYTES = 12
SEALED_ADDED_BYTES = 1 + NONCE_BYTES + 16  # The version, the nonce and the tag.
_VERSION = b"\x01"


class FileSealer:
    def __init__(self, key_file: Path) -> None:
        key = load_or_create(key_file)
        self._cipher = ChaCha20Poly1305(_derive(key, b"palyra-seal-v1"))
        self._body_cipher = ChaCha20Poly1305(_derive(key, b"palyra-body-v1"))
        self._nonce_key = _derive(key, b"palyra-body-nonce-v1")
        self._marker_key = _derive(key, b"palyra-marker-v1")

    @property
    def marker_key(self) -> bytes:
        return self._marker_key

    def seal(self, value: bytes, context: bytes) -> bytes:
        nonce = secrets.token_bytes(NONCE_BYTES)
        return _VERSION + nonce + self._cipher.encrypt(nonce, value, context)

    def unseal(self, sealed: bytes, context: bytes) -> bytes:
        nonce, ciphertext = sealed[1 : 1 + NONCE_BYTES], sealed[1 + NONCE_BYTES :]
        try:
            if sealed[:1] != _VERSION:
                raise InvalidTag
            return self._cipher.decrypt(nonce, ciphertext, context)
        except (InvalidTag, ValueError) as cause:
            message = "a sealed secret cannot be opened: its bytes, its run or vault.key is another"
            raise Corrupt("secret_unsealable", message) from cause

    def seal_body(self, body: bytes) -> bytes:
        """Seals with the same result for the same body: the nonce is a keyed hash of it."""
        nonce = hmac.digest(self._nonce_key, body, "sha256")[:NONCE_BYTES]
        return _VERSION + nonce + self._body_cipher.encrypt(nonce, body, None)

    def unseal_body(self, sealed: bytes) -> bytes:
        nonce, ciphertext = sealed[1 : 1 + NONCE_BYTES], sealed[1 + NONCE_BYTES :]
        try:
            if sealed[:1] != _VERSION:
                raise InvalidTag
            return self._body_cipher.decrypt(nonce, ciphertext, None)
        except (InvalidTag, ValueError) as cause:
            message = "a sealed artifact cannot be opened: its bytes are damaged, or vault.key is another"
            raise Corrupt("artifact_unsealable", message) from cause


def _derive(key: bytes, purpose: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=purpose).derive(key)
