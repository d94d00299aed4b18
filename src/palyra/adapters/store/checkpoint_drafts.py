"""Checkpoints to be recorded: the heads that changed, signed, in as many events as they need.

Owns: splitting, chaining and signing them.
Does not own: finding the heads (each store), the signed bytes (core.checkpoint), keys (ports.signer).
"""

from collections.abc import Sequence

import msgspec

from palyra.core.checkpoint import FIRST_PREVIOUS, HEADS_MAX, checkpoint_hash, draft_checkpoint, sign_bytes
from palyra.core.errors import Corrupt
from palyra.core.events import Draft
from palyra.core.events.codec import decode_data
from palyra.core.events.system import CheckpointSigned, Head
from palyra.core.ids import Principal, StreamId
from palyra.core.trust import Trust
from palyra.ports.signer import Signer

ACTOR = Principal("system:journal")


def read_checkpoint(tape: StreamId, data: bytes) -> CheckpointSigned:
    """Returns the last checkpoint of a tape from its stored bytes."""
    checkpoint = decode_data(CheckpointSigned.TYPE, data)
    if not isinstance(checkpoint, CheckpointSigned):
        raise Corrupt("checkpoint_unreadable", f"the last checkpoint of tape {tape} is not one; run palyra verify")
    return checkpoint


def draft_checkpoints(
    signer: Signer, last: CheckpointSigned | None, position: int, heads: Sequence[Head], at_ms: int
) -> list[Draft]:
    """Drafts the checkpoints. `position` is the journal's last one.

    These checkpoints and those before them cover every event up to it.
    """
    previous = checkpoint_hash(last) if last is not None else FIRST_PREVIOUS
    drafts = []
    for start in range(0, max(1, len(heads)), HEADS_MAX):
        unsigned = draft_checkpoint(signer.public_key, previous, position, tuple(heads[start : start + HEADS_MAX]))
        signed = msgspec.structs.replace(unsigned, signature=signer.sign(sign_bytes(unsigned)).hex())
        drafts.append(Draft(data=signed, actor=ACTOR, trust=Trust.SYSTEM, at_ms=at_ms))
        previous = checkpoint_hash(signed)
    return drafts
