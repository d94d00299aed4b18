"""Reflection after runs: what is found by rules and by a model, what waits, what is charged, and that it happens once."""

from pathlib import Path
from typing import cast

import pytest

from palyra.core.budget import Budget, BudgetScope
from palyra.core.channels.outbox import OutboxKind, OutboxState
from palyra.core.context.messages import UserMessage
from palyra.core.context.window import Window
from palyra.core.events import Event
from palyra.core.events.learning import CandidateProposed
from palyra.core.events.run import ReplyAddress
from palyra.core.events.session import LearningApplied
from palyra.core.ids import CandidateId, MemoryId, StreamId, system_stream
from palyra.core.jobs.model import JobState
from palyra.core.learning.model import CandidateKind, CandidateStatus
from palyra.core.learning.states import CandidateAction
from palyra.core.memory.model import MemoryKind
from palyra.core.trust import Trust
from palyra.engine.api.candidates import CandidateDecision
from palyra.engine.api.requests import RunsQuery
from palyra.engine.engine import Engine
from palyra.engine.learning.run_reader import RunReader
from palyra.engine.session.session_loader import SessionLoader
from palyra.ports.jobs import JobFilter
from palyra.ports.journal import Journal
from palyra.ports.memory_writer import MemoryWriter
from palyra.ports.views import UsageFilter, UsageGroup
from tests.support.engines import ALICE, OWNER
from tests.support.lessons import Pupil, candidates, everything, item, rested, say, school_at
from tests.support.queues import SetClock
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

DAY_MS = 86_400_000
WISH = "Remember that the release branch is called stable."


async def is_applied(engine: Engine, candidate_id: CandidateId) -> bool:
    return bool((await engine.candidates.get(OWNER, candidate_id)).applied_to)


def said_in(window: Window) -> list[str]:
    return [item.message.text for item in window.items if isinstance(item.message, UserMessage)]


async def system_events(engine: Engine) -> list[Event]:
    return list(await engine._setup.journal.read(system_stream(engine._parts.node), 0, 1_000))


async def test_what_a_person_asks_to_remember_is_kept_at_once(tmp_path: Path) -> None:
    async with school_at(tmp_path).open() as engine:
        session_id, run_id = await say(engine, WISH)
        await rested(engine)
        (found,) = await candidates(engine)
        memory = await engine.memory.stores.views.memory(MemoryId(found.applied_to.removeprefix("memory:")), OWNER)
        events = await system_events(engine)
    assert (found.kind, found.status) == (CandidateKind.FACT, CandidateStatus.ACCEPTED)
    assert (found.content, found.session_id, found.run_id) == (
        "the release branch is called stable.",
        session_id,
        run_id,
    )
    assert memory is not None
    assert (memory.content, memory.kind, memory.candidate_id) == (found.content, MemoryKind.FACT, found.id)
    assert (memory.trust, memory.owner) == (Trust.OPERATOR, OWNER)
    proposed = [event.data for event in events if isinstance(event.data, CandidateProposed)]
    assert [each.candidate_id for each in proposed] == [found.id]
    assert all("stable" not in str(event.data) for event in events)


