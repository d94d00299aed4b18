"""Texts that look harmless and are not. Each got past a judge of texts once; in a draft none of them changes anything."""

import gzip
import json
import os
import random
import shutil
from functools import cache
from pathlib import Path

import pytest

from palyra.adapters.providers.scripted import Script
from palyra.adapters.runtimes.shell.run import ShellRun
from palyra.core.events.tool import Outcome, ToolFinished, ToolJudged, Verdict
from tests.runtimes.shells import NOBODY, SECRET, USERS, attempt, drafted, found_sandbox, make_setup, open_house, run
from tests.support.asking import ask, calls, finished, says
from tests.support.engines import OWNER, Workshop

pytestmark = pytest.mark.anyio
MARK = "ran"
CORPORA = Path(os.environ.get("PALYRA_CORPORA") or Path(__file__).parents[2].parent / "shared" / "data")
COMMANDS = CORPORA / "shell_commands.jsonl.gz"
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
# What fresh attackers got past a judge of texts.
TEXTS = [
    *(command for _, command in TRICKS),
    f"""echo "${{x:-'$(touch {MARK})'}}" """,
    f"awk 'BEGIN {{ exit }} END {{ system(\"touch {MARK}\") }}'",
    f"echo | sed 's/.*/touch {MARK}/e'",
    f"git -c alias.x='!touch {MARK}' x -h",
    f"find . -maxdepth 0 -exec touch {MARK} +",
    f'python3 -c \'open("{MARK}", "w")\'',
    f"cat <<X\n$(touch {MARK})\nX",
    f"sort -o {MARK} /dev/null",
    f"tee {MARK} </dev/null",
    f"dd if=/dev/null of={MARK}",
    f"x='touch {MARK}'; $x",
    f"perl -e 'open F, \">{MARK}\"'",
    f"printf 'touch {MARK}' | sh",
    f"echo x >| {MARK}",
    f"mkdir -p .git/hooks && echo 'touch {MARK}' > .git/hooks/pre-commit",
    "curl -s http://192.0.2.1/ -o got || echo closed > net",
    "(setsid sleep 300 >/dev/null 2>&1 &) ; echo left > proc",
    "rm -rf ./* .??*",
    "ln -s /etc/passwd out; cat out; cat /etc/shadow",
]
GIT_TRICKS = [(BARE, "git status"), (BARE, "git ls-files -m -o")]


def lay(root: Path, files: dict[str, str]) -> dict[str, bytes]:
    for name, body in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(body)
        (root / name).chmod(0o755)
    return held(root)


def lay_all(root: Path, user: str) -> dict[str, bytes]:
    for files, _ in TRICKS:
        lay(root, {name: body for name, body in files.items() if not (root / name).exists()})
    for path in root.rglob("*") if user == "nobody" else ():
        os.chown(path, NOBODY, NOBODY)
    return held(root)


def held(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("user", USERS)
def test_no_text_changes_anything_before_its_changes_are_judged(user: str) -> None:
    """Every text runs for real. What it wrote lies in its draft, whatever the text looked like."""
    with open_house(user) as house:
        before = lay_all(house.workspace, user)
        found = [drafted(user, command, house) for command in TEXTS]
        assert held(house.workspace) == before
        assert sum(one.changes_count > 0 for one in found) > len(TEXTS) // 2, "most of the tricks do work"
        assert not any(SECRET in one.output for one in found)


@cache
def corpus() -> list[str]:
    """Texts that other people collected. Those that take minutes by themselves are left out."""
    with gzip.open(COMMANDS, "rt", encoding="utf-8") as lines:
        texts = [row["command"] for row in map(json.loads, lines) if "command" in row]
    return [text for text in texts if not any(word in text for word in ("sleep", "watch ", "tail -f", "top"))]


@pytest.mark.skipif(not COMMANDS.is_file(), reason=f"no corpus at {COMMANDS}; set PALYRA_CORPORA")
@pytest.mark.parametrize("user", USERS)
def test_no_text_of_a_corpus_changes_anything_before_its_changes_are_judged(user: str) -> None:
    with open_house(user) as house:
        before = lay_all(house.workspace, user)
        for command in random.Random(36).sample(corpus(), 8):
            drafted(user, command, house)
        assert held(house.workspace) == before


@needs_git
async def test_a_root_cannot_be_made_a_repository_without_asking(tmp_path: Path) -> None:
    writes = [calls("fs.write", path=name, content=body) for name, body in BARE.items()]
    shop = Workshop(tmp_path, [Script(turns=(*writes, calls("shell.run", command="git status"), says("done")))])
    shop.tools.append(ShellRun(found_sandbox(), make_setup(drafts=shop.drafts)))
    async with shop.open() as engine:
        events = [event.data for event in await finished(engine, await engine.runs.start(OWNER, ask(can_ask=False)))]
    verdicts = [(event.verdict, event.rule) for event in events if isinstance(event, ToolJudged)]
    ended = [event.outcome for event in events if isinstance(event, ToolFinished)]
    assert [verdict for verdict, _ in verdicts] == [Verdict.DENY, *[Verdict.ALLOW] * len(BARE)]
    assert verdicts[0] == (Verdict.DENY, "nobody_to_ask")
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


@pytest.mark.parametrize("user", USERS)
def test_a_command_that_locks_its_own_folders_is_still_read_and_applied(user: str) -> None:
    with open_house(user) as house:
        done = attempt(user, "mkdir -p a/b; echo x > a/b/c; chmod 400 a/b/c; chmod 0 a; chmod 0 .", house)
        assert done.outcome == "ok"
        os.chmod(house.workspace / "a", 0o700)
        assert (house.workspace / "a/b/c").read_text() == "x\n"


@pytest.mark.parametrize("user", USERS)
def test_a_file_that_nobody_may_write_is_changed_and_stays_so(user: str) -> None:
    with open_house(user) as house:
        file = house.workspace / "fixed"
        file.write_text("a\n")
        file.chmod(0o444)
        if user == "nobody":
            os.chown(file, NOBODY, NOBODY)
        done = attempt(user, "chmod u+w fixed; echo b >> fixed; chmod 444 fixed; ln fixed other", house)
        assert done.outcome == "ok"
        assert [(each.read_text(), each.stat().st_mode & 0o777) for each in (file, house.workspace / "other")] == [
            ("a\nb\n", 0o444)
        ] * 2
