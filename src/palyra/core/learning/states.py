"""States of candidates, and what may change them.

Owns: the table of transitions. Does not own: which state a new candidate begins in (thresholds), applying one (engine).
An action that has no row here is a Conflict and changes nothing.
"""

from enum import Enum

from palyra.core.errors import Conflict
from palyra.core.ids import CandidateId
from palyra.core.learning.model import CandidateStatus

SUPPRESSED = CandidateStatus.SUPPRESSED
PENDING = CandidateStatus.PENDING_REVIEW
ACCEPTED = CandidateStatus.ACCEPTED
REJECTED = CandidateStatus.REJECTED
SUPERSEDED = CandidateStatus.SUPERSEDED
UNDONE = CandidateStatus.UNDONE


class CandidateAction(Enum):
    """What is done to a candidate. The first six are a person's; the last two are the daemon's own."""

    ACCEPT = "accept"
    EDIT = "edit"  # Accepts it with other words.
    REJECT = "reject"
    PROMOTE = "promote"  # Puts a suppressed one into review.
    UNDO = "undo"
    SHARE = "share"  # Puts a line of private notes where every reader of the workspace is given it.
    SUPERSEDE = "supersede"  # A newer candidate says the same, or the opposite.
    RETURN = "return"  # It could not be applied as it is, so a person looks at it again.


TRANSITIONS: dict[tuple[CandidateStatus, CandidateAction], CandidateStatus] = {
    (PENDING, CandidateAction.ACCEPT): ACCEPTED,
    (PENDING, CandidateAction.EDIT): ACCEPTED,
    (PENDING, CandidateAction.REJECT): REJECTED,
    (PENDING, CandidateAction.SUPERSEDE): SUPERSEDED,
    (SUPPRESSED, CandidateAction.PROMOTE): PENDING,
    (SUPPRESSED, CandidateAction.REJECT): REJECTED,
    (SUPPRESSED, CandidateAction.SUPERSEDE): SUPERSEDED,
    (ACCEPTED, CandidateAction.UNDO): UNDONE,
    (ACCEPTED, CandidateAction.SHARE): ACCEPTED,
    (ACCEPTED, CandidateAction.RETURN): PENDING,
    (REJECTED, CandidateAction.PROMOTE): PENDING,
    (UNDONE, CandidateAction.PROMOTE): PENDING,
}

PEOPLES_ACTIONS = (
    CandidateAction.ACCEPT,
    CandidateAction.EDIT,
    CandidateAction.REJECT,
    CandidateAction.PROMOTE,
    CandidateAction.UNDO,
    CandidateAction.SHARE,
)


def next_status(candidate_id: CandidateId, status: CandidateStatus, action: CandidateAction) -> CandidateStatus:
    """Returns the state after an action. Raises Conflict if the action is not possible in this state."""
    found = TRANSITIONS.get((status, action))
    if found is None:
        possible = sorted(each.value for state, each in TRANSITIONS if state is status and each in PEOPLES_ACTIONS)
        what = f"it can be: {', '.join(possible)}" if possible else "nothing can be done to it any more"
        message = f"candidate {candidate_id} is {status.value}, so it cannot be {_done(action)}; {what}"
        raise Conflict("candidate_state", message, is_retryable=False)
    return found


def _done(action: CandidateAction) -> str:
    words = {CandidateAction.UNDO: "undone", CandidateAction.RETURN: "returned", CandidateAction.EDIT: "edited"}
    return words.get(action, f"{action.value.removesuffix('e')}ed")