class CountingJournal:
    """Counts the events that are read through it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.read_count = 0

    async def read(self, stream: StreamId, after_seq: int, limit: int) -> tuple[Event, ...]:
        events = await self._journal.read(stream, after_seq, limit)
        self.read_count += len(events)
        return events


async def test_reflection_reads_the_events_of_its_run_alone(tmp_path: Path) -> None:
    async with school_at(tmp_path, is_enabled=False).open() as engine:
        _, run_id = await say(engine, WISH)
        for _ in range(5):
            await say(engine, "Hello again.")
        journal, parts = CountingJournal(engine._setup.journal), engine._parts
        loader = SessionLoader(cast(Journal, journal), engine._setup.views)
        memory = cast(MemoryWriter, None)  # The run recalled nothing.
        reader = RunReader(loader=loader, agents=parts.agents, memory=memory, known_state=parts.loops.known_state)
        read = await reader.read(run_id)
        row = await engine._setup.views.runs.run(run_id, None)
    assert read is not None
    assert [each.text for each in read.run.said] == [WISH]
    assert row is not None
    assert row.ended_seq is not None
    assert journal.read_count == row.ended_seq - row.accepted_seq + 1


async def test_a_preference_and_a_decision_are_told_apart_and_a_preference_waits(tmp_path: Path) -> None:
    async with school_at(tmp_path).open() as engine:
        await say(engine, "I prefer short answers with examples.")
        await say(engine, "We decided to use PostgreSQL 17 for the ledger.")
        await rested(engine)
        found = {each.kind: each.status for each in await candidates(engine)}
    assert found == {
        CandidateKind.PREFERENCE: CandidateStatus.PENDING_REVIEW,
        CandidateKind.DECISION: CandidateStatus.ACCEPTED,
    }


@pytest.mark.parametrize(
    "text",
    [
        "Hello, how are you?",
        "The build is failing right now.",
        "Please write a test for the parser.",
        "Thanks, that is perfect!",
        "What is my name?",
        "ok",
    ],
)
async def test_small_talk_tasks_and_passing_states_leave_nothing_and_ask_no_model(tmp_path: Path, text: str) -> None:
    pupil = Pupil([])
    async with school_at(tmp_path, pupil).open() as engine:
        await say(engine, text)
        await rested(engine)
        assert await everything(engine) == []
    assert pupil.reflections == []


async def test_a_model_proposes_and_only_a_persons_own_sentence_is_applied(tmp_path: Path) -> None:
    said = "My name is Ada and I maintain the compiler team's mailing list."
    pupil = Pupil(
        [
            item("Ada maintains the mailing list of the compiler team.", "I maintain the compiler team's mailing list"),
            item("Ada was born in Vienna in the year 1990.", "she said so"),
            item("Ada likes tabs rather than spaces.", kind="preference", percent=99),
            item("The user said hello to the agent."),
            item("Perhaps Ada works in Prague these years.", percent=40),
        ]
    )
    async with school_at(tmp_path, pupil).open() as engine:
        session_id, _ = await say(engine, said)
        await rested(engine)
        found = {each.content: each for each in await everything(engine)}
        runs = await engine.runs.list(OWNER, RunsQuery(has_services=True))
        (reflection,) = await engine.candidates.views.reflections(OWNER, 0, 9)
    assert len(pupil.reflections) == 1
    certain = found.pop("Ada maintains the mailing list of the compiler team.")
    assert certain.status is CandidateStatus.PENDING_REVIEW
    assert found.pop("Ada was born in Vienna in the year 1990.").status is CandidateStatus.PENDING_REVIEW
    assert found.pop("Ada likes tabs rather than spaces.").status is CandidateStatus.PENDING_REVIEW
    assert found.pop("Perhaps Ada works in Prague these years.").status is CandidateStatus.SUPPRESSED
    assert found == {}
    assert (reflection.by, reflection.found_count, reflection.junk_count) == ("model", 4, 1)
    service = [run for run in runs if run.origin == "service"]
    assert len(service) == 1
    assert service[0].session_id != session_id


async def test_a_model_that_answers_nonsense_leaves_it_to_the_rules(tmp_path: Path) -> None:
    async with school_at(tmp_path, Pupil(None)).open() as engine:
        await say(engine, WISH)
        await rested(engine)
        assert [each.status for each in await candidates(engine)] == [CandidateStatus.ACCEPTED]
        (reflection,) = await engine.candidates.views.reflections(OWNER, 0, 9)
    assert reflection.by == "rules"


async def test_a_session_asks_a_model_once_until_it_has_cooled_down(tmp_path: Path) -> None:
    pupil = Pupil([])
    async with school_at(tmp_path, pupil).open() as engine:
        for number in range(3):
            await say(engine, f"Our server number {number} lives in the rack {number} of building B.")
            await rested(engine)
        await say(engine, "Our other server lives in the rack 9 of building C.", session_key="other")
        await rested(engine)
        by = [each.by for each in await engine.candidates.views.reflections(OWNER, 0, 9)]
    assert len(pupil.reflections) == 2
    assert sorted(by) == ["model", "model", "rules", "rules"]


async def test_a_run_is_reflected_on_once_also_if_its_job_is_repeated(tmp_path: Path) -> None:
    async with school_at(tmp_path).open() as engine:
        await say(engine, WISH)
        await rested(engine)
        (job,) = await engine.jobs.list(None, JobFilter(kind="reflection"))
        handler = engine.worker.types["reflection"].handler
        await handler(job, lambda words: None)
        assert len(await everything(engine)) == 1
        assert len(await engine.candidates.views.reflections(OWNER, 0, 9)) == 1
        assert job.state is JobState.DONE


async def test_runs_that_are_not_sampled_and_a_daemon_that_does_not_learn_find_nothing(tmp_path: Path) -> None:
    async with school_at(tmp_path / "a", sample=0.0).open() as engine:
        await say(engine, WISH)
        await rested(engine)
        assert await everything(engine) == []
        assert [each.by for each in await engine.candidates.views.reflections(OWNER, 0, 9)] == ["none"]
    async with school_at(tmp_path / "b", is_enabled=False).open() as engine:
        await say(engine, WISH)
        assert await engine.jobs.list(None, JobFilter(kind="reflection")) == ()


async def test_the_same_find_in_another_run_is_one_candidate(tmp_path: Path) -> None:
    async with school_at(tmp_path).open() as engine:
        for _ in range(3):
            await say(engine, "I prefer short answers with examples.")
            await rested(engine)
        assert len(await everything(engine)) == 1


async def test_principals_have_their_own_candidates(tmp_path: Path) -> None:
    async with school_at(tmp_path).open() as engine:
        await say(engine, WISH)
        await say(engine, "Remember that my team is called Amber.", ALICE, session_key="a")
        await rested(engine)
        (own,) = await candidates(engine)
        (hers,) = await candidates(engine, ALICE)
        assert own.owner == OWNER
        assert hers.owner == ALICE
        assert await engine.memory.stores.views.memory(MemoryId(hers.applied_to[7:]), OWNER) is None


async def test_what_memory_refuses_waits_for_a_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palyra.engine.memory.item_planner.holds_secret", lambda redactor, item: True)
    async with school_at(tmp_path).open() as engine:
        await say(engine, "Remember that the word at the door is Mellon.")
        await rested(engine)
        (found,) = await candidates(engine)
    assert (found.status, found.applied_to, found.reason) == (CandidateStatus.PENDING_REVIEW, "", "secret")


async def test_deleting_the_session_deletes_its_candidates(tmp_path: Path) -> None:
    async with school_at(tmp_path).open() as engine:
        session_id, _ = await say(engine, "I prefer short answers with examples.")
        await rested(engine)
        assert await everything(engine) != []
        await engine.sessions.delete(OWNER, session_id)
        assert await everything(engine) == []


async def test_a_reflection_is_charged_and_without_a_budget_the_rules_read_alone(tmp_path: Path) -> None:
    pupil = Pupil([])
    async with school_at(tmp_path / "a", pupil).open() as engine:
        await say(engine, WISH)
        await rested(engine)
        by_agent = await engine._setup.views.usage.report(
            UsageFilter(group=UsageGroup.AGENT, since_ms=0, principal=OWNER)
        )
    assert "service:run.reflection" in {each.key for each in by_agent.sums}
    workshop = school_at(tmp_path / "b", Pupil([]))
    async with workshop.open() as engine:
        engine.worker.is_draining = True
        await say(engine, WISH)
    workshop.budgets = (Budget(scope=BudgetScope.PRINCIPAL, limit_tokens=1),)
    async with workshop.open() as engine:
        await rested(engine)
        (reflection,) = await engine.candidates.views.reflections(OWNER, 0, 9)
        assert len(await candidates(engine)) == 1
    assert reflection.by == "rules"


async def test_a_cancelled_reflection_ends_its_model_call_and_leaves_nothing(tmp_path: Path) -> None:
    pupil = Pupil([item("Ada leads the team of the compiler.")])
    pupil.hold.clear()
    async with school_at(tmp_path, pupil).open() as engine:
        await say(engine, "My name is Ada and I lead the compiler team.")
        await until(lambda: pupil.reflections, "the question to the model")
        (job,) = await engine.jobs.list(None, JobFilter(kind="reflection"))
        await engine.jobs.cancel(None, job.id)

        async def is_over() -> bool:
            runs = await engine.runs.list(OWNER, RunsQuery(has_services=True))
            return all(run.state in ("done", "cancelled", "failed") for run in runs)

        await until(is_over, "the end of the service run")
        assert await everything(engine) == []
        assert await engine.candidates.views.reflections(OWNER, 0, 9) == ()


async def test_a_long_sessions_older_part_is_summarised_once_and_accepting_compacts_that_part_alone(
    tmp_path: Path,
) -> None:
    marks = ", ".join(str(number) for number in range(10, 16))
    told = f"The project Amber has the account 4711-0815; its parts {marks} were told."
    pupil = Pupil(items=[], summary=told)
    pupil.answer = "word " * 120
    async with school_at(tmp_path, pupil, cooldown_ms=0).open() as engine:
        for number in range(10, 21):
            await say(engine, f"Tell me of the project Amber, account 4711-0815, part {number}.")
        session_id, _ = await say(engine, "I prefer short answers.")
        await rested(engine)
        await say(engine, "I prefer short words.")
        await rested(engine)
        first, second = (request.messages[-1].text for request in pupil.reflections)
        (found,) = [each for each in await candidates(engine) if each.kind is CandidateKind.COMPACTION]
        decision = CandidateDecision(action=CandidateAction.ACCEPT)
        await engine.candidates.decide(OWNER, found.id, decision, OWNER)
        await until(lambda: is_applied(engine, found.id), "the compaction")
        state = await engine._parts.loader.load(session_id)
    assert "part 10." in first
    assert "part 10." not in second
    assert state.window.summary is not None
    assert state.window.summary.text == told
    assert next(text for text in said_in(state.window) if "Amber" in text).endswith("part 16.")


async def test_a_run_that_waited_a_week_is_not_reflected_on_any_more(tmp_path: Path) -> None:
    workshop, clock = school_at(tmp_path, delay_ms=DAY_MS), SetClock()
    workshop.clock = clock
    async with workshop.open() as engine:
        await say(engine, WISH)
    clock.at_ms += 8 * DAY_MS
    async with workshop.open() as engine:
        await rested(engine)
        (job,) = await engine.jobs.list(None, JobFilter(kind="reflection"))
        assert job.state is JobState.EXPIRED
        assert await everything(engine) == []


async def test_a_reflection_that_a_stop_cut_off_is_asked_once_more(tmp_path: Path) -> None:
    """The run of the question goes on after a restart, and so does the job: it must find that run and begin no other."""
    pupil = Pupil([])
    pupil.hold.clear()
    workshop = school_at(tmp_path, pupil)
    async with workshop.open() as engine:
        await say(engine, "Our office moved to Karlin in March.")
        await until(lambda: pupil.reflections, "the first question")
    pupil.hold.set()
    async with workshop.open() as engine:
        await rested(engine)
        runs = await engine.runs.list(OWNER, RunsQuery(has_services=True))
    assert [run.state for run in runs if run.origin == "service"] == ["done"]
    assert len(pupil.reflections) == 2


async def test_what_is_applied_unasked_is_told_at_once_in_its_session_and_its_conversation(tmp_path: Path) -> None:
    async with school_at(tmp_path).open() as engine:
        reply = ReplyAddress(channel="hook", conversation_id="c1")
        session_id, _ = await say(engine, "Remember that I prefer short answers.", reply=reply)
        await rested(engine)
        (found,) = await candidates(engine)
        events = await engine._setup.journal.read(session_id, 0, 1_000)
        (told,) = [event.data for event in events if isinstance(event.data, LearningApplied)]
        (notice,) = [
            each
            for each in await engine._setup.views.outbox.items(None, tuple(OutboxState), 0, 50)
            if each.kind is OutboxKind.NOTICE
        ]
        await engine.candidates.decide(OWNER, found.id, CandidateDecision(action=CandidateAction.UNDO), OWNER)
    assert (told.candidate_id, told.content) == (found.id, "I prefer short answers.")
    assert notice.text.endswith(f"undo: palyra learning undo {found.id}")
    assert "I prefer short answers." in notice.text


async def test_what_waits_or_was_decided_by_a_person_is_not_told(tmp_path: Path) -> None:
    async with school_at(tmp_path).open() as engine:
        session_id, _ = await say(engine, "Hello, this is long. I prefer short answers with examples.")
        await rested(engine)
        (waiting,) = await candidates(engine)
        await engine.candidates.decide(OWNER, waiting.id, CandidateDecision(action=CandidateAction.ACCEPT), OWNER)
        await rested(engine)
        events = await engine._setup.journal.read(session_id, 0, 1_000)
    assert not [event for event in events if isinstance(event.data, LearningApplied)]
