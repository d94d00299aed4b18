"""The sheet. Owns: what one commit of a desk will hold while it is drawn up. Not: the rules, nor committing it.

All of it is values: undoing an order that failed half-way is taking the earlier sheet.
"""

import msgspec
from msgspec.structs import replace

from palyra.core.conversation import Window
from palyra.core.errors import NotFound
from palyra.core.events import Draft
from palyra.core.ids import Principal, RunId
from palyra.core.run.decide import Record
from palyra.core.run.effects import Effect
from palyra.core.run.state import Run
from palyra.core.run.states import RunState, is_terminal
from palyra.core.taint import Taint, fold_drafts
from palyra.core.writes import Write
from palyra.engine.spend.ledger import Spent


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    """What a desk knows of its session; all of it can be read again from the journal."""

    owner: Principal
    agent: str
    head_seq: int = 0
    reset_seq: int = 0
    active: Run | None = None
    queued: tuple[Run, ...] = ()
    doubts: frozenset[str] = frozenset()
    window: Window = Window()
    taint: Taint = ()


class PendingCommit(msgspec.Struct, frozen=True, kw_only=True):
    state: SessionState
    drafts: tuple[Draft, ...] = ()
    spends: tuple[Spent, ...] = ()
    writes: tuple[Write, ...] = ()
    effects: tuple[Effect, ...] = ()


def find_run(state: SessionState, run_id: RunId) -> Run:
    for run in (state.active, *state.queued):
        if run is not None and run.run_id == run_id:
            return run
    raise NotFound("run_not_active", f"run {run_id} is not active in this session")


def put_run(state: SessionState, run: Run) -> SessionState:
    """The state with this run in its place: queued while accepted, active while it goes on, gone when it is over."""
    queued = tuple(other for other in state.queued if other.run_id != run.run_id)
    active = state.active if state.active is None or state.active.run_id != run.run_id else None
    if is_terminal(run.state):
        return replace(state, active=active, queued=queued)
    if run.state is RunState.ACCEPTED:
        return replace(state, active=active, queued=(*queued, run))
    return replace(state, active=run, queued=queued)


def add_drafts(sheet: PendingCommit, drafts: tuple[Draft, ...]) -> PendingCommit:
    """Behind what is on the sheet. Taint counts from the sheet on: a call judged in the same commit must know of it."""
    state = sheet.state
    taint = fold_drafts(state.taint, drafts, state.head_seq + len(sheet.drafts))
    if taint is not state.taint:
        state = replace(state, taint=taint)
    return replace(sheet, state=state, drafts=(*sheet.drafts, *drafts))


def add_record(sheet: PendingCommit, record: Record, effects: tuple[Effect, ...], run: Run) -> PendingCommit:
    sheet = add_drafts(sheet, record.drafts)
    return replace(sheet, state=put_run(sheet.state, run), effects=(*sheet.effects, *effects))
