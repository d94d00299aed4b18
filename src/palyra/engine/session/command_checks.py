"""Checks of commands against the session that they are sent to.

Owns: which commands a session refuses or has carried out already. Does not own: carrying them out (commit_builder).
"""

from palyra.core.errors import Conflict, Invalid, NotFound, PalyraError
from palyra.core.events.run import RunAccepted
from palyra.core.events.session import SourceDistrusted, SourceTrusted
from palyra.core.ids import Principal, RunId
from palyra.core.service_runs import refuse_service
from palyra.core.taint import MANY, find_source
from palyra.engine.session.commands import Command, OpenSession, RecordSessionEvent, ReturnResults, SendInput, StartRun
from palyra.engine.session.pending_commit import PendingCommit, SessionState


def require_not_service(state: SessionState, command: Command) -> None:
    """The session of a service run is the daemon's: it has the one run it began with."""
    match command:
        case StartRun(opening=None) | SendInput() | ReturnResults() | RecordSessionEvent():
            refuse_service(state.session_id, state.agent)
        case OpenSession(opening=opening):
            refuse_service(state.session_id, opening.agent)
        case _:
            return


def has_begun(pending: PendingCommit, owner: Principal) -> bool:
    """Tells whether another command has begun the session since this one was made to begin it.

    A session that somebody else has begun is answered like one that is not there (L11).
    """
    state = pending.state
    is_new = state.head_seq == 0 and not pending.drafts
    if not is_new and state.owner != owner:
        raise NotFound("session_unknown", f"there is no session {state.session_id}")
    return not is_new


def changes_trust(state: SessionState, data: SourceTrusted | SourceDistrusted) -> bool:
    """Trust given twice is recorded once. Nobody can trust a source that the context does not hold or count."""
    found = find_source(state.taint, data.source)
    if found is None:
        raise NotFound(
            "source_unknown",
            f"the session's taint has no source {data.source!r}; palyra sessions taint shows those it has",
        )
    if found.source == MANY:
        message = "sources that are too many to list cannot be trusted; reset the session, or continue with questions"
        raise Conflict("source_many", message, is_retryable=False)
    return found.is_trusted is not isinstance(data, SourceTrusted)


def same_run(pending: PendingCommit, command: StartRun) -> RunId | None:
    """Returns the run of a command with the same key in this commit, which no table has yet."""
    key = command.accepted.idempotency_key
    for draft in pending.drafts if key is not None else ():
        is_same = isinstance(draft.data, RunAccepted) and draft.data.idempotency_key == key
        if is_same and draft.actor == command.principal:
            return draft.run_id
    return None


def as_conflict(error: PalyraError) -> PalyraError:
    """A command that came too late is a Conflict to its caller, not a fault of its form."""
    is_late = isinstance(error, Invalid) and error.code in (
        "run_ended",
        "call_unknown",
        "approval_unknown",
        "approval_expired",
    )
    return Conflict(error.code, error.message, is_retryable=False) if is_late else error
