"""Drafts through the engine: free, judged by what they changed, applied once, kept where a person was quicker."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest

from palyra.adapters.drafts import apply as applying
from palyra.adapters.drafts.store import FileDrafts
from palyra.adapters.providers.prepared_turns import Turn
from palyra.adapters.providers.scripted import Script, ScriptedProvider
from palyra.adapters.runtimes.shell.run import ShellRun
from palyra.adapters.store.sqlite.refold import rebuild_projections
from palyra.core.errors import Conflict, Invalid
from palyra.core.events import Data, Event
from palyra.core.events.draft import DraftApplying, DraftConflicted, DraftJudged, ToolDrafted
from palyra.core.events.tool import (
    ApprovalStatus,
    Decision,
    Outcome,
    ToolFinished,
    ToolJudged,
    ToolStarted,
    Verdict,
)
from palyra.core.ids import EffectId
from palyra.core.trust import Trust
from palyra.engine.api.requests import ApprovalAnswer, ApprovalRecord, ApprovalsQuery
from palyra.engine.engine import Engine
from tests.adapters.test_drafts import Killed, killing
from tests.runtimes.shells import found_sandbox, make_setup
from tests.support.asking import ask, calls, finished, says, wait_for
from tests.support.engines import OWNER, Workshop
from tests.support.loop_beats import loop_beats
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

# The aim is 50 ms; the rest is room for a slow machine.
HELD_MAX_S = 0.15


def shop(root: Path, *commands: str, **arguments: object) -> Workshop:
    """A workshop whose agent runs these commands, one a turn."""
    turns: Sequence[Turn] = [calls("shell.run", command=command, **arguments) for command in commands]
    workshop = Workshop(root, [Script(turns=(*turns, says("Done.")))])
    workshop.tools = [*workshop.tools, ShellRun(found_sandbox(), make_setup(drafts=workshop.drafts))]
    return workshop


async def play(workshop: Workshop, *, can_ask: bool) -> list[Event]:
    async with workshop.open() as engine:
        return await finished(engine, await engine.runs.start(OWNER, ask(can_ask=can_ask)))


def of(events: list[Event], data_type: type[Data]) -> list[Data]:
    return [event.data for event in events if isinstance(event.data, data_type)]


def outcomes(events: list[Event]) -> list[ToolFinished]:
    return [event.data for event in events if isinstance(event.data, ToolFinished)]


def git(workshop: Workshop, *words: str) -> str:
    """Runs git as the person does, outside every sandbox."""
    return subprocess.run(["git", *words], cwd=workshop.workspace, check=True, capture_output=True, text=True).stdout


async def question(engine: Engine) -> ApprovalRecord:
    async def found() -> ApprovalRecord | None:
        waiting = await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING, after="", limit=10))
        return waiting[0] if waiting else None

    await until(found, "a question")
    record = await found()
    assert record is not None
    return record


async def test_an_ordinary_command_runs_and_is_applied_without_a_question(tmp_path: Path) -> None:
    workshop = shop(tmp_path, "mkdir -p a/b && echo hi > a/b/c && rm old")
    (workshop.workspace / "old").write_text("x")
    async with workshop.open() as engine:
        events = await finished(engine, await engine.runs.start(OWNER, ask(can_ask=False)))
        await until(lambda: list(workshop.drafts.home.glob("[0-9a-f]*")) == [])
    assert (workshop.workspace / "a/b/c").read_text() == "hi\n"
    assert not (workshop.workspace / "old").exists()
    (done,) = outcomes(events)
    assert done.outcome is Outcome.OK
    assert done.output is not None
    assert done.output.index("deleted old") < done.output.index("created a/b/c")
    assert done.changes_count == 4
    assert done.attestation is not None
    assert [
        type(each) for each in (*of(events, ToolDrafted), *of(events, DraftJudged), *of(events, DraftApplying))
    ] == [
        ToolDrafted,
        DraftJudged,
        DraftApplying,
    ]


async def test_a_command_that_changes_nothing_has_no_draft_events(tmp_path: Path) -> None:
    events = await play(shop(tmp_path, "echo hello"), can_ask=False)
    assert of(events, ToolDrafted) == []
    assert outcomes(events)[0].output == "hello\n"


async def test_changes_of_a_failing_command_are_applied_and_the_failure_is_told(tmp_path: Path) -> None:
    workshop = shop(tmp_path, "echo half > report; exit 3")
    (done,) = outcomes(await play(workshop, can_ask=False))
    assert (done.outcome, done.error and done.error.message) == (Outcome.FAILED, "exit status 3")
    assert (workshop.workspace / "report").read_text() == "half\n"


async def test_a_command_that_runs_out_of_time_leaves_nothing(tmp_path: Path) -> None:
    workshop = shop(tmp_path, "echo half > report; sleep 30", timeout_s=0.5)
    (done,) = outcomes(await play(workshop, can_ask=False))
    assert done.outcome is Outcome.TIMEOUT
    assert "nothing that it changed was applied" in (done.output or "")
    assert not (workshop.workspace / "report").exists()


async def test_a_hook_asks_with_its_difference_and_is_applied_only_after_a_yes(tmp_path: Path) -> None:
    workshop = shop(
        tmp_path, "mkdir -p .git/hooks && printf 'touch pwned\\n' > .git/hooks/pre-commit && echo a > free; mkfifo p"
    )
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        card = await question(engine)
        assert not (workshop.workspace / ".git").exists()
        assert not (workshop.workspace / "free").exists()
        assert (card.kind, card.rule) == ("draft", "run_outside")
        assert card.preview is not None
        assert card.preview.startswith("$ mkdir -p .git/hooks")
        assert "+touch pwned" in card.preview
        assert "created free" in card.preview
        assert "not applied: p (a device, a pipe or a socket)" in card.preview
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW))
        events = await finished(engine, record)
    assert (workshop.workspace / ".git/hooks/pre-commit").read_text() == "touch pwned\n"
    assert outcomes(events)[0].outcome is Outcome.OK


async def test_a_person_leaves_out_a_path_and_the_rest_is_applied(tmp_path: Path) -> None:
    workshop = shop(tmp_path, "mkdir .vscode && echo '{}' > .vscode/tasks.json && echo a > free")
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        card = await question(engine)
        answer = ApprovalAnswer(decision=Decision.ALLOW, without=(".vscode",))
        await engine.approvals.answer(OWNER, card.id, answer)
        events = await finished(engine, record)
    assert os.listdir(workshop.workspace) == ["free"]
    assert "not applied: .vscode/tasks.json (a person left it out)" in (outcomes(events)[0].output or "")


async def test_a_new_folder_that_would_hold_nothing_is_left_out_with_its_file(tmp_path: Path) -> None:
    workshop = shop(tmp_path, "mkdir -p .vscode a/empty && echo '{}' > .vscode/tasks.json && echo a > a/free")
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        card = await question(engine)
        answer = ApprovalAnswer(decision=Decision.ALLOW, without=(".vscode/tasks.json",))
        await engine.approvals.answer(OWNER, card.id, answer)
        events = await finished(engine, record)
    assert sorted(os.listdir(workshop.workspace)) == ["a"]
    assert sorted(os.listdir(workshop.workspace / "a")) == ["empty", "free"]
    told = outcomes(events)[0].output or ""
    assert "not applied: .vscode/tasks.json (a person left it out)" in told
    assert "not applied: .vscode/ (it would be empty)" in told
    assert "created .vscode/" not in told


async def test_a_name_that_means_nothing_leaves_the_question_open(tmp_path: Path) -> None:
    workshop = shop(tmp_path, "mkdir .vscode && echo {} > .vscode/tasks.json && echo x > a")
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        card = await question(engine)
        wrong = ApprovalAnswer(decision=Decision.ALLOW, without=(".vscod",))
        with pytest.raises(Invalid, match="no path of these changes"):
            await engine.approvals.answer(OWNER, card.id, wrong)
        right = ApprovalAnswer(decision=Decision.ALLOW, without=(".vscode",))
        await engine.approvals.answer(OWNER, card.id, right)
        await finished(engine, record)
    assert os.listdir(workshop.workspace) == ["a"]


async def test_a_discarded_draft_changes_nothing_and_the_model_sees_the_output(tmp_path: Path) -> None:
    workshop = shop(tmp_path, "echo said; echo export X=1 > .envrc")
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        card = await question(engine)
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.DENY))
        events = await finished(engine, record)
    (done,) = outcomes(events)
    assert (done.outcome, (done.output or "").splitlines()[0]) == (Outcome.DENIED, "said")
    assert done.error is not None
    assert "Nothing of what the command changed was applied" in done.error.message
    assert os.listdir(workshop.workspace) == []


async def test_without_anybody_to_ask_a_hook_is_denied_and_named(tmp_path: Path) -> None:
    workshop = shop(tmp_path, "echo x > AGENTS.md")
    (done,) = outcomes(await play(workshop, can_ask=False))
    assert (done.outcome, done.error and done.error.code) == (Outcome.DENIED, "nobody_to_ask")
    assert os.listdir(workshop.workspace) == []


async def test_a_git_commit_asks_for_nothing(tmp_path: Path) -> None:
    commit = "git add -A && git -c user.name=a -c user.email=a@b commit -qm m && git log --format=%s"
    workshop = shop(tmp_path, "echo 1 > f", commit)
    git(workshop, "init", "-q")
    events = await play(workshop, can_ask=False)
    assert [done.outcome for done in outcomes(events)] == [Outcome.OK, Outcome.OK]
    assert (outcomes(events)[1].output or "").startswith("m\n")
    assert git(workshop, "log", "--format=%s") == "m\n"


async def test_many_deletions_ask(tmp_path: Path) -> None:
    workshop = shop(tmp_path, "rm -rf data")
    (workshop.workspace / "data").mkdir()
    for number in range(25):
        (workshop.workspace / f"data/{number}").write_text("x")
    (done,) = outcomes(await play(workshop, can_ask=False))
    assert done.outcome is Outcome.DENIED
    assert len(os.listdir(workshop.workspace / "data")) == 25


@pytest.mark.parametrize("argument", ["network", "direct", "background"])
async def test_network_and_direct_ask_before_they_run(tmp_path: Path, argument: str) -> None:
    workshop = shop(tmp_path, "echo x > f", **{argument: True})
    (judged,) = of(await play(workshop, can_ask=False), ToolJudged)
    assert isinstance(judged, ToolJudged)
    assert (judged.verdict, judged.rule) == (Verdict.DENY, "nobody_to_ask")


async def test_a_direct_command_works_on_the_real_folder(tmp_path: Path) -> None:
    workshop = shop(tmp_path, "echo x > .envrc", direct=True)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        card = await question(engine)
        assert "works on the real folder" in (card.preview or "")
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW))
        await finished(engine, record)
    assert (workshop.workspace / ".envrc").read_text() == "x\n"


async def test_a_file_that_a_person_changed_is_never_overwritten_and_the_draft_is_kept(tmp_path: Path) -> None:
    """The person saves while the command runs; the draft becomes an artifact, and nothing of it is applied."""
    workshop = shop(tmp_path, "echo started; sleep 0.5; echo agent >> f; echo more > g")
    (workshop.workspace / "f").write_text("old\n")
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await wait_for(engine, record.id, "tool.delta")
        (workshop.workspace / "f").write_text("person\n")
        events = await finished(engine, record)
    (done,) = outcomes(events)
    assert (done.outcome, done.error and done.error.code) == (Outcome.FAILED, "changed_meanwhile")
    assert (workshop.workspace / "f").read_text() == "person\n"
    assert not (workshop.workspace / "g").exists()
    assert [made.name for made in done.made] == ["draft.tar"]


async def test_a_conflict_with_another_call_runs_the_command_again(tmp_path: Path) -> None:
    """Both append to one file. The slower one finds the other's line when it runs again."""
    slow = "echo started; sleep 0.5; echo slow >> log"
    workshop = Workshop(
        tmp_path,
        [
            Script(when="slow", turns=(calls("shell.run", command=slow), says("Done."))),
            Script(when="quick", turns=(calls("shell.run", command="echo quick >> log"), says("Done."))),
        ],
    )
    workshop.tools = [*workshop.tools, ShellRun(found_sandbox(), make_setup(drafts=workshop.drafts))]
    (workshop.workspace / "log").write_text("first\n")
    async with workshop.open() as engine:
        first = await engine.runs.start(OWNER, ask("slow", session_key="a"))
        await wait_for(engine, first.id, "tool.delta")
        second = await engine.runs.start(OWNER, ask("quick", session_key="b"))
        await finished(engine, second)
        events = await finished(engine, first)
    assert (workshop.workspace / "log").read_text() == "first\nquick\nslow\n"
    assert len(of(events, DraftConflicted)) == 1
    assert len(of(events, ToolStarted)) == 2


