"""Compacts one session (`session_window_v1`).

Owns: the steps: gather from the tape, plan by the rules, a model's summary if there is one, probes, and the command to
the session's loop.
Does not own: the rules (core.compaction), the commit (engine.session.commit_builder).
Invariants: the session goes on meanwhile; its loop refuses a compaction that is out of date. Without a model, without a
budget, or with a summary that fails its probes, the rules' own summary is recorded.
"""

import asyncio
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from palyra.core.compaction.exchanges import exchanges_of, plan_by_rules
from palyra.core.compaction.findings import marks_of
from palyra.core.compaction.model import Compaction, Exchange, KeptItem
from palyra.core.compaction.plan import dropped_of, keep_items, tell
from palyra.core.compaction.probes import PROSE_KINDS, SummaryProposal, refuse_summary, run_probes
from palyra.core.compaction.summary_answer import (
    SUMMARY_SCHEMA,
    SummaryAnswer,
    ask_for_ends,
    read_summary,
    retirable,
    retire_named,
)
from palyra.core.compaction.transcript import OlderPart, write_transcript
from palyra.core.context.layers import open_calls, protected_place
from palyra.core.errors import PalyraError
from palyra.core.events.run import EndReason
from palyra.core.ids import JobId, Principal, SessionId, derive_mark_id
from palyra.core.service_runs import SESSION_SUMMARY, ServiceRequest, question_ids
from palyra.engine.api.service_runs import INTERRUPTED, ServiceRuns
from palyra.engine.session.commands import CompactSession
from palyra.engine.session.context_assembler import ContextAssembler
from palyra.engine.session.pending_commit import SessionState
from palyra.engine.session.session_loader import SessionLoader
from palyra.engine.session.session_loops import SessionLoops

ACTOR = Principal("system:compaction")
CUT_OFF = frozenset({INTERRUPTED, EndReason.CANCELLED.value, EndReason.WALL_CLOCK.value})
NOTHING = "there is nothing to compact: the last six exchanges are always kept"


class CompactionReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a compaction did, or would do. `reason` says why nothing was done."""

    is_committed: bool
    reason: str = ""
    checkpoint_id: str | None = None
    compaction: Compaction | None = None
    exchanges_count: int = 0
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compactor:
    loader: SessionLoader
    loops: SessionLoops
    services: ServiceRuns
    assembler: ContextAssembler

    async def preview(self, session_id: SessionId) -> CompactionReport:
        """Returns what the rules alone would keep and lose. No model is asked and nothing is recorded."""
        state = await self.loader.load(session_id)
        found = await self._gather(state)
        if found is None:
            return CompactionReport(is_committed=False, reason=NOTHING)
        exchanges, plan = found
        return self._report(exchanges, plan, is_committed=False)

    async def compact(self, session_id: SessionId, cause: str, job_id: JobId | None = None) -> CompactionReport:
        """Compacts a session now. A job that is performed again finds the summary that it asked for before."""
        state = await self.loader.load(session_id)
        found = await self._gather(state)
        if found is None:
            return CompactionReport(is_committed=False, reason=NOTHING)
        exchanges, plan = found
        return await self._commit(state, exchanges, await self._with_model(state, exchanges, plan, job_id), cause)

    async def older_part(self, session_id: SessionId) -> OlderPart | None:
        """Returns what a compaction would replace now, for somebody who proposes a summary of it."""
        state = await self.loader.load(session_id)
        found = await self._gather(state)
        if found is None:
            return None
        exchanges, plan = found
        text = _transcript(state, exchanges, plan)
        return OlderPart(from_place=plan.from_place, to_place=plan.to_place, text=text, trust=plan.trust)

    async def compact_proposed(
        self, session_id: SessionId, summary: str, to_place: int | None = None
    ) -> CompactionReport:
        """Compacts with a summary that a person accepted. It has to pass the same probes as a model's.

        `to_place` is the end of what the summary was made of. What was said since stays as it is.
        """
        state = await self.loader.load(session_id)
        found = await self._gather(state, to_place)
        if found is None:
            return CompactionReport(is_committed=False, reason=NOTHING)
        exchanges, plan = found
        tried = _try_summary(state, exchanges, plan, summary.strip())
        if not tried.is_by_model:
            words = "; ".join(tried.refusals)
            return CompactionReport(is_committed=False, reason=f"the summary cannot be used: {words}")
        return await self._commit(state, exchanges, tried, "candidate")

    async def _commit(
        self, state: SessionState, exchanges: tuple[Exchange, ...], compaction: Compaction, cause: str
    ) -> CompactionReport:
        await self.loops.post(state.session_id, CompactSession(principal=ACTOR, compaction=compaction, cause=cause))
        checkpoint_id = derive_mark_id(state.session_id, "compaction", compaction.to_place)
        return replace(self._report(exchanges, compaction, is_committed=True), checkpoint_id=checkpoint_id)

    async def _gather(
        self, state: SessionState, to_place_max: int | None = None
    ) -> tuple[tuple[Exchange, ...], Compaction] | None:
        """Returns what is to be compacted, from the tape, and what the rules make of it."""
        window = state.window
        to_place = protected_place(window) - 1
        if to_place_max is not None:
            to_place = min(to_place, to_place_max)
        items = await self.loader.items_between(state, state.compacted_place, to_place)
        exchanges = exchanges_of(items)
        if not exchanges or (not exchanges[-1].said and len(exchanges) == 1):
            return None
        room_chars = self.assembler.room_chars(state.agent, None)
        # Long messages with many claims take tenths of a second, in which other sessions go on.
        plan = await asyncio.to_thread(plan_by_rules, window, exchanges, room_chars)
        return exchanges, replace(plan, to_place=max(plan.to_place, min(to_place, items[-1].place)))

    async def _with_model(
        self, state: SessionState, exchanges: tuple[Exchange, ...], plan: Compaction, job_id: JobId | None
    ) -> Compaction:
        text = _transcript(state, exchanges, plan)
        items = retirable(plan)
        question = text + ask_for_ends(items) if items else text
        request = ServiceRequest(
            spec=SESSION_SUMMARY,
            principal=state.owner,
            text=question,
            answer_schema=SUMMARY_SCHEMA if items else None,
            trust=plan.trust,
            serves=state.session_id,
            serves_agent=state.agent,
            ids=None if job_id is None else question_ids(SESSION_SUMMARY, job_id, question),
        )
        try:
            outcome = await self.services.perform(request)
        except PalyraError as error:
            return replace(plan, refusals=(f"no summary: {error.code}",))
        # A model that writes no JSON fails the form and not the question: whole words are a summary all the same.
        said = outcome.text if outcome.code not in CUT_OFF else ""
        if not said:
            return replace(plan, refusals=(f"no summary: {outcome.code}",))
        answer = read_summary(said) if items else SummaryAnswer(said.strip())
        tried = _try_summary(state, exchanges, retire_named(plan, answer.retired, exchanges), answer.summary)
        if tried.is_by_model:
            return tried
        return replace(tried, items=plan.items, retired=plan.retired, dropped=plan.dropped)

    def _report(self, exchanges: tuple[Exchange, ...], plan: Compaction, *, is_committed: bool) -> CompactionReport:
        lost = tuple(each.text for each in plan.dropped)
        return CompactionReport(is_committed=is_committed, compaction=plan, exchanges_count=len(exchanges), lost=lost)


def _transcript(state: SessionState, exchanges: tuple[Exchange, ...], plan: Compaction) -> str:
    summary = state.window.summary
    earlier, told = (summary.items, summary.text) if summary is not None else ((), "")
    return write_transcript(exchanges, earlier, told, f"{plan.to_place:016d}")


def _try_summary(state: SessionState, exchanges: tuple[Exchange, ...], plan: Compaction, summary: str) -> Compaction:
    """Returns the plan with a model's summary if it passes its probes, else the plan with why it does not."""
    made = _by_model(plan, summary)
    pins = tuple(pin.text for pin in state.window.pins)
    proposal = SummaryProposal(
        summary=summary, items=plan.items, kept=made.items, pins=pins, pending=open_calls(state.window)
    )
    refusals, probes = refuse_summary(proposal, exchanges), run_probes(proposal)
    chosen = replace(plan, refusals=refusals) if refusals else replace(made, dropped=dropped_of(exchanges, made.items))
    passed_count = 0 if refusals else sum(probe.is_passed for probe in probes)
    return replace(chosen, proposed=summary, probes=probes, probes_passed=passed_count)


def _by_model(plan: Compaction, summary: str) -> Compaction:
    """Keeps rules, tasks and decisions word for word; the model's prose stands for the facts that it holds."""
    items = tuple(
        replace(item, is_told=item.kind in PROSE_KINDS and not _is_missing(item, summary)) for item in plan.items
    )
    room = len(tell(plan.items, plan.summary))
    kept = keep_items(items, max(room - len(summary), room // 2))
    return replace(plan, items=kept, summary=summary, is_by_model=True)


def _is_missing(item: KeptItem, summary: str) -> bool:
    told = summary.casefold()
    return any(mark.casefold() not in told for mark in marks_of(item.text))
