"""Undo: what a run changed is one difference, goes back whole, and never over somebody's later change."""

import asyncio
from pathlib import Path

import pytest

from palyra.adapters.artifacts.files import FileArtifacts
from palyra.adapters.providers.prepared_turns import Turn
from palyra.adapters.providers.scripted import Script
from palyra.adapters.runtimes.shell.run import ShellRun
from palyra.adapters.store.sqlite.journal import SqliteJournal
from palyra.adapters.tools.fs_undo import FsUndo
from palyra.adapters.tools.past_results import JournalResults
from palyra.core.errors import Conflict, NotFound, Unavailable
from palyra.core.events import Event
from palyra.core.events.draft import ChangesUndoing, ChangesUndone
from palyra.core.events.tool import Outcome, ToolFinished
from palyra.core.ids import RunId
from palyra.engine.api.requests import RunRecord
from palyra.engine.engine import Engine
from palyra.ports.tools import Tool
from tests.runtimes.shells import found_sandbox, make_setup
from tests.support.asking import ask, calls, finished, says
from tests.support.engines import ALICE, OWNER, Workshop

pytestmark = pytest.mark.anyio

CHANGES = "echo new > a; rm b; mkdir -p d && echo x > d/made; chmod +x c; ln -s c link"


def shop(root: Path, *turns: Turn) -> Workshop:
    workshop = Workshop(root, [Script(turns=(*turns, says("Done.")))])

    def undo(journal: SqliteJournal, artifacts: FileArtifacts) -> list[Tool]:
        return [FsUndo(JournalResults(journal, journal.sessions, journal.runs), artifacts, workshop.drafts)]

    workshop.tools = [*workshop.tools, ShellRun(found_sandbox(), make_setup(drafts=workshop.drafts))]
    workshop.journal_tools = undo
    for name in "abc":
        (workshop.workspace / name).write_text(f"old {name}\n")
    return workshop


