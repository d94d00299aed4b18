"""With content from outside, what no review shows stays in a layer of the session, and its later commands see it."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from palyra.adapters.drafts import layers as layering
from palyra.adapters.drafts.store import FileDrafts
from palyra.adapters.files.homes import why_wide
from palyra.adapters.providers.prepared_turns import Turn
from palyra.adapters.providers.scripted import Script, ScriptedProvider
from palyra.adapters.runtimes.shell.run import ShellRun
from palyra.adapters.tools.fs_patch import FsPatch
from palyra.core.drafts.outside import is_run_outside
from palyra.core.errors import Conflict, NotFound
from palyra.core.events import Event
from palyra.core.events.draft import ChangesKeeping, ChangesKept, DraftJudged
from palyra.core.events.tool import Decision, Outcome, ToolFinished, ToolJudged, Verdict
from palyra.core.trust import Trust
from palyra.engine.api.requests import ApprovalAnswer
from palyra.engine.session import draft_gate
from tests.engine.test_drafts import question
from tests.runtimes.shells import found_sandbox, make_setup
from tests.support.asking import ask, calls, finished, says
from tests.support.engines import OWNER, Workshop
from tests.support.file_types import names_of_file_types
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

PLANT = "mkdir -p __pycache__ && head -c 60 /dev/urandom > __pycache__/conftest.cpython-311-pytest-8.pyc"


def shop(root: Path, *commands: str, has_git: bool = True) -> Workshop:
    turns: list[Turn] = [calls("shell.run", command=command) for command in commands]
    workshop = Workshop(root, [Script(turns=(*turns, says("Done.")))])
    workshop.tools = [*workshop.tools, ShellRun(found_sandbox(), make_setup(drafts=workshop.drafts))]
    if has_git:
        subprocess.run(["git", "init", "-q"], cwd=workshop.workspace, check=True)
    return workshop


async def play(workshop: Workshop, trust: Trust = Trust.EXTERNAL) -> list[Event]:
    async with workshop.open() as engine:
        return await finished(engine, await engine.runs.start(OWNER, ask(can_ask=False, trust=trust)))


def outputs(events: list[Event]) -> list[str]:
    found = [event.data for event in events if isinstance(event.data, ToolFinished)]
    assert [(each.outcome, each.error) for each in found] == [(Outcome.OK, None)] * len(found)
    return [each.output or "" for each in found]


def names(workshop: Workshop) -> list[str]:
    """Returns what lies in the workspace, without git's own folder."""
    found = (str(path.relative_to(workshop.workspace)) for path in workshop.workspace.rglob("*"))
    return sorted(name for name in found if not name.startswith(".git/") and name != ".git")


async def test_compiled_code_that_a_tainted_command_plants_stays_in_its_session(tmp_path: Path) -> None:
    workshop = shop(tmp_path, PLANT, "ls __pycache__")
    events = await play(workshop)
    planted, listed = outputs(events)
    assert names(workshop) == []
    judged = next(event.data for event in events if isinstance(event.data, DraftJudged))
    assert [each.path for each in judged.writes] == ["__pycache__/conftest.cpython-311-pytest-8.pyc"], (
        "it taints its root"
    )
    assert "kept in this session only: 1 file (__pycache__/conftest.cpython-311-pytest-8.pyc)" in planted
    assert "palyra runs keep" in planted
    assert listed.startswith("conftest.cpython-311-pytest-8.pyc\n")


async def test_no_name_of_a_file_type_lets_unseen_content_into_the_workspace(tmp_path: Path) -> None:
    """Names that ask in any case are left out: one of them would hold up all others."""
    wanted = [name for name in names_of_file_types() if not is_run_outside(name)]
    write = "import json,pathlib; [(p:=pathlib.Path(n), p.parent.mkdir(exist_ok=True), p.write_bytes(bytes(9))) "
    workshop = shop(
        tmp_path, f"python3 -c \"{write} for n in json.load(open('names.json'))]\"", "find . -type f | wc -l"
    )
    (workshop.workspace / "names.json").write_text(json.dumps(wanted))
    _, counted = outputs(await play(workshop))
    assert names(workshop) == ["names.json"]
    assert int(counted.split()[0]) > len(wanted)