async def test_twenty_drafts_that_append_to_one_file_all_succeed(tmp_path: Path) -> None:
    scripts = [
        Script(when=f"number {n};", turns=(calls("shell.run", command=f"echo {n} >> log"), says("Done.")))
        for n in range(20)
    ]
    workshop = Workshop(tmp_path, scripts)
    workshop.tools = [*workshop.tools, ShellRun(found_sandbox(), make_setup(drafts=workshop.drafts))]
    async with workshop.open() as engine:
        records = [await engine.runs.start(OWNER, ask(f"number {n};", session_key=f"s{n}")) for n in range(20)]
        played = [await finished(engine, record) for record in records]
    assert sorted((workshop.workspace / "log").read_text().split(), key=int) == [str(n) for n in range(20)]
    assert all(outcomes(events)[0].outcome is Outcome.OK for events in played)


async def test_a_draft_is_decided_once(tmp_path: Path) -> None:
    workshop = shop(tmp_path, "echo x > .envrc")
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        card = await question(engine)
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW))
        with pytest.raises(Conflict):
            await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.DENY))
        await finished(engine, record)
    assert (workshop.workspace / ".envrc").exists()


async def test_a_waiting_draft_survives_a_restart_and_is_applied(tmp_path: Path) -> None:
    workshop = shop(tmp_path, "echo x > .envrc")
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await question(engine)
    async with workshop.open() as engine:
        card = await question(engine)
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW))
        events = await finished(engine, record)
    assert len(of(events, ToolStarted)) == 1
    assert (workshop.workspace / ".envrc").read_text() == "x\n"