def held(workshop: Workshop) -> dict[str, tuple[str, int]]:
    root = workshop.workspace
    return {
        str(path.relative_to(root)): (path.read_text(), path.lstat().st_mode)
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


async def played(engine: Engine) -> tuple[RunRecord, list[ToolFinished]]:
    record = await engine.runs.start(OWNER, ask(can_ask=False))
    events = await finished(engine, record)
    return record, [event.data for event in events if isinstance(event.data, ToolFinished)]


async def test_a_run_is_one_difference_and_goes_back_whole(tmp_path: Path) -> None:
    workshop = shop(
        tmp_path, calls("shell.run", command=CHANGES), calls("fs.write", path="a", content="newer\n"), calls("time.now")
    )
    before = held(workshop)
    async with workshop.open() as engine:
        record, _ = await played(engine)
        shown = await engine.runs.changes.show(OWNER, record.id)
        assert "-old a" in shown.diff
        assert "+newer" in shown.diff
        assert "+new\n" not in shown.diff
        assert {change.path for change in shown.changes} == {"a", "b", "c", "d/", "d/made", "link"}
        undone = await engine.runs.changes.undo(OWNER, record.id)
        assert undone.is_undone
        tape = await engine.sessions.tape(OWNER, record.session_id, 0, 500)
    assert held(workshop) == before
    assert not (workshop.workspace / "link").is_symlink()
    undoing = [type(event.data) for event in tape if isinstance(event.data, ChangesUndoing | ChangesUndone)]
    assert undoing == [ChangesUndoing, ChangesUndone]


async def test_the_intent_of_an_undo_is_recorded_before_a_file_is_touched(tmp_path: Path) -> None:
    workshop = shop(tmp_path, calls("shell.run", command=CHANGES))
    async with workshop.open() as engine:
        record, _ = await played(engine)
        changed = held(workshop)
        commit = engine._setup.journal.commit

        async def full(*_: object, **__: object) -> tuple[Event, ...]:
            raise Unavailable("disk_full", "the disk is full")

        engine._setup.journal.commit = full  # type: ignore[method-assign]
        with pytest.raises(Unavailable):
            await engine.runs.changes.undo(OWNER, record.id)
        assert held(workshop) == changed
        engine._setup.journal.commit = commit  # type: ignore[method-assign]


async def test_a_run_is_undone_by_one_request_at_a_time(tmp_path: Path) -> None:
    workshop = shop(tmp_path, calls("shell.run", command=CHANGES))
    async with workshop.open() as engine:
        record, _ = await played(engine)
        undo = engine.runs.changes.undo
        done = await asyncio.gather(undo(OWNER, record.id), undo(OWNER, record.id), return_exceptions=True)
    assert sorted(type(each).__name__ for each in done) == ["Conflict", "RunChanges"]


async def test_an_undo_tells_what_it_put_back_and_a_second_one_nothing(tmp_path: Path) -> None:
    workshop = shop(tmp_path, calls("shell.run", command="echo new > a; rm b"))
    async with workshop.open() as engine:
        record, _ = await played(engine)
        undo = engine.runs.changes.undo
        told = [(await undo(OWNER, record.id, path)).changes for path in ("b", "b", None, None)]
    assert [[change.path for change in each] for each in told] == [["b"], [], ["a"], []]


async def test_one_path_goes_back_alone(tmp_path: Path) -> None:
    workshop = shop(tmp_path, calls("shell.run", command=CHANGES))
    async with workshop.open() as engine:
        record, _ = await played(engine)
        await engine.runs.changes.undo(OWNER, record.id, "b")
        with pytest.raises(NotFound, match="path_unchanged"):
            await engine.runs.changes.undo(OWNER, record.id, "nothing")
    assert (workshop.workspace / "b").read_text() == "old b\n"
    assert (workshop.workspace / "a").read_text() == "new\n"


async def test_one_file_of_a_deleted_folder_goes_back_with_the_folder(tmp_path: Path) -> None:
    workshop = shop(tmp_path, calls("shell.run", command="rm -r e"))
    (workshop.workspace / "e/f").mkdir(parents=True)
    for name in ("e/f/x", "e/y"):
        (workshop.workspace / name).write_text(name)
    async with workshop.open() as engine:
        record, _ = await played(engine)
        await engine.runs.changes.undo(OWNER, record.id, "e/f/x")
    assert set(held(workshop)) == {"a", "b", "c", "e/f/x"}


async def test_a_file_that_changed_since_stops_the_whole_undo(tmp_path: Path) -> None:
    workshop = shop(tmp_path, calls("shell.run", command=CHANGES))
    async with workshop.open() as engine:
        record, _ = await played(engine)
        (workshop.workspace / "a").write_text("a person's\n")
        with pytest.raises(Conflict, match="changed_since"):
            await engine.runs.changes.undo(OWNER, record.id)
        shown = await engine.runs.changes.show(OWNER, record.id, "a")
        assert "changed since the run, so it cannot be undone" in shown.diff
    assert (workshop.workspace / "a").read_text() == "a person's\n"
    assert not (workshop.workspace / "b").exists()


async def test_a_long_file_is_not_taken_for_one_that_changed_since(tmp_path: Path) -> None:
    workshop = shop(tmp_path, calls("shell.run", command="seq 20000 > a"))
    async with workshop.open() as engine:
        record, _ = await played(engine)
        assert "[it is longer than 64 KiB, and is not shown]" in (await engine.runs.changes.show(OWNER, record.id)).diff


async def test_undoing_twice_is_undoing_once(tmp_path: Path) -> None:
    workshop = shop(tmp_path, calls("fs.write", path="a", content="newer\n"))
    before = held(workshop)
    async with workshop.open() as engine:
        record, _ = await played(engine)
        for _ in range(2):
            await engine.runs.changes.undo(OWNER, record.id)
    assert held(workshop) == before


async def test_nobody_sees_or_undoes_anothers_run(tmp_path: Path) -> None:
    workshop = shop(tmp_path, calls("shell.run", command=CHANGES))
    async with workshop.open() as engine:
        record, _ = await played(engine)
        for run_id in (record.id, RunId("01ARZ3NDEKTSV4RRFFQ69G5FAV")):
            with pytest.raises(NotFound, match="run_unknown"):
                await engine.runs.changes.show(ALICE, run_id)
            with pytest.raises(NotFound, match="run_unknown"):
                await engine.runs.changes.undo(ALICE, run_id)


async def test_a_model_takes_its_own_change_back(tmp_path: Path) -> None:
    workshop = shop(tmp_path, calls("shell.run", command=CHANGES))
    before = held(workshop)
    async with workshop.open() as engine:
        record, (first,) = await played(engine)
    workshop.provider = Workshop(
        tmp_path / "other", [Script(turns=(calls("fs.undo", call_id=first.call_id), says("Done.")))]
    ).provider
    async with workshop.open() as engine:
        again = await engine.runs.start(OWNER, ask(can_ask=False, session_id=record.session_id))
        events = await finished(engine, again)
    (done,) = [event.data for event in events if isinstance(event.data, ToolFinished)]
    assert done.outcome is Outcome.OK, done
    assert held(workshop) == before
    assert "deleted d/made" in (done.output or "")
    assert "changed a, 6 bytes" in (done.output or "")
    assert "created b, 6 bytes" in (done.output or "")


async def test_an_unknown_call_is_nothing_to_undo(tmp_path: Path) -> None:
    workshop = shop(tmp_path, calls("fs.undo", call_id="c9_NOTHING1"))
    async with workshop.open() as engine:
        _, (done,) = await played(engine)
    assert done.error is not None
    assert done.error.code == "nothing_to_undo"
