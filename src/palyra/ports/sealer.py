"""The Sealer port. Owns: encrypting the values behind secret markers. Not: where sealed bytes lie (journal state)."""

from typing import Protocol


class Sealer(Protocol):
    @property
    def marker_key(self) -> bytes:
        """The key of the hash that names a secret in its marker."""
        ...

    def seal(self, value: bytes, context: bytes) -> bytes:
        """Encrypts; `context` (the run) is bound to the result."""
        ...

    def unseal(self, sealed: bytes, context: bytes) -> bytes:
        """Raises Corrupt if the bytes or the context are not what was sealed."""
        ...
