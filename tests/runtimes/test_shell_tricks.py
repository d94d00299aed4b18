"""Tricks that make a reader run or write: files are laid down without asking, and then a text is tried that should be free.

Each trick worked once. Where a call asks and nobody answers, it does not run; where it runs, nothing may change.
"""

import os
import shutil
from pathlib import Path

import pytest

from palyra.adapters.providers.scripted import Script
from palyra.adapters.runtimes.shell.nature import nature_of
from palyra.adapters.runtimes.shell.repositories import repositories_of
from palyra.adapters.runtimes.shell.run import ShellRun
from palyra.adapters.shell import TreeSitterShell
from palyra.core.events.tool import EffectClass, Outcome, ToolFinished, ToolJudged, Verdict
from tests.runtimes.shells import found_sandbox, make_setup, run
from tests.support.asking import ask, calls, finished, says
from tests.support.engines import OWNER, Workshop

pytestmark = pytest.mark.anyio
PARSER = TreeSitterShell()
MARK = "ran"
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
HOSTILE = (
    f'[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = sub\n\tfsmonitor = "echo x > {MARK}; false"\n'
)
BARE = {"HEAD": "ref: refs/heads/main\n", "config": HOSTILE, "objects/x": "x", "refs/x": "x", "sub/x": "x"}
TAR = {"+a.tar": "x", "--use-compress-program=sh payload.sh": "x", "payload.sh": f"echo x > {MARK}\n"}
SUBSCRIPT = f"a[$(echo x>{MARK})]"
TRICKS = [
    ({}, f"jobs -x bash -c 'echo x > {MARK}'"),
    ({}, f"builtin jobs -x touch {MARK}"),
    ({}, f"ls & wait -n -p '{SUBSCRIPT}'"),
    ({}, f"HISTCMD='{SUBSCRIPT}'"),
    ({"5/ls": f"#!/bin/sh\necho x > {MARK}\n"}, "printf '12345%n' PATH; ls"),
    (TAR, "tar tf *"),
    (TAR, "tar tf +a.tar *"),
    ({"-v": "x", SUBSCRIPT: "x"}, "test *"),
    ({"-v": "x", SUBSCRIPT: "x", "b": "x"}, "printf *"),
    ({SUBSCRIPT: "x", "line": "x\n"}, "read a* < line"),
    ({f"; echo x > {MARK}": "x"}, 'for f in *; do bash -c "echo $f"; done'),
    ({f"; echo x > {MARK}": "x"}, 'for f in *; do y="$f"; bash -c "echo $y"; done'),
    ({f"-Stouch {MARK}": "x"}, "env -* ls"),
    ({"5": "x", "bash": "x", "payload.sh": f"echo x > {MARK}\n"}, "timeout * ls"),
    ({f"--output={MARK}": "x"}, "sort --*"),
    ({"+1": "x", f"--output={MARK}": "x"}, "shuf -n *"),
    ({"1": "x", "in": "y", MARK + "0": "z"}, "uniq -f *"),
    ({"1": "x", "in": "y", MARK + "0": "z"}, "xxd -l *"),
]
GIT_TRICKS = [(BARE, "git status"), (BARE, "git ls-files -m -o")]


def lay(root: Path, files: dict[str, str]) -> dict[str, bytes]:
    for name, body in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(body)
        (root / name).chmod(0o755)
    return held(root)


