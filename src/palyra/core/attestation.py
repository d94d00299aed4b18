"""Tool attestations: which bytes a node signs about the outcome of one call, executed or not.

Does not own: keys (ports.signer), executing the call.
The signed bytes are a domain, then each part behind its length. The parts are effect_id, tool, input hash, stored
output hash, outcome, runtime, sandbox, start and end.
Invariant: all hashes are over the redacted, stored form, so that anyone with the tape can check them.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from palyra.core.canonical import canonical_bytes
from palyra.core.events import Draft
from palyra.core.events.tool import Attestation, ToolFinished, ToolProposed, ToolUncertain
from palyra.core.ids import CallId, length_prefixed

NOT_RUN = "none"  # The runtime and the sandbox of a call that nothing executed.
UNCERTAIN = "uncertain"
_DOMAIN = b"palyra-attestation-v1\x00"

CallFacts = tuple[str, object]  # The tool and the arguments as they were proposed.


class SigningKey(NamedTuple):
    """A node's key id, and signing with it."""

    id: str
    sign: Callable[[bytes], bytes]


def hash_input(arguments: object) -> str:
    return hashlib.sha256(canonical_bytes(arguments)).hexdigest()


def attest_all(drafts: Sequence[Draft], calls: Mapping[CallId, CallFacts], key: SigningKey) -> tuple[Draft, ...]:
    """Returns the drafts with an attestation for each outcome that has none: denied, not run, cancelled, uncertain.

    `calls` are those that were proposed earlier; a call proposed in these drafts counts too.
    """
    known = dict(calls)
    return tuple(_attested(draft, known, key) for draft in drafts)


def _attested(draft: Draft, known: dict[CallId, CallFacts], key: SigningKey) -> Draft:
    match draft.data:
        case ToolProposed(call_id=call_id, tool=tool, arguments=arguments):
            known[call_id] = (tool, arguments)
            return draft
        case ToolFinished(attestation=None, call_id=call_id) | ToolUncertain(attestation=None, call_id=call_id) as data:
            if call_id not in known:
                return draft
            facts = known[call_id]
            unsigned = Attestation(
                key_id=key.id,
                runtime=NOT_RUN,
                sandbox=NOT_RUN,
                started_at_ms=draft.at_ms,
                finished_at_ms=draft.at_ms,
                input_sha256=hash_input(facts[1]),
                output_sha256=hash_output(data),
                signature="",
            )
            signature = key.sign(sign_bytes(facts[0], data, unsigned)).hex()
            return replace(draft, data=replace(data, attestation=replace(unsigned, signature=signature)))
        case _:
            return draft


def hash_output(finished: ToolFinished | ToolUncertain) -> str:
    """Hashes the stored bytes: the artifact (whose id is its hash) if the output was spilled, else the text."""
    if isinstance(finished, ToolUncertain):
        return hashlib.sha256(b"").hexdigest()
    if finished.artifact_id is not None:
        return finished.artifact_id
    return hashlib.sha256((finished.output or "").encode()).hexdigest()


def sign_bytes(tool: str, finished: ToolFinished | ToolUncertain, attestation: Attestation) -> bytes:
    outcome = UNCERTAIN if isinstance(finished, ToolUncertain) else finished.outcome.value
    parts = (
        finished.effect_id,
        tool,
        attestation.input_sha256,
        attestation.output_sha256,
        outcome,
        attestation.runtime,
        attestation.sandbox,
        str(attestation.started_at_ms),
        str(attestation.finished_at_ms),
    )
    return _DOMAIN + length_prefixed(*(part.encode() for part in parts))
