"""Rules of erasing text from tapes, the same for every store.

Owns: what may be erased, and how an erasure is put on record.
Does not own: overwriting the bytes (each store), nor choosing what to erase.
"""

from collections.abc import Iterable

import msgspec

from palyra.core.erasure import as_ranges
from palyra.core.errors import Conflict, Invalid, NotFound
from palyra.core.events import Draft
from palyra.core.events.system import Erased
from palyra.core.ids import RunId, SessionId, StreamId, is_system_stream
from palyra.core.trust import Trust
from palyra.ports.journal import Erasure

RANGES_MAX = 4_000  # A range takes about 50 bytes: the record of an erasure stays under the limit of an event.
REASON_LENGTH_MAX = 200  # A reason is a word or a sentence, and it stays for ever.


class TapeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a store knows of a tape that is to be erased. `head_seq` is 0 if there is no such tape.

    `branches` are the sessions that branch off the tape, each with the seq after which it left. `used_at_ms` is when
    the session was last used.
    """

    head_seq: int
    unfinished_run: RunId | None
    branches: tuple[tuple[SessionId, int], ...]
    used_at_ms: int = 0


def require_erasable(erasure: Erasure, tape: TapeFacts, whole: frozenset[StreamId]) -> None:
    """Raises if the erasure must be refused. `whole` are the tapes that the same call erases entirely."""
    stream = erasure.stream
    if is_system_stream(stream):
        raise Invalid(
            "system_tape", f"{stream} is a system tape, which holds the record of erasures and is never erased"
        )
    if not 0 < len(erasure.reason) <= REASON_LENGTH_MAX:
        raise Invalid("reason_invalid", f"an erasure needs a reason of at most {REASON_LENGTH_MAX} characters")
    if tape.head_seq == 0:
        raise NotFound("session_unknown", f"there is no tape {stream}")
    if erasure.seqs is not None and any(not 1 <= seq <= tape.head_seq for seq in erasure.seqs):
        raise Invalid("seq_unknown", f"tape {stream} has seqs 1 to {tape.head_seq}, and others were to be erased")
    if tape.unfinished_run is not None:
        message = f"run {tape.unfinished_run} of session {stream} has not ended; cancel it or wait, then erase"
        raise Conflict("run_active", message)
    if erasure.idle_before_ms is not None and tape.used_at_ms >= erasure.idle_before_ms:
        raise Conflict("session_used", f"session {stream} has been used meanwhile, so it stays")
    for branch, parent_seq in tape.branches:
        if branch not in whole and not erasure.covers_branches and _is_shared(erasure, parent_seq):
            message = f"session {branch} branches off {stream}; erase it whole in the same call, or keep both"
            raise Conflict("has_branches", message)


def draft_erasure(erasure: Erasure, seqs: Iterable[int]) -> list[Draft]:
    """Returns the events that record the erasure; none if no event held text any more."""
    ranges = as_ranges(seqs)
    chunks = [ranges[start : start + RANGES_MAX] for start in range(0, len(ranges), RANGES_MAX)]
    return [
        Draft(
            data=Erased(stream=erasure.stream, ranges=chunk, reason=erasure.reason),
            actor=erasure.actor,
            trust=Trust.SYSTEM,
            at_ms=erasure.at_ms,
        )
        for chunk in chunks
    ]


def _is_shared(erasure: Erasure, parent_seq: int) -> bool:
    """Tells whether a branch shares the text. Its history is its parent's up to where it left.

    That part is erased only together with the branch.
    """
    return erasure.seqs is None or min(erasure.seqs, default=parent_seq + 1) <= parent_seq
