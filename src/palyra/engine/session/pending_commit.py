"""The content of one commit of a session, while it is built.

Owns: the session's state and the commit as values. A command that fails half-way is undone by using the earlier value.
Does not own: the rules (core.run), building it (commit_builder), committing it (session_loop).
"""

import msgspec
from msgspec.structs import replace

from palyra.core.context.window import Window, WindowFact, extend_by
from palyra.core.errors import NotFound
from palyra.core.events import Draft, has_any
from palyra.core.events.model import UsageRecorded
from palyra.core.events.tool import ApprovalKind, ApprovalRequested, ApprovalResolved, Decision
from palyra.core.ids import Principal, RunId, SessionId
from palyra.core.run.decide import Record
from palyra.core.run.effects import Effect
from palyra.core.run.state import Run
from palyra.core.run.states import RunState, is_terminal
from palyra.core.taint import UNNAMED, Taint, fold_drafts, labels
from palyra.core.trust import is_tainting
from palyra.core.writes import Write
from palyra.engine.spend.ledger import Spent, spender_of

_QUESTIONS = frozenset({ApprovalRequested, ApprovalResolved})
_ABOUT_DOUBT = frozenset({Decision.RETRY, Decision.DONE, Decision.GIVE_UP})


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine knows of a session. All of it can be read again from the journal."""

    session_id: SessionId
    owner: Principal
    agent: str
    head_seq: int = 0
    reset_seq: int = 0
    active: Run | None = None
    queued: tuple[Run, ...] = ()
    doubts: frozenset[str] = frozenset()
    window: Window = Window()
    taint: Taint = ()

    @property
    def compacted_place(self) -> int:
        """Returns the place up to which nothing is left to compact: that of the last compaction or reset."""
        reset_place = self.window.base + self.reset_seq if self.reset_seq else 0
        return max(reset_place, self.window.summary.to_place if self.window.summary is not None else 0)


class PendingCommit(msgspec.Struct, frozen=True, kw_only=True):
    state: SessionState
    drafts: tuple[Draft, ...] = ()
    spends: tuple[Spent, ...] = ()
    writes: tuple[Write, ...] = ()
    effects: tuple[Effect, ...] = ()


def taint_labels(state: SessionState, run: Run) -> tuple[str, ...]:
    """Names the sources that nobody vouches for in what the run sees.

    A run that saw content below `local` is tainted, even if none of its sources was recorded.
    """
    named = labels(state.taint)
    if named or state.taint:
        return named
    return (UNNAMED,) if is_tainting(run.trust) else ()


def find_run(state: SessionState, run_id: RunId) -> Run:
    for run in (state.active, *state.queued):
        if run is not None and run.run_id == run_id:
            return run
    raise NotFound("run_not_active", f"run {run_id} is not active in this session")


def running_run(state: SessionState) -> RunId | None:
    """The run that is in progress. A run that waits for a person is not."""
    active = state.active
    return active.run_id if active is not None and active.state is RunState.IN_PROGRESS else None


def put_run(state: SessionState, run: Run) -> SessionState:
    """Returns the state with this run: queued while accepted, active while it runs, removed when it is over."""
    queued = tuple(other for other in state.queued if other.run_id != run.run_id)
    active = state.active if state.active is None or state.active.run_id != run.run_id else None
    if is_terminal(run.state):
        return replace(state, active=active, queued=queued)
    if run.state is RunState.ACCEPTED:
        return replace(state, active=active, queued=(*queued, run))
    return replace(state, active=run, queued=queued)


def add_drafts(pending: PendingCommit, drafts: tuple[Draft, ...]) -> PendingCommit:
    """Appends drafts.

    Their taint and their words count at once: a call judged or a context assembled in the same commit must know them.
    """
    state = pending.state
    last_seq = state.head_seq + len(pending.drafts)
    taint = fold_drafts(state.taint, drafts, last_seq)
    window = state.window
    for seq, draft in enumerate(drafts, last_seq + 1):
        window = extend_by(window, WindowFact(window.base + seq, draft.run_id, draft.actor, draft.trust, draft.data))
    if taint is not state.taint or window is not state.window:
        state = replace(state, taint=taint, window=window)
    return replace(pending, state=state, drafts=(*pending.drafts, *drafts))


def add_record(pending: PendingCommit, record: Record, effects: tuple[Effect, ...], run: Run) -> PendingCommit:
    pending = add_drafts(pending, record.drafts)
    return replace(pending, state=put_run(pending.state, run), effects=(*pending.effects, *effects))


def remember_doubts(pending: PendingCommit, record: Record) -> PendingCommit:
    """Remembers calls whose effect is unknown: the same call is not made again unasked (L2)."""
    if not has_any(record.drafts, _QUESTIONS):
        return pending
    # An answer about a repeated call says nothing about the first call. Only an answer about the doubt does.
    answered = {
        draft.data.digest
        for draft in record.drafts
        if isinstance(draft.data, ApprovalResolved) and draft.data.decision in _ABOUT_DOUBT
    }
    asked = {
        draft.data.digest
        for draft in record.drafts
        if isinstance(draft.data, ApprovalRequested) and draft.data.kind is ApprovalKind.UNCERTAIN
    }
    doubts = (pending.state.doubts - answered) | asked
    if doubts == pending.state.doubts:
        return pending
    return replace(pending, state=replace(pending.state, doubts=doubts))


def spends_in(record: Record, run: Run, state: SessionState) -> tuple[Spent, ...]:
    settled = [draft for draft in record.drafts if isinstance(draft.data, UsageRecorded)]
    if not settled:
        return ()
    spender = spender_of(run, state.session_id)
    return tuple(Spent(spender, draft.data, draft.at_ms) for draft in settled if isinstance(draft.data, UsageRecorded))