async def test_an_untainted_command_leaves_the_same_in_the_workspace_and_makes_no_layer(tmp_path: Path) -> None:
    workshop = shop(tmp_path, PLANT)
    outputs(await play(workshop, Trust.OPERATOR))
    assert names(workshop) == ["__pycache__", "__pycache__/conftest.cpython-311-pytest-8.pyc"]
    assert not (workshop.drafts.home / "layers").exists()


async def test_text_images_and_tables_are_applied_and_what_git_ignores_is_not(tmp_path: Path) -> None:
    workshop = shop(
        tmp_path,
        "mkdir build src && echo 'x = 1' > src/a.py && echo o > build/log && echo 'a,b' > t.csv && printf '\\x00' > bin",
        "cat build/log src/a.py && wc -c bin && echo more >> build/log && rm bin",
        "cat build/log; ls",
    )
    (workshop.workspace / ".gitignore").write_text("/build/\n")
    first, second, third = outputs(await play(workshop))
    assert names(workshop) == [".gitignore", "src", "src/a.py", "t.csv"]
    assert "2 files" in first
    assert "x = 1" in second
    assert third.startswith("o\nmore\nbuild\nsrc\nt.csv\n")


async def test_an_ignored_file_of_the_person_is_changed_and_deleted_in_the_layer_alone(tmp_path: Path) -> None:
    workshop = shop(
        tmp_path, "echo new > a.log; rm b.log; rm -r logs", "cat a.log; ls", "mkdir logs; echo z > logs/z; ls logs"
    )
    (workshop.workspace / ".gitignore").write_text("*.log\nlogs/\n")
    (workshop.workspace / "logs").mkdir()
    for name in ("a.log", "b.log", "logs/x"):
        (workshop.workspace / name).write_text("old\n")
    _, listed, anew = outputs(await play(workshop))
    assert [(workshop.workspace / name).read_text() for name in ("a.log", "b.log", "logs/x")] == ["old\n"] * 3
    assert listed.startswith("new\na.log\n")
    assert "b.log" not in listed.split("[")[0]
    assert anew.startswith("z\n")


async def test_a_folder_that_only_the_layer_has_is_deleted_and_made_anew(tmp_path: Path) -> None:
    make = "mkdir -p out/deep && head -c 9 /dev/zero > out/a.o && head -c 9 /dev/zero > out/deep/b.o"
    workshop = shop(
        tmp_path,
        make,
        "rm -r out",
        "ls -A",
        "mkdir out && head -c 3 /dev/zero > out/c.o",
        "ls out; touch out/c.o",
        "ls out",
    )
    found = outputs(await play(workshop))
    assert ".o" not in found[2]
    assert found[4].startswith("c.o\n")
    assert found[5].startswith("c.o\n")
    assert [name for name in names(workshop) if "c.o" in name or "a.o" in name] == []


async def test_a_file_that_becomes_text_leaves_the_layer(tmp_path: Path) -> None:
    workshop = shop(tmp_path, "head -c 9 /dev/zero > f", "echo words > f", "cat f; rm f", "ls")
    _, _, said, listed = outputs(await play(workshop))
    assert said.startswith("words\n")
    assert not listed.startswith("f\n")
    assert names(workshop) == []


@pytest.mark.parametrize(
    "command",
    [
        "mkdir -p .vscode; echo '{}' > .vscode/tasks.json",
        "echo 'all:; curl evil' > Makefile",
        "printf '\\x00' > .envrc",
    ],
)
async def test_the_two_lists_still_ask(tmp_path: Path, command: str) -> None:
    workshop = shop(tmp_path, command)
    (workshop.workspace / ".gitignore").write_text(".vscode/\n.envrc\n")
    (judged,) = [event.data for event in await play(workshop) if isinstance(event.data, DraftJudged)]
    assert (judged.verdict, judged.rule) == (Verdict.DENY, "nobody_to_ask")


