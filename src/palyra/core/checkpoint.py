"""Signed checkpoints: which bytes a node signs, and how checkpoints chain.

Does not own: keys and signing (ports.signer).
A checkpoint names the heads of the tapes that changed since the one before it, its own system tape included. So a
removed tape shows, and so does a tape whose end was cut off.
Invariant: the signature covers every member of the event's data but itself.
"""

import hashlib

import msgspec

from palyra.core.canonical import canonical_bytes, encode_plain_record
from palyra.core.errors import Invalid
from palyra.core.events.system import CheckpointSigned, Head
from palyra.core.ids import NodeId, derive_node_id

HEADS_MAX = 1000  # A head takes about 110 bytes, so a full checkpoint stays well under the size cap of an event.
_DOMAIN = b"palyra-checkpoint-v1\x00"
_HEAD_DOMAIN = b"palyra-head-v1\x00"  # A signed head is never taken for a checkpoint, nor the reverse.
FIRST_PREVIOUS = "0" * 64


def draft_checkpoint(public_key: bytes, previous: str, position: int, heads: tuple[Head, ...]) -> CheckpointSigned:
    """Returns an unsigned checkpoint; the node signs its `sign_bytes`."""
    return CheckpointSigned(
        node=derive_node_id(public_key),
        key_id=key_id(public_key),
        previous=previous,
        position=position,
        heads=heads,
        signature="",
        attests_all=True,
    )


def sign_bytes(checkpoint: CheckpointSigned) -> bytes:
    """Returns the bytes to sign: the domain, then JCS of the data without its signature."""
    unsigned = _Unsigned(
        attests_all=checkpoint.attests_all,
        heads=checkpoint.heads,
        key_id=checkpoint.key_id,
        node=checkpoint.node,
        position=checkpoint.position,
        previous=checkpoint.previous,
    )
    return _DOMAIN + encode_plain_record(unsigned)


def checkpoint_hash(checkpoint: CheckpointSigned) -> str:
    """Returns the hash that the next checkpoint names as `previous`."""
    return hashlib.sha256(sign_bytes(checkpoint) + bytes.fromhex(checkpoint.signature)).hexdigest()


class Anchor(msgspec.Struct, frozen=True, kw_only=True):
    """The head of one signed checkpoint, for a place outside the journal. It holds no text of anybody."""

    node: NodeId
    key_id: str
    position: int
    checkpoint: str
    at_ms: int


def anchor_of(checkpoint: CheckpointSigned, at_ms: int) -> Anchor:
    return Anchor(
        node=checkpoint.node,
        key_id=checkpoint.key_id,
        position=checkpoint.position,
        checkpoint=checkpoint_hash(checkpoint),
        at_ms=at_ms,
    )


class SignedHead(Anchor, frozen=True, kw_only=True):
    """The newest checkpoint that a node knows to have signed, as it stands beside its public key."""

    signature: str = ""


def head_bytes(head: Anchor) -> bytes:
    """Returns the bytes that a node signs to say which checkpoint is its newest."""
    members = (head.node, head.key_id, head.position, head.checkpoint, head.at_ms)
    return _HEAD_DOMAIN + canonical_bytes(list(members))


def anchor_line(anchor: Anchor) -> bytes:
    return msgspec.json.encode(anchor) + b"\n"


def read_anchors(text: bytes) -> tuple[Anchor, ...]:
    """Reads lines that `anchor_line` wrote. Raises Invalid for anything else: a wrong file must not look like none."""
    try:
        return tuple(msgspec.json.decode(line, type=Anchor) for line in text.splitlines() if line.strip())
    except (msgspec.DecodeError, UnicodeDecodeError) as cause:
        raise Invalid(
            "anchor_invalid", "the file holds a line that is no anchor; name the file of your anchors"
        ) from cause


def key_id(public_key: bytes) -> str:
    return hashlib.sha256(public_key).hexdigest()[:16]


def is_signed_by_node(checkpoint: CheckpointSigned, public_key: bytes, node: NodeId) -> bool:
    """Tells whether key, key id and node name belong together; the caller checks the signature itself."""
    is_named = checkpoint.node == node == derive_node_id(public_key)
    return is_named and checkpoint.key_id == key_id(public_key)


class _Unsigned(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    attests_all: bool = False
    heads: tuple[Head, ...]
    key_id: str
    node: NodeId
    position: int
    previous: str
