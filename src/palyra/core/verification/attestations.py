"""Checks the tool attestations of one tape: input, output and signature against what the tape holds."""

from collections.abc import Callable

from palyra.core.attestation import hash_input, hash_output, sign_bytes
from palyra.core.events import Event
from palyra.core.events.base import ErasedData
from palyra.core.events.tool import Attestation, ToolFinished, ToolProposed, ToolUncertain
from palyra.core.ids import CallId, StreamId
from palyra.core.verification.evidence import VerifyFinding


class AttestationCheck:
    """Remembers a hash of each proposed call, and compares each outcome with it."""

    def __init__(
        self,
        public_key: Callable[[str], bytes | None],
        is_valid: Callable[[bytes, bytes, bytes], bool],
        must_be_attested: Callable[[int], bool],
    ) -> None:
        self._public_key = public_key
        self._is_valid = is_valid
        self._must_be_attested = must_be_attested
        self._proposed: dict[CallId, tuple[str, str]] = {}
        self._has_lost_proposal = False
        self.first_by_key: dict[str, tuple[StreamId, int]] = {}
        self.checked_count = 0
        self.unchecked_count = 0

    def forgive_unknown_calls(self) -> None:
        """Tolerates outcomes of unknown calls, because a proposal may be among the unreadable events."""
        self._has_lost_proposal = True

    def check(self, event: Event) -> VerifyFinding | None:
        match event.data:
            case ToolProposed(call_id=call_id, tool=tool, arguments=arguments):
                self._proposed[call_id] = (tool, hash_input(arguments))
            case ToolFinished(attestation=None) | ToolUncertain(attestation=None):
                if not self._must_be_attested(event.position):
                    return None
                return VerifyFinding(event.stream, event.seq, "the outcome has no attestation")
            case ToolFinished(attestation=Attestation() as attestation) as finished:
                return self._check_outcome(event, finished, attestation)
            case ToolUncertain(attestation=Attestation() as attestation) as doubted:
                return self._check_outcome(event, doubted, attestation)
            case ErasedData() if event.type == ToolProposed.TYPE:
                self._has_lost_proposal = True
            case _:
                pass
        return None

    def _check_outcome(
        self, event: Event, finished: ToolFinished | ToolUncertain, attestation: Attestation
    ) -> VerifyFinding | None:
        proposed = self._proposed.get(finished.call_id)
        if proposed is None and self._has_lost_proposal:
            self.unchecked_count += 1  # Its tool and arguments are gone, so there is nothing to compare it with.
            return None
        self.checked_count += 1
        problem = self._problem(proposed, finished, attestation)
        if problem is None:
            self.first_by_key.setdefault(attestation.key_id, (event.stream, event.seq))
        return None if problem is None else VerifyFinding(event.stream, event.seq, problem)

    def _problem(
        self, proposed: tuple[str, str] | None, finished: ToolFinished | ToolUncertain, attestation: Attestation
    ) -> str | None:
        if proposed is None:
            return "the attestation is of a call that this tape never proposed"
        tool, input_hash = proposed
        if attestation.input_sha256 != input_hash:
            return "the attestation's input is not what was proposed"
        if attestation.output_sha256 != hash_output(finished):
            return "the attestation's output is not what is stored"
        key = self._public_key(attestation.key_id)
        if key is None:
            return "the attestation is signed with a key that does not lie beside the journal"
        if not self._is_valid(key, sign_bytes(tool, finished, attestation), _signature(attestation)):
            return "the attestation's signature does not hold"
        return None


def _signature(attestation: Attestation) -> bytes:
    try:
        return bytes.fromhex(attestation.signature)
    except ValueError:
        return b""