async def test_a_cancelled_command_leaves_nothing(tmp_path: Path) -> None:
    workshop = shop(tmp_path, "echo x > f; echo started; sleep 60")
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await wait_for(engine, record.id, "tool.delta")
        await engine.runs.cancel(OWNER, record.id)
        events = await finished(engine, record)
        await until(lambda: list(workshop.drafts.home.glob("[0-9a-f]*")) == [])
    assert outcomes(events)[0].outcome is Outcome.CANCELLED
    assert os.listdir(workshop.workspace) == []


async def test_a_command_that_deletes_its_own_workspace_asks(tmp_path: Path) -> None:
    workshop = shop(tmp_path, "rm -rf ./* .git")
    git(workshop, "init", "-q")
    (done,) = outcomes(await play(workshop, can_ask=False))
    assert done.outcome is Outcome.DENIED
    assert (workshop.workspace / ".git/config").exists()


async def test_a_command_that_deletes_a_few_files_asks_if_nothing_is_left(tmp_path: Path) -> None:
    workshop = shop(tmp_path, "rm -r *", "rm -r d b")
    for name in ("a", "b", "d/c"):
        (workshop.workspace / name).parent.mkdir(exist_ok=True)
        (workshop.workspace / name).write_text(name)
    events = await play(workshop, can_ask=False)
    all_of_it, most_of_it = outcomes(events)
    judged = [event.data for event in events if isinstance(event.data, DraftJudged)]
    assert judged[0].policy is None, "a card names the rule, and no policy that did not decide"
    assert (all_of_it.outcome, most_of_it.outcome) == (Outcome.DENIED, Outcome.OK)
    assert os.listdir(workshop.workspace) == ["a"]


