"""The Signer port: a node's signature. Does not own: which bytes are signed (core.checkpoint, core.attestation)."""

from typing import Protocol

from palyra.core.checkpoint import Anchor


class Signer(Protocol):
    @property
    def public_key(self) -> bytes: ...

    def sign(self, message: bytes) -> bytes: ...

    def has_begun(self) -> bool:
        """Tells whether this key has signed a journal before."""
        ...

    def head(self) -> Anchor | None:
        """Returns the newest checkpoint that is known to be durable; None if that was never noted, or was given up.

        Raises Corrupt if what was noted is not what this key signed.
        """
        ...

    def note_head(self, head: Anchor) -> None:
        """Remembers beside the public key that this key has signed a journal, up to this durable checkpoint."""
        ...


class SignatureCheck(Protocol):
    """Knows the public keys that are stored beside the journal."""

    def public_key(self, key_id: str) -> bytes | None: ...

    def is_valid(self, public_key: bytes, message: bytes, signature: bytes) -> bool: ...