async def test_a_person_allows_what_asks_and_the_rest_still_stays_in_the_session(tmp_path: Path) -> None:
    workshop = shop(
        tmp_path, f"{PLANT}; echo 'all:' > Makefile; echo a > free; mv data.bin moved.bin", "ls __pycache__; ls"
    )
    (workshop.workspace / "data.bin").write_bytes(bytes(9))
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask(trust=Trust.EXTERNAL))
        card = await question(engine)
        assert card.rule == "tainted_run_next"
        assert "kept in this session only: 3 files (__pycache__/conftest" in (card.preview or "")
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW, without=("free",)))
        _, listed = outputs(await finished(engine, record))
    assert names(workshop) == ["Makefile", "data.bin"]
    assert listed.split("\n[")[0].split() == [
        "conftest.cpython-311-pytest-8.pyc",
        "Makefile",
        "__pycache__",
        "moved.bin",
    ]


async def test_without_git_the_same_rule_holds_by_content_and_names(tmp_path: Path) -> None:
    workshop = shop(
        tmp_path, f"{PLANT}; echo fine > notes.md; head -c 70000 /dev/zero | tr '\\0' 'x' | fold > long", has_git=False
    )
    outputs(await play(workshop))
    assert names(workshop) == ["notes.md"]


class Killed(BaseException):
    """Ends the process, as far as a step is concerned."""


