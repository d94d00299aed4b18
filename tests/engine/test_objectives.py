"""Objectives of a run, checked: files, tools, a reviewer's service run, the recovery turn, and what nobody can check."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from palyra.adapters.providers.demo import DemoProvider
from palyra.adapters.providers.scripted import Script
from palyra.adapters.references.files import WorkspaceFiles
from palyra.core.agents import AgentSpec
from palyra.core.budget import Budget, BudgetScope
from palyra.core.errors import Invalid
from palyra.core.events import Event
from palyra.core.events.run import ObjectivesChecked, ObjectiveState
from palyra.core.events.session import SessionCreated
from palyra.core.ids import SessionId
from palyra.core.trust import Trust
from palyra.engine.api.requests import RunRecord, RunsQuery
from palyra.engine.engine import Engine
from palyra.engine.session.objective_check import review_ids
from palyra.engine.setup import EngineSettings
from palyra.ports.references import ReferenceReaders
from tests.support.asking import ask, calls, finished, says
from tests.support.delegating import run
from tests.support.engines import OWNER, Workshop
from tests.support.reviewing import Author, study_at
from tests.support.waiting import WAIT_S, until

pytestmark = pytest.mark.anyio

TEXT = "The answer names its source."


def states(record: RunRecord) -> list[str]:
    return [each.state for each in record.objectives]


def checks(events: Sequence[Event]) -> list[ObjectivesChecked]:
    return [event.data for event in events if isinstance(event.data, ObjectivesChecked)]


async def reviews(engine: Engine) -> list[RunRecord]:
    runs = await engine.runs.list(OWNER, RunsQuery(has_services=True))
    return [each for each in runs if each.agent == "service:run.review"]


async def test_a_file_and_a_tool_are_checked_without_a_model(tmp_path: Path) -> None:
    made = Workshop(tmp_path, [Script(turns=(calls("fs.write", path="report.md", content="x"), says("Written.")))])
    made.references = ReferenceReaders(files=WorkspaceFiles())
    async with made.open() as engine:
        started = await engine.runs.start(
            OWNER, ask("go", objectives=("file:report.md exists", "tool:fs.write succeeded"))
        )
        await finished(engine, started)
        record = await engine.runs.get(OWNER, started.id)
        assert (record.state, states(record)) == ("done", ["met", "met"])
        assert await reviews(engine) == []


async def test_a_missing_file_gets_one_recovery_turn_that_says_so(tmp_path: Path) -> None:
    author = Author("It is written.")
    async with study_at(tmp_path, author).open() as engine:
        record, events = await run(engine, objectives=("file:report.md exists",))
    assert (record.state, record.reason) == ("failed", "incomplete_answer")
    assert record.error is not None
    assert "file:report.md exists" in record.error.message
    assert states(record) == ["unmet"]
    assert record.objectives[0].note == "There is no file report.md."
    assert len(author.asked) == len(checks(events)) == 2
    assert 'The objective "file:report.md exists" is not met' in str(author.asked[1].messages[-1])


async def test_a_recovery_turn_that_meets_the_objective_is_enough(tmp_path: Path) -> None:
    author = Author("No.", "By the almanac.", reviews=([False], [True]))
    async with study_at(tmp_path, author).open() as engine:
        record, events = await run(engine, objectives=(TEXT,))
        first, second = await reviews(engine)
    assert (record.state, record.answer, states(record)) == ("done", "By the almanac.", ["met"])
    assert "It names no source." in str(author.asked[1].messages[-1])
    assert {first.id, second.id} == {review_ids(record.id, turn)[1] for turn in (1, 2)}
    assert [check.review_run_id for check in checks(events)] == [review_ids(record.id, turn)[1] for turn in (1, 2)]


async def test_the_model_is_told_the_objectives_from_the_start(tmp_path: Path) -> None:
    author = Author("By the almanac.", reviews=([True],))
    async with study_at(tmp_path, author).open() as engine:
        await run(engine, objectives=(TEXT,))
    assert f"1. {TEXT}" in author.asked[0].instructions


async def test_the_reviewer_has_no_tools_its_own_tape_and_the_principals_account(tmp_path: Path) -> None:
    author = Author("By the almanac.", reviews=([True],))
    async with study_at(tmp_path, author).open() as engine:
        record, _ = await run(engine, objectives=(TEXT, "file:a exists", TEXT), can_ask=False)
        (review,) = (await reviews(engine))[:1]
        (opening,) = await engine.sessions.tape(OWNER, review.session_id, 0, 1)
        assert isinstance(opening.data, SessionCreated)
        assert (opening.data.serves, opening.data.owner) == (record.session_id, OWNER)
        assert (review.principal, review.usage.input_tokens) == (OWNER, 10)
        assert await engine.runs.list(OWNER, RunsQuery(session_id=record.session_id)) != ()
        await engine.sessions.delete(OWNER, record.session_id)
        assert await reviews(engine) == []
    assert author.reviewed[0].tools == ()
    assert author.reviewed[0].answer_schema is not None
    told = str(author.reviewed[0].messages[-1])
    assert "By the almanac." in told
    assert told.count(TEXT) == 2
    assert "file:a exists" not in told


async def test_without_a_reviewer_the_answer_stands_and_the_record_says_that_nobody_checked(tmp_path: Path) -> None:
    made = Workshop(tmp_path, DemoProvider(0, 0))
    async with made.open() as engine:
        record, _ = await run(engine, "hello", objectives=(TEXT,))
    assert (record.state, states(record)) == ("done", ["unchecked"])
    assert "No reviewer could check it" in record.objectives[0].note


async def test_a_reply_in_no_form_leaves_the_objective_unchecked(tmp_path: Path) -> None:
    author = Author("By the almanac.", reviews=(None,))
    async with study_at(tmp_path, author).open() as engine:
        record, _ = await run(engine, objectives=(TEXT,))
        (review,) = await reviews(engine)
    assert (record.state, states(record)) == ("done", ["unchecked"])
    assert (review.state, review.reason) == ("failed", "incomplete_answer")


async def test_a_review_beyond_the_budget_is_not_made(tmp_path: Path) -> None:
    author = Author("By the almanac.", reviews=([True],))
    made = study_at(tmp_path, author)
    made.budgets = (Budget(scope=BudgetScope.PRINCIPAL, limit_tokens=15),)
    async with made.open() as engine:
        record, _ = await run(engine, objectives=(TEXT,), can_ask=False)
    assert (record.state, states(record)) == ("done", ["unchecked"])
    assert record.objectives[0].note == "No reviewer could check it: budget."
    assert author.reviewed == []


@pytest.mark.parametrize(
    ("objective", "words"),
    [
        ("file:../secret exists", "workspace"),
        ("file:/etc/passwd exists", "workspace"),
        ("file:a exist", "file:PATH exists"),
        ("tool:no.tool succeeded", "no.tool"),
        ("   ", "1 to"),
    ],
)
async def test_an_objective_that_could_never_be_checked_is_refused_at_once(
    tmp_path: Path, objective: str, words: str
) -> None:
    async with study_at(tmp_path, Author("x")).open() as engine:
        with pytest.raises(Invalid, match="objective_invalid") as refused:
            await engine.runs.start(OWNER, ask(objectives=(objective,)))
        assert words in refused.value.message
        assert await engine.runs.list(OWNER, RunsQuery()) == ()


async def test_a_file_of_an_agent_without_fs_read_is_refused(tmp_path: Path) -> None:
    made = study_at(tmp_path, Author("x"))
    made.agents = {"main": AgentSpec(name="main", workspace=(str(made.workspace),), tools=("time.*",))}
    async with made.open() as engine:
        with pytest.raises(Invalid, match=r"may not use fs\.read"):
            await engine.runs.start(OWNER, ask(objectives=("file:a exists",)))


async def test_a_folder_a_link_and_a_binary_file(tmp_path: Path) -> None:
    made = study_at(tmp_path, Author("x"))
    (made.workspace / "folder").mkdir()
    (made.workspace / "picture.png").write_bytes(b"\x89PNG\x00")
    (made.workspace / "link").symlink_to("/etc/passwd")
    async with made.open() as engine:
        record, _ = await run(
            engine, objectives=("file:picture.png exists", "file:folder exists", "file:link exists", "file:no/x exists")
        )
    assert states(record) == ["met", "unmet", "unchecked", "unmet"]
    assert "symbolic link" in record.objectives[2].note


async def test_one_slot_is_enough_for_a_run_and_its_reviewer(tmp_path: Path) -> None:
    author = Author("By the almanac.", reviews=([True],))
    async with study_at(tmp_path, author, EngineSettings(runs_active_max=1)).open() as engine:
        started = [await engine.runs.start(OWNER, ask(f"go {n}", objectives=(TEXT,))) for n in range(3)]
        async with asyncio.timeout(WAIT_S):
            for each in started:
                await finished(engine, each)
        assert [(await engine.runs.get(OWNER, each.id)).state for each in started] == ["done"] * 3


async def test_a_cancelled_run_cancels_its_review(tmp_path: Path) -> None:
    author = Author("x", reviews=([True],))
    author.go_on.clear()
    async with study_at(tmp_path, author).open() as engine:
        started = await engine.runs.start(OWNER, ask(objectives=(TEXT,)))
        await _begun(author)
        await engine.runs.cancel(OWNER, started.id)
        await finished(engine, started)
        record = await engine.runs.get(OWNER, started.id)
        assert (record.state, states(record)) == ("cancelled", ["open"])

        async def is_cancelled() -> bool:
            return [each.state for each in await reviews(engine)] == ["cancelled"]

        await until(is_cancelled, "the end of the review")


async def test_words_during_the_review_lead_to_another_answer(tmp_path: Path) -> None:
    author = Author("Short.", "Long.", reviews=([True],))
    author.go_on.clear()
    async with study_at(tmp_path, author).open() as engine:
        started = await engine.runs.start(OWNER, ask(objectives=(TEXT,)))
        await _begun(author)
        await engine.runs.send_input(OWNER, started.id, "longer, please", Trust.OPERATOR)
        author.go_on.set()
        await finished(engine, started)
        record = await engine.runs.get(OWNER, started.id)
    assert (record.state, record.answer) == ("done", "Long.")
    assert len(author.reviewed) == 2


async def test_after_a_restart_the_same_review_goes_on(tmp_path: Path) -> None:
    author = Author("By the almanac.", reviews=([True],))
    author.go_on.clear()
    made = study_at(tmp_path, author)
    async with made.open() as engine:
        started = await engine.runs.start(OWNER, ask(objectives=(TEXT,)))
        await _begun(author)
    author.go_on.set()
    async with made.open() as engine:
        events = await finished(engine, started)
        record = await engine.runs.get(OWNER, started.id)
        (review,) = await reviews(engine)
    assert (record.state, states(record), review.state) == ("done", ["met"], "done")
    assert len(checks(events)) == 1
    assert checks(events)[0].results[0].state is ObjectiveState.MET


async def test_a_reference_in_an_answer_is_not_resolved_for_its_reviewer(tmp_path: Path) -> None:
    author = Author("It is in @file:notes.md, and so on.", reviews=([True],))
    async with study_at(tmp_path, author).open() as engine:
        await run(engine, objectives=(TEXT,))
        (review,) = await reviews(engine)
        tape = await engine.sessions.tape(OWNER, review.session_id, 0, 100)
    assert "reference.resolved" not in {event.type for event in tape}


async def test_an_objective_holds_no_secret_on_the_tape(tmp_path: Path) -> None:
    secret = "sk-proj-" + "a1B2c3D4" * 6
    author = Author("x", reviews=([True],))
    async with study_at(tmp_path, author).open() as engine:
        record, _ = await run(engine, objectives=(f"The answer does not hold {secret}.",))
        tape = await engine.sessions.tape(OWNER, SessionId(record.session_id), 0, 100)
    assert secret not in str([event.data for event in tape])
    assert secret not in str(author.reviewed)


async def _begun(author: Author) -> None:
    await until(lambda: author.reviewed, "the review")
