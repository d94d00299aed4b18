"""Signs the outcome of one executed call.

Does not own: which bytes are signed (core.attestation), keys (ports.signer).
"""

import msgspec
from msgspec.structs import replace

from palyra.core.attestation import hash_input, hash_output, sign_bytes
from palyra.core.checkpoint import key_id
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import Attestation, ToolFinished
from palyra.ports.signer import Signer


class Attested(msgspec.Struct, frozen=True, kw_only=True):
    """What a node says of a call beyond its outcome: what ran, by which runtime, in which sandbox, and since when."""

    tool: str
    arguments: JsonObject | str
    runtime: str
    sandbox: str
    started_at_ms: int


def attest(signer: Signer, finished: ToolFinished, executed: Attested, now_ms: int) -> Attestation:
    unsigned = Attestation(
        key_id=key_id(signer.public_key),
        runtime=executed.runtime,
        sandbox=executed.sandbox,
        started_at_ms=executed.started_at_ms,
        finished_at_ms=max(now_ms, executed.started_at_ms),
        input_sha256=hash_input(executed.arguments),
        output_sha256=hash_output(finished),
        signature="",
    )
    return replace(unsigned, signature=signer.sign(sign_bytes(executed.tool, finished, unsigned)).hex())