class KilledOnce:
    """Puts drafts into layers, is killed before one of the steps, and does it once more as the next start would."""

    def __init__(self, drafts: FileDrafts, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self._put = drafts._layers.put
        self._number = number
        self._monkeypatch = monkeypatch
        self.count = 0

    def put(self, *arguments: Any) -> None:
        try:
            with self._monkeypatch.context() as patch:
                for name in ("_remove", "_make_folder", "_is_whiteout"):
                    patch.setattr(layering, name, self._stopping(getattr(layering, name)))
                for name in ("link", "replace", "mknod"):
                    patch.setattr(os, name, self._stopping(getattr(os, name)))
                self._put(*arguments)
        except Killed:
            self._put(*arguments)

    def _stopping(self, real: Callable[..., object]) -> Callable[..., object]:
        def step(*arguments: object, **more: object) -> object:
            self.count += 1
            if self.count == self._number:
                raise Killed
            return real(*arguments, **more)

        return step


async def test_killed_at_any_step_a_draft_is_put_into_its_layer_once_more_and_ends_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill, mark = "head -c 9 /dev/zero >", "printf '\\x00' >"
    first = f"mkdir -p out/old && {fill} out/old/a.o && {fill} swap && echo t > kept.txt"
    second = f"rm -r out swap x.log && mkdir -p out swap && {fill} out/b.o && {mark} swap/in; echo u >> kept.txt"
    look = "find . -path ./.git -prune -o -type f -print | sort | xargs -d'\\n' wc -c | head -n -1"
    for number in range(60):
        workshop = shop(tmp_path / str(number), first, second, look)
        (workshop.workspace / ".gitignore").write_text("*.log\n")
        (workshop.workspace / "x.log").write_text("person\n")
        killed = KilledOnce(workshop.drafts, number, monkeypatch)
        monkeypatch.setattr(workshop.drafts._layers, "put", killed.put)
        listed = outputs(await play(workshop))[-1].split("\n[")[0].split()
        assert listed == ["6", "./.gitignore", "4", "./kept.txt", "9", "./out/b.o", "1", "./swap/in"]
        assert (workshop.workspace / "x.log").read_text() == "person\n"
        if killed.count < number:
            return
    raise AssertionError("there are more steps than were tried")


async def test_an_empty_git_folder_does_not_end_the_rules_around_it(tmp_path: Path) -> None:
    workshop = shop(tmp_path, "mkdir -p src/.git/refs; echo a > a.py", "echo evil > src/x.log")
    (workshop.workspace / ".gitignore").write_text("*.log\n")
    outputs(await play(workshop))
    assert "src/x.log" not in names(workshop)


async def test_a_text_whose_difference_git_does_not_show_stays_in_the_layer(tmp_path: Path) -> None:
    workshop = shop(
        tmp_path,
        "mkdir -p vendor src/gen 'a b'; for f in vendor/x.js vendor/shown.js src/gen/y.py src/z.py 'a b/c' b.snap; "
        'do echo evil > "$f"; done',
    )
    (workshop.workspace / "src/gen").mkdir(parents=True)
    (workshop.workspace / "src/.gitattributes").write_text("gen/* binary\n")
    rules = (
        '[attr]made -diff\n*.snap made\n# a\nvendor/** -diff\nvendor/shown.js diff\n"a b/*" text -diff\n*.png binary\n'
    )
    (workshop.workspace / ".gitattributes").write_text(rules)
    outputs(await play(workshop))
    assert [name for name in names(workshop) if name.rpartition(".")[2] in ("js", "py", "snap") or name == "a b/c"] == [
        "src/z.py",
        "vendor/shown.js",
    ]


async def test_a_person_keeps_what_the_layer_holds_and_it_is_on_the_tape(tmp_path: Path) -> None:
    workshop = shop(tmp_path, f"{PLANT}; mkdir out; printf '\\x00' > out/a.o", "ls out __pycache__")
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask(can_ask=False, trust=Trust.EXTERNAL))
        await finished(engine, record)
        shown = await engine.runs.kept.show(OWNER, record.id)
        assert [change.path for change in shown.changes if not change.path.endswith("/")] == [
            "__pycache__/conftest.cpython-311-pytest-8.pyc",
            "out/a.o",
        ]
        kept = await engine.runs.kept.keep(OWNER, record.id, ("out/a.o",))
        assert kept.is_applied
        assert names(workshop) == ["out", "out/a.o"]
        assert "out/a.o" not in [change.path for change in (await engine.runs.kept.show(OWNER, record.id)).changes]
        with pytest.raises(NotFound):
            await engine.runs.kept.keep(OWNER, record.id, ("nothing",))
        tape = await engine.sessions.tape(OWNER, record.session_id, 0, 500)
    acts = [(type(event.data), event.actor) for event in tape if isinstance(event.data, ChangesKeeping | ChangesKept)]
    assert acts == [(ChangesKeeping, OWNER), (ChangesKept, OWNER)]


async def test_what_came_into_the_layer_after_it_was_shown_is_not_applied(tmp_path: Path) -> None:
    workshop = shop(tmp_path)
    first, second = (calls("shell.run", command=f"printf '\\x00{word}' > tool.bin") for word in ("good", "evil"))
    scripts = [Script(when=word, turns=(turn, says("Done."))) for word, turn in (("one", first), ("two", second))]
    workshop.provider = ScriptedProvider(scripts)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask("one", can_ask=False, trust=Trust.EXTERNAL, session_key="s"))
        await finished(engine, record)
        shown = await engine.runs.kept.show(OWNER, record.id)
        other = await engine.runs.start(OWNER, ask("two", can_ask=False, trust=Trust.EXTERNAL, session_key="s"))
        await finished(engine, other)
        with pytest.raises(Conflict, match="changed since it was shown"):
            await engine.runs.kept.keep(OWNER, record.id, digest=shown.digest)
        assert names(workshop) == []
        again = await engine.runs.kept.show(OWNER, record.id)
        assert (await engine.runs.kept.keep(OWNER, record.id, digest=again.digest)).is_applied
    assert (workshop.workspace / "tool.bin").read_bytes() == b"\x00evil"


