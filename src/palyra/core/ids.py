"""Identifiers: their shapes, parsing and derivation.

Does not own: randomness and time, which arrive as arguments.
Random ids are ULIDs: 48 bits of milliseconds and 80 random bits in Crockford base32. Approvals, calls and effects are
decided by a run, so their ids are derived from their cause. Folding a tape again gives the same ids.
"""

import hashlib
import re
from collections.abc import Iterable
from typing import NewType

from palyra.core.canonical import canonical_bytes
from palyra.core.errors import Invalid

StreamId = NewType("StreamId", str)
SessionId = NewType("SessionId", StreamId)  # Every session names a tape; not every tape is a session's.
RunId = NewType("RunId", str)
CallId = NewType("CallId", str)
EffectId = NewType("EffectId", str)
ApprovalId = NewType("ApprovalId", str)
GrantId = NewType("GrantId", str)
ArtifactId = NewType("ArtifactId", str)
JobId = NewType("JobId", str)
IncidentId = NewType("IncidentId", str)
RoutineId = NewType("RoutineId", str)
MemoryId = NewType("MemoryId", str)
CandidateId = NewType("CandidateId", str)
NodeId = NewType("NodeId", str)
Principal = NewType("Principal", str)

ULID_RANDOM_BYTES = 10
ULID_LENGTH = 26
AT_MS_MAX = (1 << 48) - 1
PRINCIPAL_LENGTH_MAX = 256  # Room for a channel kind and a platform's longest account id.

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_DERIVED = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")
_SHA256_HEX = re.compile(r"[0-9a-f]{64}")
_PRINCIPAL = re.compile(r"(user|channel|system|agent):[^\x00-\x20\x7f]+")
_FORMS = {  # What a person is told about each pattern.
    _ULID: "an id has 26 digits and capital letters, such as 01JXQ0Z7N8E4T5Y6W7V8S9R0QP",
    _DERIVED: "an id has 26 digits and capital letters, such as 01JXQ0Z7N8E4T5Y6W7V8S9R0QP",
    _SHA256_HEX: "it is a SHA-256: 64 characters, each 0-9 or a-f",
    _PRINCIPAL: "write user:, channel:, agent: or system: and a name without spaces, such as user:alice",
}
_SYSTEM_PREFIX = "system:"
_AGENT_PREFIX = "agent:"


def make_ulid(at_ms: int, random_bytes: bytes) -> str:
    if not 0 <= at_ms <= AT_MS_MAX:
        raise Invalid("time_out_of_range", f"{at_ms} ms does not fit in a ULID")
    if len(random_bytes) != ULID_RANDOM_BYTES:
        raise Invalid("entropy_length", f"a ULID takes {ULID_RANDOM_BYTES} random bytes, got {len(random_bytes)}")
    return _base32((at_ms << 80) | int.from_bytes(random_bytes, "big"))


def ulid_at_ms(ulid: str) -> int:
    value = 0
    for letter in ulid[:10]:
        value = value * 32 + _ALPHABET.index(letter)
    return value


def parse_session_id(text: str) -> SessionId:
    return SessionId(StreamId(_matched(_ULID, text, "session_id")))


def parse_run_id(text: str) -> RunId:
    return RunId(_matched(_ULID, text, "run_id"))


def parse_job_id(text: str) -> JobId:
    return JobId(_matched(_ULID, text, "job_id"))


def parse_incident_id(text: str) -> IncidentId:
    return IncidentId(_matched(_ULID, text, "incident_id"))


def parse_memory_id(text: str) -> MemoryId:
    return MemoryId(_matched(_ULID, text, "memory_id"))


def parse_candidate_id(text: str) -> CandidateId:
    return CandidateId(_matched(_DERIVED, text, "candidate_id"))


def parse_routine_id(text: str) -> RoutineId:
    return RoutineId(_matched(_DERIVED, text, "routine_id"))


def parse_approval_id(text: str) -> ApprovalId:
    return ApprovalId(_matched(_DERIVED, text, "approval_id"))


def parse_artifact_id(text: str) -> ArtifactId:
    return ArtifactId(_matched(_SHA256_HEX, text, "artifact_id"))


def parse_principal(text: str) -> Principal:
    if len(text) > PRINCIPAL_LENGTH_MAX:
        raise Invalid("principal_invalid", f"a principal has at most {PRINCIPAL_LENGTH_MAX} characters")
    return Principal(_matched(_PRINCIPAL, text, "principal"))


def agent_principal(agent: str) -> Principal:
    """Returns who speaks when an agent does: its model's words are no person's."""
    return Principal(_AGENT_PREFIX + agent)


def is_agent(principal: Principal) -> bool:
    return principal.startswith(_AGENT_PREFIX)


