"""Tool attestations: which bytes a node signs about one executed call.

Does not own: keys (ports.signer), executing the call.
The signed bytes are a domain, then each part behind its length. The parts are effect_id, tool, input hash, stored
output hash, outcome, runtime, sandbox, start and end.
Invariant: all hashes are over the redacted, stored form, so that anyone with the tape can check them.
"""

import hashlib

from palyra.core.canonical import canonical_bytes
from palyra.core.events.tool import Attestation, ToolFinished
from palyra.core.ids import length_prefixed

_DOMAIN = b"palyra-attestation-v1\x00"


def hash_input(arguments: object) -> str:
    return hashlib.sha256(canonical_bytes(arguments)).hexdigest()


def hash_output(finished: ToolFinished) -> str:
    """Hashes the stored bytes: the artifact (whose id is its hash) if the output was spilled, else the text."""
    if finished.artifact_id is not None:
        return finished.artifact_id
    return hashlib.sha256((finished.output or "").encode()).hexdigest()


def sign_bytes(tool: str, finished: ToolFinished, attestation: Attestation) -> bytes:
    parts = (
        finished.effect_id,
        tool,
        attestation.input_sha256,
        attestation.output_sha256,
        finished.outcome.value,
        attestation.runtime,
        attestation.sandbox,
        str(attestation.started_at_ms),
        str(attestation.finished_at_ms),
    )
    return _DOMAIN + length_prefixed(*(part.encode() for part in parts))
