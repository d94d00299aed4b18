"""Signs the outcomes of calls that nothing executed, before they are committed.

Does not own: which bytes are signed (core.attestation), outcomes of executed calls (tool_call).
Invariant: no outcome of a call is committed without an attestation.
"""

from palyra.core.attestation import SigningKey, attest_all
from palyra.core.checkpoint import key_id
from palyra.core.events import has_any
from palyra.core.events.tool import ToolFinished, ToolUncertain
from palyra.core.run.decide import Record
from palyra.core.run.state import Run
from palyra.ports.signer import Signer

_OUTCOMES = frozenset({ToolFinished, ToolUncertain})


def sign_outcomes(record: Record, before: Run | None, signer: Signer) -> Record:
    """Returns the record with every outcome signed. `before` is the run as it was, with its open calls."""
    if not has_any(record.drafts, _OUTCOMES):
        return record
    proposed = (*before.calls, *before.earlier) if before is not None else ()
    calls = {call.call_id: (call.tool, call.arguments) for call in proposed}
    return Record(attest_all(record.drafts, calls, SigningKey(key_id(signer.public_key), signer.sign)))
