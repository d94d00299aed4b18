"""The jobs of learning: reflecting on a run, taking in what a compaction found, and settling a decided candidate.

Owns: what each job commits. Does not own: rules (core.learning), how a run is read or a candidate applied (engine.learning).
Each job commits under its own token. Repeated after a crash it finds what it did already, and adds nothing.
"""

from dataclasses import dataclass

from msgspec.structs import replace

from palyra.core.channels.replies import learned_writes
from palyra.core.compaction.model import KeptKind
from palyra.core.errors import Conflict, NotFound, PalyraError
from palyra.core.events import Event
from palyra.core.events.session import LearningApplied, SessionCompacted
from palyra.core.ids import MemoryId, SessionId, parse_candidate_id, parse_run_id
from palyra.core.jobs.model import Job, lease_name
from palyra.core.learning.compaction_finds import find_in_compaction
from palyra.core.learning.lift import RETIREMENT_BPS, begins_with_correction, tally, target_of, uses_of, why_retire
from palyra.core.learning.model import (
    REFLECTIONS_PER_PRINCIPAL_MAX,
    USES_PER_PRINCIPAL_MAX,
    Candidate,
    CandidateKind,
    CandidateOrigin,
    CandidateStatus,
    ItemUse,
    Reflection,
    UsedKind,
    UseOutcome,
)
from palyra.core.learning.observed_run import ObservedRun
from palyra.core.learning.rules import Find, Finds
from palyra.core.learning.schedule import TELLS
from palyra.core.projections.rows import SessionRow
from palyra.core.taint import labels
from palyra.core.trust import Trust
from palyra.core.writes import Fence, RecordReflection, RecordUse, Write
from palyra.engine.jobs.handler import JobDone, JobFailed, JobResult, Report
from palyra.engine.learning.applier import TARGET, CandidateApplier
from palyra.engine.learning.candidate_tape import LEARNING, CandidateTape
from palyra.engine.learning.intake import CandidateIntake, FindSource, IntakePlan
from palyra.engine.learning.reflector import Reflected, RunReflector
from palyra.engine.learning.run_reader import ReadRun, RunReader
from palyra.engine.session.commands import RecordSessionEvent
from palyra.engine.session.session_loops import SessionLoops
from palyra.ports.learning import LearningViews

