"""The node's signature: an Ed25519 key in a file, and its public half beside the journal.

Owns: `KEY.begun`, which tells that the key has signed a journal, and its newest checkpoint there.
Does not own: what is signed (core.checkpoint).
Invariant: the file names a checkpoint only after that is durable. So it may be older than the journal, never newer.
"""

from pathlib import Path

import msgspec
import structlog
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from palyra.adapters.files.durable import PUBLIC, ensure_folder, replace_whole
from palyra.adapters.keys.secret_file import load_or_create, publish
from palyra.core.checkpoint import Anchor, SignedHead, head_bytes, key_id
from palyra.core.errors import Corrupt
from palyra.core.ids import NodeId

_BEGUN = b"This key has signed a journal. Without its checkpoints no other is begun.\n"
_PUBLIC_FOLDER = 0o755
_BEGUN_BYTES_MAX = 4_096

log = structlog.get_logger()


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

    def head(self) -> Anchor | None:
        head = read_head(self._begun)
        if head is None:
            return None
        try:
            self._key.public_key().verify(bytes.fromhex(head.signature), head_bytes(head))
        except (InvalidSignature, ValueError) as cause:
            message = f"{self._begun} is not what this node wrote; run palyra verify, then restore a backup"
            raise Corrupt("head_damaged", message) from cause
        return head

    def note_head(self, head: Anchor) -> None:
        members = msgspec.structs.asdict(head) | {"signature": self._key.sign(head_bytes(head)).hex()}
        try:
            ensure_folder(self._begun.parent, _PUBLIC_FOLDER)
            replace_whole(self._begun, _BEGUN + msgspec.json.encode(SignedHead(**members)) + b"\n", PUBLIC)
        except OSError as error:
            # An older head is sound, and the next checkpoint brings a newer one.
            log.warning("head_not_written", file=str(self._begun), reason=error.strerror)

    def sign(self, message: bytes) -> bytes:
        return self._key.sign(message)


def read_head(begun: Path) -> SignedHead | None:
    """Returns what the file says, unchecked; None without such a line. A line that cannot be read has no signature."""
    try:
        with begun.open("rb") as file:
            lines = file.read(_BEGUN_BYTES_MAX).splitlines()
    except OSError:
        return None
    try:
        return msgspec.json.decode(lines[1], type=SignedHead) if len(lines) > 1 else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return SignedHead(node=NodeId(""), key_id=begun.stem, position=0, checkpoint="", at_ms=0)


def read_heads(directory: Path) -> tuple[SignedHead, ...]:
    """Returns the newest checkpoints that the files beside public keys name."""
    found = [read_head(begun) for begun in sorted(directory.glob("*.begun"))]
    return tuple([head for head in found if head is not None])