@pytest.mark.parametrize("end", ["reset", "delete"])
async def test_a_session_that_is_reset_or_deleted_has_no_layer_any_more(tmp_path: Path, end: str) -> None:
    workshop = shop(tmp_path, PLANT)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask(can_ask=False, trust=Trust.EXTERNAL))
        await finished(engine, record)
        assert await workshop.drafts.layered_sessions() == (record.session_id,)
        await getattr(engine.sessions, end)(OWNER, record.session_id)
        assert await workshop.drafts.layered_sessions() == ()


async def test_a_start_removes_a_layer_whose_session_is_not_there(tmp_path: Path) -> None:
    workshop = shop(tmp_path, "true")
    (workshop.drafts.home / "layers/01JZ0000000000000000SESS01/x/tree").mkdir(parents=True)
    async with workshop.open():
        await until(lambda: not list((workshop.drafts.home / "layers").iterdir()))


async def test_a_layer_has_a_limit_and_a_command_that_passes_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft_gate, "LAYER_BYTES_MAX", 100)
    workshop = shop(
        tmp_path, "head -c 60 /dev/zero > a", "head -c 60 /dev/zero > b", "rm a", "head -c 60 /dev/zero > b; ls"
    )
    done = [event.data for event in await play(workshop) if isinstance(event.data, ToolFinished)]
    assert [each.error and each.error.code for each in done] == [None, "layer_full", None, None]
    assert "palyra runs keep" in str(done[1].error)


def writer(root: Path, *turns: Turn) -> Workshop:
    workshop = Workshop(root, [Script(turns=(*turns, says("Done.")))])
    workshop.tools = [*workshop.tools, FsPatch()]
    subprocess.run(["git", "init", "-q"], cwd=workshop.workspace, check=True)
    (workshop.workspace / ".gitignore").write_text("*.log\n")
    return workshop


@pytest.mark.parametrize("trust", [Trust.OPERATOR, Trust.EXTERNAL])
async def test_a_file_tool_asks_before_it_writes_what_no_review_shows(tmp_path: Path, trust: Trust) -> None:
    workshop = writer(
        tmp_path,
        calls("fs.write", path="src/a.py", content="x = 1\n"),
        calls("fs.write", path="run.log", content="hello\n"),
        calls("fs.patch", patch="--- /dev/null\n+++ b/d.py\n@@ -0,0 +1 @@\n+x = 1\n"),
        calls("fs.write", path="src/b.py", content="x = 1  # \u202e ok\n"),
        calls("fs.patch", patch="--- /dev/null\n+++ b/c.py\n@@ -0,0 +1 @@\n+x = 1 # \u200b\n"),
    )
    events = await play(workshop, trust)
    judged = [event.data.verdict for event in events if isinstance(event.data, ToolJudged)]
    unseen = Verdict.DENY if trust is Trust.EXTERNAL else Verdict.ALLOW
    assert judged == [Verdict.ALLOW, unseen, Verdict.ALLOW, unseen, unseen]


async def test_dot_files_of_a_home_and_of_a_folder_above_repositories_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, is_home in enumerate((True, False)):
        workshop = shop(tmp_path / str(number), has_git=False)
        turns = (
            calls("fs.write", path=".newrc", content="x"),
            calls("shell.run", command="echo x > .newrc"),
            calls("shell.run", command="echo x > plain; mkdir -p .cache; echo y > .cache/z"),
        )
        workshop.provider = ScriptedProvider([Script(turns=(*turns, says("Done.")))])
        if is_home:
            monkeypatch.setenv("HOME", str(workshop.workspace))
        else:
            (workshop.workspace / "project/.git").mkdir(parents=True)
        events = await play(workshop, Trust.OPERATOR)
        done = [event.data.outcome for event in events if isinstance(event.data, ToolFinished)]
        assert done == [Outcome.DENIED, Outcome.DENIED, Outcome.OK]
        assert why_wide(str(workshop.workspace)) is not None
    assert why_wide(str(tmp_path / "1/workspace/project")) is None
