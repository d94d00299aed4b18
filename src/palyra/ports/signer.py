"""The Signer port: a node's signature. Does not own: which bytes are signed (core.checkpoint, core.attestation)."""

from typing import Protocol


class Signer(Protocol):
    @property
    def public_key(self) -> bytes: ...

    def sign(self, message: bytes) -> bytes: ...

    def has_begun(self) -> bool:
        """Tells whether this key has signed a journal before."""
        ...

    def note_begun(self) -> None:
        """Remembers beside the public key that this key has signed a journal."""
        ...


class SignatureCheck(Protocol):
    """Knows the public keys that are stored beside the journal."""

    def public_key(self, key_id: str) -> bytes | None: ...

    def is_valid(self, public_key: bytes, message: bytes, signature: bytes) -> bool: ...