def parse_stream(text: str) -> StreamId:
    """A stream is a session's tape or a node's system tape."""
    if text.startswith(_SYSTEM_PREFIX):
        return StreamId(_SYSTEM_PREFIX + _matched(_DERIVED, text.removeprefix(_SYSTEM_PREFIX), "stream"))
    return StreamId(_matched(_ULID, text, "stream"))


def system_stream(node: NodeId) -> StreamId:
    return StreamId(_SYSTEM_PREFIX + node)


def uploads_stream(principal: Principal) -> StreamId:
    """Names the stream under which a principal's uploads outside any session are linked; no tape has this name."""
    return StreamId(f"uploads:{principal}")


def is_system_stream(stream: StreamId) -> bool:
    return stream.startswith(_SYSTEM_PREFIX)


def derive_node_id(public_key: bytes) -> NodeId:
    """Names a node by its key, so that nobody can speak under the old name after the key is lost."""
    return NodeId(_derived("node", public_key.hex()))


def derive_approval_id(run_id: RunId, cause: str, attempt: int) -> ApprovalId:
    return ApprovalId(_derived("approval", run_id, cause, str(attempt)))


def derive_grant_id(approval_id: ApprovalId) -> GrantId:
    return GrantId(_derived("grant", approval_id))


def configured_routine_id(name: str) -> RoutineId:
    """Names a routine of palyra.toml by its name there, so that a change of the file changes the same routine."""
    return RoutineId(_derived("routine of the file", name))


def derive_routine_id(effect_id: EffectId) -> RoutineId:
    """Names the routine that a tool call makes, so that the call may be repeated."""
    return RoutineId(_derived("routine", effect_id))


def derive_candidate_id(owner: Principal, kind: str, content: str, evidence: Iterable[str]) -> CandidateId:
    """Names a candidate by what it says and what it was drawn from, so that the same find twice is one."""
    return CandidateId(_derived("candidate", owner, kind, content, *evidence))


def derive_mark_id(session_id: SessionId, kind: str, place: int) -> str:
    """Derives the id of a named place from its cause, so that the same cause has the same id again."""
    return _derived(kind, session_id, str(place))


def make_call_id(run_id: RunId, index: int) -> CallId:
    """Makes an id of our own: some providers repeat theirs, and history needs ids unique over a whole session."""
    return CallId(f"c{index}_{run_id[-8:]}")


def derive_effect_id(run_id: RunId, call_index: int, tool: str, arguments: object) -> EffectId:
    parts = (run_id.encode(), str(call_index).encode(), tool.encode(), canonical_bytes(arguments))
    return EffectId(hashlib.sha256(length_prefixed(*parts)).hexdigest())


def derive_child_ids(parent_run_id: RunId, effect_id: EffectId) -> tuple[SessionId, RunId]:
    """Returns the session and the run that one effect delegates to: the same for every attempt at that effect.

    Their time is that of the parent's id, so that they stand beside it in every list.
    """
    at_ms = ulid_at_ms(parent_run_id)
    made = [
        make_ulid(at_ms, hashlib.sha256(length_prefixed(noun, effect_id.encode())).digest()[:ULID_RANDOM_BYTES])
        for noun in (b"session", b"run")
    ]
    return SessionId(StreamId(made[0])), RunId(made[1])


def digest_call(tool: str, arguments: object) -> str:
    """Returns the digest that an approval is bound to: the exact tool and its exact (redacted) arguments."""
    return hashlib.sha256(length_prefixed(tool.encode(), canonical_bytes(arguments))).hexdigest()


def digest_calls(calls: Iterable[tuple[CallId, str]]) -> str:
    """Returns the digest that an approval of several calls is bound to: every call with its digest.

    It never equals the digest of one call, because no call's digest is over a list.
    """
    return digest_call("calls", [[call_id, digest] for call_id, digest in calls])


def length_prefixed(*parts: bytes) -> bytes:
    """Puts each part behind its length in 8 bytes, so that no two lists of parts give the same bytes."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def _derived(*parts: str) -> str:
    digest = hashlib.sha256(length_prefixed(*(part.encode() for part in parts))).digest()
    return _base32(int.from_bytes(digest, "big") >> 126)


def _base32(value: int) -> str:
    letters = []
    for _ in range(ULID_LENGTH):
        letters.append(_ALPHABET[value & 31])
        value >>= 5
    return "".join(reversed(letters))


def _matched(pattern: re.Pattern[str], text: str, noun: str) -> str:
    if pattern.fullmatch(text) is None:
        raise Invalid(f"{noun}_invalid", f"not a valid {noun.replace('_', ' ')}; {_FORMS[pattern]}")
    return text