USES_READ_MAX = 2_000
COMPACTED_EVENTS_MAX = 5_000
EXCHANGE_EVENTS_MAX = 500  # A compaction names the end of its first exchange. The words that began it are before that.
DAY_MS = 86_400_000
CORRECTION_WINDOW_MS = DAY_MS  # A correction is about the answer before it, if that is not older.


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectionJob:
    """Reflects on one run (the process_post_run_reflection_task of the first description)."""

    reader: RunReader
    reflector: RunReflector
    intake: CandidateIntake
    views: LearningViews
    tape: CandidateTape

    async def perform(self, job: Job, report: Report) -> JobResult:
        run_id = parse_run_id(str(job.payload.get("run_id", "")))
        try:
            read = await self.reader.read(run_id)
        except NotFound:
            return JobDone()  # The session was erased meanwhile.
        if read is None:
            return JobDone()
        own, asked_at_ms = await self.views.last_reflection(read.run.session_id, run_id)
        if own is not None:
            return JobDone()
        now_ms = self.tape.clock.now_ms()
        reflected = Reflected(finds=Finds(), by="none")
        if job.payload.get("is_sampled"):
            report("reflecting")
            reflected = await self.reflector.reflect(read, asked_at_ms, now_ms)
        plan = await self.intake.plan(_source(read, CandidateOrigin.REFLECTION), reflected.finds.kept)
        uses, retired = await self._uses(read.run, now_ms)
        row = Reflection(
            run_id=run_id,
            session_id=read.run.session_id,
            owner=read.run.owner,
            by=reflected.by,
            found_count=plan.found_count,
            junk_count=reflected.finds.junk_count,
            at_ms=now_ms,
        )
        kept = RecordReflection(row, REFLECTIONS_PER_PRINCIPAL_MAX)
        writes = (*plan.writes, *retired.writes, *uses, kept)
        facts = (*plan.facts, *retired.facts)
        report(f"{plan.found_count} found, {reflected.finds.junk_count} dropped")
        if not facts:
            return JobDone(writes=writes)  # Most runs leave nothing; the job's own end then carries the rest.
        await self.tape.commit(LEARNING, facts, writes, Fence(lease_name(job.id), job.token))
        return JobDone()

    async def _uses(self, run: ObservedRun, now_ms: int) -> tuple[tuple[Write, ...], IntakePlan]:
        """Returns the uses that the run adds or corrects, and what they make due to be retired."""
        new = uses_of(run)
        if not new and not begins_with_correction(run):
            return (), IntakePlan()
        past = await self.views.uses(run.owner, now_ms - 90 * DAY_MS, USES_READ_MAX)
        changed = (*new, *_corrected(run, past))
        if not changed:
            return (), IntakePlan()
        keys = {(use.kind, use.item_id, use.run_id) for use in changed}
        current = [use for use in past if (use.kind, use.item_id, use.run_id) not in keys]
        lifts = tally((*current, *changed))
        finds = [
            found
            for target in dict.fromkeys(target_of(use) for use in changed)
            if (why := why_retire(lifts[target])) and (found := await self._retirement(run, target, why)) is not None
        ]
        source = FindSource(
            owner=run.owner, session_id=run.session_id, origin=CandidateOrigin.USE, run_id=run.run_id, agent=run.agent
        )
        retired = await self.intake.plan(source, finds)
        return tuple(RecordUse(use, USES_PER_PRINCIPAL_MAX) for use in changed), retired

    async def _retirement(self, run: ObservedRun, target: str, why: str) -> Find | None:
        kind, _, item_id = target.partition(":")
        content = item_id
        if kind == UsedKind.MEMORY.value:
            item = await self.reader.memory.item(run.owner, MemoryId(item_id))
            if item is None:
                return None
            content = item.content
        return Find(
            kind=CandidateKind.RETIREMENT,
            content=content,
            confidence_bps=RETIREMENT_BPS,
            seqs=tuple(said.seq for said in run.said)[:1],
            trust=Trust.SYSTEM,
            details={TARGET: target, "why": why},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingsJob:
    """Makes candidates of what a compaction found. The compaction itself is over and never waits for this."""

    reader: RunReader
    intake: CandidateIntake
    tape: CandidateTape

    async def perform(self, job: Job, report: Report) -> JobResult:
        session_id, checkpoint_id = job.session_id, str(job.payload.get("checkpoint_id", ""))
        if session_id is None:
            return JobFailed(message="a job of a compaction names its session", is_final=True)
        try:
            state = await self.reader.loader.load(session_id)
        except NotFound:
            return JobDone()
        row = await self.reader.loader.views.sessions.session(session_id, None)
        event = await self._compacted(session_id, checkpoint_id, row)
        if event is None or row is None or not isinstance(event.data, SessionCompacted):
            return JobDone()
        compacted = event.data
        # What is found has the taint of the context in which it was said: a reset since then makes it no better (L8).
        met = await self.reader.loader.taint_at(row, event.seq)
        taint = tuple(sorted({*labels(met), *labels(state.taint)}))
        agent = self.reader.agents.of_run(state.agent)
        first = max(0, compacted.from_seq - EXCHANGE_EVENTS_MAX)
        length = min(COMPACTED_EVENTS_MAX, max(0, compacted.to_seq - first))
        within = await self.reader.loader.journal.read(session_id, first, length) if length else ()
        known = (agent.instructions, *(document.text for document in state.window.documents))
        finds = find_in_compaction(compacted, within, known, taint)
        source = FindSource(
            owner=state.owner,
            session_id=session_id,
            origin=CandidateOrigin.COMPACTION,
            agent=state.agent,
            workspace=agent.workspace,
        )
        plan = await self.intake.plan(source, finds.kept)
        done = [each.text for each in compacted.retired if each.kind == KeptKind.TASK.value]
        closed = await self.intake.close_tasks(state.owner, done)
        facts, writes = (*plan.facts, *closed.facts), (*plan.writes, *closed.writes)
        await self.tape.commit(LEARNING, facts, writes, Fence(lease_name(job.id), job.token))
        report(f"{plan.found_count} found, {finds.junk_count} dropped")
        return JobDone()

    async def _compacted(self, session_id: SessionId, checkpoint_id: str, row: SessionRow | None) -> Event | None:
        """Looks near the session's last compaction first; this one is almost always that one."""
        near = max(0, row.compacted_seq - 1) if row is not None else 0
        for start in dict.fromkeys((near, 0)):
            found = await self._search(session_id, checkpoint_id, start)
            if found is not None:
                return found
        return None

    async def _search(self, session_id: SessionId, checkpoint_id: str, cursor: int) -> Event | None:
        while page := await self.reader.loader.journal.read(session_id, cursor, 500):
            for event in page:
                if isinstance(event.data, SessionCompacted) and event.data.checkpoint_id == checkpoint_id:
                    return event
            cursor = page[-1].seq
        return None


@dataclass(frozen=True, slots=True)
class SettleJob:
    """Makes what a decided candidate says, or takes it back. What nobody was asked about is told in its session."""

    applier: CandidateApplier
    reader: RunReader
    loops: SessionLoops

    async def perform(self, job: Job, report: Report) -> JobResult:
        candidate_id = parse_candidate_id(str(job.payload.get("candidate_id", "")))
        try:
            report(await self.applier.settle(candidate_id, Fence(lease_name(job.id), job.token)))
            if job.payload.get(TELLS):
                await self._tell(await self.applier.views.candidate(candidate_id, None))
        except NotFound:
            return JobDone()  # The session was erased meanwhile.
        except Conflict as conflict:
            return JobFailed(message=f"{conflict.code}: {conflict.message}")
        except PalyraError as error:
            return JobFailed(message=f"{error.code}: {error.message}", is_final=not error.is_retryable)
        return JobDone()

    async def _tell(self, candidate: Candidate | None) -> None:
        """Tells a session, and the conversation that its run answers, what was applied and how to undo it."""
        if candidate is None or candidate.status is not CandidateStatus.ACCEPTED or candidate.decided_by is not None:
            return
        told = LearningApplied(candidate_id=candidate.id, kind=candidate.kind.value, content=candidate.content)
        reply = None if candidate.run_id is None else await self.reader.reply_of(candidate.run_id)
        now_ms = self.applier.tape.clock.now_ms()
        writes = () if reply is None else learned_writes(reply, told, candidate.session_id, now_ms)
        say = RecordSessionEvent(principal=LEARNING, data=told, trust=candidate.trust, writes=writes)
        await self.loops.post(candidate.session_id, say)


def _source(read: ReadRun, origin: CandidateOrigin) -> FindSource:
    run = read.run
    return FindSource(
        owner=run.owner,
        session_id=run.session_id,
        origin=origin,
        run_id=run.run_id,
        agent=run.agent,
        workspace=read.workspace,
    )


def _corrected(run: ObservedRun, past: tuple[ItemUse, ...]) -> tuple[ItemUse, ...]:
    """Returns the uses of the run before this one, if this one began with a correction of it."""
    if not begins_with_correction(run):
        return ()
    since_ms = run.ended_at_ms - CORRECTION_WINDOW_MS
    before = [use for use in past if use.session_id == run.session_id and since_ms <= use.at_ms < run.ended_at_ms]
    last = next((use.run_id for use in before if use.run_id < run.run_id), None)
    return tuple(
        replace(use, outcome=UseOutcome.CORRECTED)
        for use in before
        if use.run_id == last and use.outcome is UseOutcome.HELPED
    )