def held(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def is_free(command: str, *workspace: Path) -> bool:
    return nature_of({"command": command}, tuple(map(str, workspace)), PARSER).effect_class is EffectClass.READ_ONLY


@pytest.mark.parametrize(("files", "command"), TRICKS + GIT_TRICKS)
def test_a_trick_with_files_of_the_workspace_asks(tmp_path: Path, files: dict[str, str], command: str) -> None:
    lay(tmp_path, files)
    assert not is_free(command, tmp_path)


@pytest.mark.parametrize(("files", "command"), TRICKS)
async def test_the_trick_would_have_worked(tmp_path: Path, files: dict[str, str], command: str) -> None:
    """What asks must have a reason: in the sandbox, on an answer, the text runs or writes what its words do not show."""
    before = lay(tmp_path, files)
    await run(command, tmp_path)
    assert held(tmp_path) != before


@needs_git
async def test_a_root_cannot_be_made_a_repository_without_asking(tmp_path: Path) -> None:
    writes = [calls("fs.write", path=name, content=body) for name, body in BARE.items()]
    shop = Workshop(tmp_path, [Script(turns=(*writes, calls("shell.run", command="git status"), says("done")))])
    shop.tools.append(ShellRun(found_sandbox(), make_setup()))
    async with shop.open() as engine:
        events = [event.data for event in await finished(engine, await engine.runs.start(OWNER, ask(can_ask=False)))]
    verdicts = [(event.verdict, event.rule) for event in events if isinstance(event, ToolJudged)]
    ended = [event.outcome for event in events if isinstance(event, ToolFinished)]
    assert [verdict for verdict, _ in verdicts] == [Verdict.DENY, *[Verdict.ALLOW] * (len(BARE) - 1), Verdict.DENY]
    assert verdicts[0] == verdicts[-1] == (Verdict.DENY, "nobody_to_ask")
    assert (shop.workspace / "config").exists()
    assert not (shop.workspace / "HEAD").exists()
    assert not list(shop.workspace.rglob(MARK))
    assert ended.count(Outcome.OK) == len(BARE) - 1


@needs_git
async def test_git_in_the_sandbox_takes_no_folder_for_a_repository_because_of_its_files(tmp_path: Path) -> None:
    before = lay(tmp_path, BARE)
    result = await run("git status", tmp_path)
    assert "safe.bareRepository" in f"{result.output}{result.error}"
    assert held(tmp_path) == before


@needs_git
async def test_git_in_the_sandbox_starts_neither_a_monitor_nor_a_hook(tmp_path: Path) -> None:
    hook = f"#!/bin/sh\ntouch {MARK}\n"
    files = {".git/hooks/pre-commit": hook, ".git/hooks/post-checkout": hook, "a": "x"}
    await run("git init -q", tmp_path)
    lay(tmp_path, files)
    commands = f'git config core.fsmonitor "touch {MARK}; false" && git status && git add a && {COMMIT} x && git checkout -qb y'
    result = await run(commands, tmp_path)
    assert result.outcome is Outcome.OK, result.output
    assert not list(tmp_path.rglob(MARK))


COMMIT = "git -c user.name=a -c user.email=a@example.org commit -qm"


@needs_git
async def test_what_people_do_with_git_works_in_the_sandbox(tmp_path: Path) -> None:
    steps = [
        "git init -q -b main w && cd w && echo x > a && git add a",
        f"{COMMIT} first",
        "git init -q -b main --bare ../b.git && git remote add origin ../b.git && git push -q origin main && git fetch -q",
        "git clone -q ../b.git ../c && test -f ../c/a",
        f"git checkout -q -b side && echo y >> a && {COMMIT} second -a && git checkout -q main && git merge -q side",
        "git worktree add -q ../t side && git -C ../t status && echo z >> a && git diff --stat && git --git-dir=../b.git log",
        "git -c user.name=a -c user.email=a@example.org stash -q && git stash pop -q",
        "git -c protocol.file.allow=always submodule --quiet add ../b.git m && git submodule status",
    ]
    result = await run(" && ".join(steps) + " && echo all-well", tmp_path)
    assert "all-well" in result.output, f"{result.output}{result.error}"


def make_repository(root: Path) -> None:
    for folder in ("objects", "refs"):
        (root / ".git" / folder).mkdir(parents=True)
    (root / ".git/HEAD").write_text("ref: refs/heads/main\n")


def test_a_root_with_a_sound_repository_is_one(tmp_path: Path) -> None:
    make_repository(tmp_path)
    assert repositories_of((str(tmp_path),)) == (str(tmp_path),)
    assert is_free("git status", tmp_path)
    (tmp_path / ".git/HEAD").write_text("a" * 40 + "\n")
    assert repositories_of((str(tmp_path),)) == (str(tmp_path),)


@pytest.mark.parametrize("broken", ["HEAD", "objects", "refs"])
@pytest.mark.parametrize("how", ["missing", "link", "other"])
def test_a_broken_git_folder_is_no_repository_since_git_would_go_on_looking(
    tmp_path: Path, broken: str, how: str
) -> None:
    make_repository(tmp_path)
    path = tmp_path / ".git" / broken
    path.rename(tmp_path / "moved")
    if how == "link":
        path.symlink_to(tmp_path / "moved")
    elif how == "other" and broken == "HEAD":
        path.write_text("nothing that git takes for a branch\n")
    elif how == "other":
        path.write_text("x")
    assert repositories_of((str(tmp_path),)) == ()
    assert not is_free("git status", tmp_path)


def test_a_head_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    make_repository(tmp_path)
    (tmp_path / ".git/HEAD").unlink()
    os.mkfifo(tmp_path / ".git/HEAD")
    assert repositories_of((str(tmp_path),)) == ()


def test_a_git_folder_that_is_a_link_is_no_repository(tmp_path: Path) -> None:
    make_repository(tmp_path / "other")
    (tmp_path / ".git").symlink_to(tmp_path / "other/.git")
    assert repositories_of((str(tmp_path),)) == ()


def test_a_worktree_is_one_only_if_what_it_names_lies_in_a_git_folder(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    (tmp_path / "main/.git/worktrees/tree").mkdir(parents=True)
    (root / "settings").mkdir(parents=True)
    (root / ".git").write_text(f"gitdir: {tmp_path}/main/.git/worktrees/tree\n")
    assert repositories_of((str(root),)) == (str(root),)
    (root / ".git").write_text("gitdir: ../main/.git/worktrees/tree\n")
    assert repositories_of((str(root),)) == (str(root),)
    for text in ("gitdir: settings\n", "gitdir: x/.git/../../settings\n", "settings\n", "", "gitdir: \x00/.git"):
        (root / ".git").write_text(text)
        assert repositories_of((str(root),)) == (), text
    (root / "sub").symlink_to(tmp_path / "main")
    (root / ".git").write_text("gitdir: sub/.git/worktrees/tree\n")
    assert repositories_of((str(root),)) == ()


def test_a_root_that_is_not_there_is_no_repository(tmp_path: Path) -> None:
    assert repositories_of((str(tmp_path / "gone"), "", "\x00")) == ()