async def test_a_person_who_allows_network_allows_it_for_that_call(tmp_path: Path) -> None:
    workshop = shop(tmp_path, "curl https://example.org", network=True)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        card = await question(engine)
        assert "a way to the network" in (card.preview or "")
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW))
        events = await finished(engine, record)
    (judged,) = of(events, ToolJudged)
    assert isinstance(judged, ToolJudged)
    assert judged.has_network
    assert [done.error and done.error.code for done in outcomes(events)] == ["network_unavailable"]


MANY = "mkdir -p b/{1..40}; for d in b/*; do for n in {1..75}; do echo $d $n > $d/$n.txt; done; done"


async def test_thousands_of_files_after_content_from_outside_are_applied_and_known_as_tainted(tmp_path: Path) -> None:
    build = Script(when="build", turns=(calls("shell.run", command=f"bash -c '{MANY}'"), says("Done.")))
    look = Script(turns=(calls("fs.read", path="b/7/33.txt"), says("Done.")))
    workshop = Workshop(tmp_path, [build, look])
    workshop.tools = [*workshop.tools, ShellRun(found_sandbox(), make_setup(drafts=workshop.drafts))]
    async with workshop.open() as engine:
        stranger = ask("build", can_ask=False, trust=Trust.EXTERNAL)
        async with loop_beats() as beats:
            events = await finished(engine, await engine.runs.start(OWNER, stranger))
        first = await finished(engine, await engine.runs.start(OWNER, ask("look")))
        (workshop.workspace / "b/7/33.txt").write_text("a person's words")
        second = await finished(engine, await engine.runs.start(OWNER, ask("look")))
    (judged,) = (event.data for event in events if isinstance(event.data, DraftJudged))
    assert (judged.verdict, judged.writes) == (Verdict.ALLOW, ())
    assert [each.files_count for each in judged.write_sets] == [3000]
    assert [(done.outcome, done.changes_count) for done in outcomes(events)] == [(Outcome.OK, 3041)]
    assert beats.held_s < HELD_MAX_S
    assert [done.source for done in outcomes(first)] == ["file:b/7/33.txt"]
    assert [done.source for done in outcomes(second)] == [None]
    connection = apsw.Connection(str(workshop.journal_settings.path))
    assert rebuild_projections(connection) == 0


