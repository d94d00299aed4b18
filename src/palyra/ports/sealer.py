"""The Sealer port: encrypts the values behind secret markers.

Does not own: where sealed bytes are stored (the journal's state).
"""

from typing import Protocol


class Sealer(Protocol):
    @property
    def marker_key(self) -> bytes:
        """Returns the key of the hash that names a secret in its marker."""
        ...

    def seal(self, value: bytes, context: bytes) -> bytes:
        """Encrypts the value; `context` (the run) is bound to the result."""
        ...

    def unseal(self, sealed: bytes, context: bytes) -> bytes:
        """Decrypts; raises Corrupt if the bytes or the context are not what was sealed."""
        ...