async def test_thousands_of_judged_folders_do_not_hold_the_loop(tmp_path: Path) -> None:
    make = "for n in {1..600}; do mkdir -p d/$n; echo $n > d/$n/f; done"
    workshop = shop(tmp_path, f"bash -c '{make}'")
    async with workshop.open() as engine, loop_beats() as beats:
        events = await finished(engine, await engine.runs.start(OWNER, ask(can_ask=False)))
    assert [done.changes_count for done in outcomes(events)] == [1201]
    assert beats.held_s < HELD_MAX_S


class KilledDrafts(FileDrafts):
    """Drafts of a daemon that is always killed before it removes one."""

    async def forget(self, effect_id: EffectId) -> None:
        return


async def test_a_start_removes_the_draft_of_a_call_that_has_an_outcome(tmp_path: Path) -> None:
    workshop = shop(tmp_path, "echo hi > a", "rm -rf data")
    (workshop.workspace / "data").mkdir()
    for number in range(25):
        (workshop.workspace / f"data/{number}").write_text("x")
    workshop.drafts = KilledDrafts(workshop.drafts.home)
    workshop.tools[-1] = ShellRun(found_sandbox(), make_setup(drafts=workshop.drafts))
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await question(engine)
    left = {path.name for path in workshop.drafts.home.glob("[0-9a-f]*")}
    assert len(left) == 2
    workshop.drafts = FileDrafts(workshop.drafts.home)
    workshop.tools[-1] = ShellRun(found_sandbox(), make_setup(drafts=workshop.drafts))
    async with workshop.open() as engine:
        await until(lambda: len(list(workshop.drafts.home.glob("[0-9a-f]*"))) == 1)
        assert await engine.draft_sweep.sweep() == 0
        waiting = await question(engine)
        await engine.approvals.answer(OWNER, waiting.id, ApprovalAnswer(decision=Decision.ALLOW))
        done = outcomes(await finished(engine, record))
        await until(lambda: list(workshop.drafts.home.glob("[0-9a-f]*")) == [])
    assert [each.outcome for each in done] == [Outcome.OK, Outcome.OK]
    assert not (workshop.workspace / "data").exists()


async def test_a_list_that_was_damaged_while_it_was_applied_leaves_nothing_half_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop = shop(tmp_path, "rm -rf data; echo new > a")
    (workshop.workspace / "data").mkdir()
    names = [f"data/{number}" for number in range(25)]
    for name in names:
        (workshop.workspace / name).write_text(name)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await question(engine)
    effect_id = (await workshop.drafts.leftovers())[0]
    sealed = await workshop.drafts.read(effect_id)
    step, _ = killing(applying, "rename_new", 12)
    with monkeypatch.context() as patch:
        patch.setattr(applying, "rename_new", step)
        patch.setattr(applying.Applier, "_go_back", lambda self: None)
        with pytest.raises(Killed):
            await workshop.drafts.apply(effect_id, sealed.changes)
    assert not all((workshop.workspace / name).exists() for name in names)
    (workshop.drafts.home / effect_id / "set.json").write_bytes(b"{")
    async with workshop.open() as engine:
        waiting = await question(engine)
        await engine.approvals.answer(OWNER, waiting.id, ApprovalAnswer(decision=Decision.ALLOW))
        (done,) = outcomes(await finished(engine, record))
    assert done.error is not None
    assert (done.error.code, done.outcome) == ("draft_not_applied", Outcome.FAILED)
    assert [(workshop.workspace / name).read_text() for name in names] == names
    assert not (workshop.workspace / "a").exists()


@pytest.mark.parametrize("tool", ["shell.run", "fs.write"])
async def test_writing_what_an_instruction_file_links_to_asks(tmp_path: Path, tool: str) -> None:
    workshop = shop(tmp_path, "echo obey > docs/x.md")
    if tool == "fs.write":
        write = calls("fs.write", path="docs/x.md", content="obey")
        workshop.provider = ScriptedProvider([Script(turns=(write, says("Done.")))])
    (workshop.workspace / "docs").mkdir()
    (workshop.workspace / "CLAUDE.md").symlink_to("docs/x.md")
    (done,) = outcomes(await play(workshop, can_ask=False))
    assert (done.outcome, done.error and done.error.code) == (Outcome.DENIED, "nobody_to_ask")
    assert not (workshop.workspace / "docs/x.md").exists()
