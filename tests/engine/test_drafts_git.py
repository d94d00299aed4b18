"""What git's data brings into reach is judged as the files it would become. Real git in the real sandbox."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from palyra.adapters.providers.prepared_turns import Turn
from palyra.adapters.providers.scripted import Script
from palyra.adapters.runtimes.shell.run import ShellRun
from palyra.core.events import Event
from palyra.core.events.draft import DraftJudged
from palyra.core.events.tool import Decision, Outcome, ToolFinished, Verdict
from palyra.core.trust import Trust
from palyra.engine.api.requests import ApprovalAnswer
from tests.engine.test_drafts import question
from tests.runtimes.shells import found_sandbox, make_setup
from tests.support.asking import ask, calls, finished, says
from tests.support.engines import OWNER, Workshop

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(shutil.which("git") is None, reason="needs git")]

NAMED = "-c user.name=a -c user.email=a@example.org"
COMMIT = f"git {NAMED} commit -qm"
FIRST = {"f": "1\n", "g": "2\n", "Makefile": "all:\n\techo hi\n", "src/a.py": "a = 1\n"}
BLOB = "b=$(echo 'on: push' | git hash-object -w --stdin)"


def git(workshop: Workshop, *words: str, folder: str = ".") -> str:
    """Runs git as the person does, outside every sandbox."""
    command = ["git", *NAMED.split(), *words]
    return subprocess.run(command, cwd=workshop.workspace / folder, check=True, capture_output=True, text=True).stdout


def shop(root: Path, *commands: str) -> Workshop:
    turns: Sequence[Turn] = [calls("shell.run", command=command) for command in commands]
    workshop = Workshop(root, [Script(turns=(*turns, says("Done.")))])
    workshop.tools = [*workshop.tools, ShellRun(found_sandbox(), make_setup(drafts=workshop.drafts))]
    for name, body in FIRST.items():
        (workshop.workspace / name).parent.mkdir(exist_ok=True)
        (workshop.workspace / name).write_text(body)
    git(workshop, "init", "-q", "-b", "main")
    git(workshop, "add", "-A")
    git(workshop, "commit", "-qm", "first")
    return workshop


async def play(workshop: Workshop, *, is_tainted: bool = False) -> list[Event]:
    async with workshop.open() as engine:
        asked = ask(can_ask=False, trust=Trust.EXTERNAL) if is_tainted else ask(can_ask=False)
        return await finished(engine, await engine.runs.start(OWNER, asked))


def judged(events: list[Event]) -> list[DraftJudged]:
    return [event.data for event in events if isinstance(event.data, DraftJudged)]


def outcomes(events: list[Event]) -> list[ToolFinished]:
    return [event.data for event in events if isinstance(event.data, ToolFinished)]


async def held(workshop: Workshop, *, is_tainted: bool = False) -> tuple[str, ...]:
    """Plays it, and returns what the last command asked for. Nothing of that command may be applied."""
    last = judged(await play(workshop, is_tainted=is_tainted))[-1]
    assert last.verdict is Verdict.DENY, last
    assert git(workshop, "log", "--all", "--format=%s").split() == ["first"]
    return last.asking


PLANT = f"{BLOB}; git update-index --add --cacheinfo 100644,$b,"


async def test_a_workflow_that_only_git_holds_asks_after_content_from_outside(tmp_path: Path) -> None:
    path = ".github/workflows/x.yml"
    command = f"{PLANT}{path} && git update-index --skip-worktree {path} && {COMMIT} m"
    asking = await held(shop(tmp_path, command), is_tainted=True)
    assert f"{path} (in git: refs/heads/main)" in asking


@pytest.mark.parametrize("path", [".envrc", ".vscode/tasks.json", "AGENTS.md", "sub/AGENTS.md", ".husky/pre-commit"])
@pytest.mark.parametrize(
    ("way", "where"),
    [
        (f"{COMMIT} m && git branch side && git reset -q --hard HEAD~1", "refs/heads/side"),
        (f"git {NAMED} stash -q", "refs/stash"),
        ("true", "the index"),
        (f"{COMMIT} m && git {NAMED} tag -m t t && git reset -q --hard HEAD~1 && rm -r .git/logs", "refs/tags/t"),
        ("git update-ref refs/x/tree $(git write-tree) && git reset -q --hard", "refs/x/tree"),
        (f"{COMMIT} m && git reset -q --hard HEAD~1 && rm .git/ORIG_HEAD", "logs/HEAD"),
        (f"{COMMIT} m && git reset -q --hard HEAD~1 && git pack-refs --all && rm -r .git/logs", ".git/ORIG_HEAD"),
    ],
)
async def test_what_runs_outside_asks_wherever_git_keeps_it(tmp_path: Path, path: str, way: str, where: str) -> None:
    asking = await held(shop(tmp_path, f"{PLANT}{path} && {way}"))
    where = where.removeprefix(".git/")
    assert f"{path} (in git: {where})" in asking


async def test_content_that_was_stored_before_is_judged_when_a_ref_reaches_it(tmp_path: Path) -> None:
    stored = f"{BLOB}; t=$(printf '100644 blob %s\\t.envrc\\n' $b | git mktree); echo $t > tree"
    reached = f"git update-ref refs/heads/side $(git {NAMED} commit-tree -m m $(cat tree))"
    events = await play(shop(tmp_path, stored, reached))
    first, second = judged(events)
    assert (first.verdict, second.verdict) == (Verdict.ALLOW, Verdict.DENY)
    assert second.asking == (".envrc (in git: refs/heads/side)",)


async def test_a_ref_to_an_object_that_comes_later_asks(tmp_path: Path) -> None:
    dangling = "mkdir -p .git/refs/heads && echo 1234567890123456789012345678901234567890 > .git/refs/heads/later"
    asking = await held(shop(tmp_path, dangling))
    assert asking == (".git/refs/heads/later (in git: it names an object that is not there)",)


async def test_what_a_merge_alone_brings_is_found(tmp_path: Path) -> None:
    merge = (
        f"git checkout -qb side && echo s > s && git add s && {COMMIT} s && git checkout -q main && echo m > m && "
        f"git add m && {COMMIT} m && git {NAMED} merge -q --no-commit side && {PLANT}.envrc && {COMMIT} merged"
    )
    assert ".envrc (in git: refs/heads/main)" in await held(shop(tmp_path, merge))


FORGE = (
    "f=$(git rev-parse {0}); p=.git/objects/$(echo $f | cut -c1-2)/$(echo $f | cut -c3-); chmod +w $p; "
    "python3 -c \"import sys, zlib; b = open(sys.argv[1], 'rb').read(); "
    "open(sys.argv[2], 'wb').write(zlib.compress(b'{1} %d' % len(b) + bytes(1) + b))\" evil $p && rm evil"
)


async def test_an_object_that_is_not_what_its_name_says_asks(tmp_path: Path) -> None:
    workshop = shop(tmp_path, "echo evil > evil; " + FORGE.format("HEAD:src/a.py", "blob"))
    blob = git(workshop, "rev-parse", "HEAD:src/a.py").strip()
    asking = await held(workshop)
    assert asking == (f".git/objects/{blob[:2]}/{blob[2:]} (in git: it is not what its name says)",)
    assert git(workshop, "show", "HEAD:src/a.py") == FIRST["src/a.py"]


async def test_a_pack_whose_index_lies_asks(tmp_path: Path) -> None:
    lie = (
        "python3 -c \"import glob, os; p = glob.glob('.git/objects/pack/*.idx')[0]; os.chmod(p, 0o644); "
        "b = bytearray(open(p, 'rb').read()); b[-60] ^= 1; open(p, 'wb').write(b)\""
    )
    workshop = shop(tmp_path, lie)
    git(workshop, "gc", "-q")
    (asking,) = await held(workshop)
    assert asking.startswith(".git/objects/pack/pack-")
    assert asking.endswith("(in git: it is not what its name says)")


async def test_a_pack_of_any_name_is_checked(tmp_path: Path) -> None:
    copy = "cd .git/objects/pack && cp pack-*.pack other.pack && head -c -20 pack-*.idx > other.idx"
    workshop = shop(tmp_path, copy)
    git(workshop, "gc", "-q")
    assert await held(workshop) == (".git/objects/pack/other.pack (in git: it is not what its name says)",)


async def test_a_ref_in_capitals_is_read(tmp_path: Path) -> None:
    stored = f"{BLOB}; t=$(printf '100644 blob %s\\t.envrc\\n' $b | git mktree)"
    command = f"{stored}; git {NAMED} commit-tree -m m $t | tr a-f A-F > .git/refs/heads/side"
    assert await held(shop(tmp_path, command)) == (".envrc (in git: refs/heads/side)",)


@pytest.mark.parametrize("flag", ["--skip-worktree", "--assume-unchanged"])
async def test_a_flag_that_hides_changes_asks(tmp_path: Path, flag: str) -> None:
    asking = await held(shop(tmp_path, f"git update-index {flag} src/a.py && echo evil > src/a.py"))
    assert asking == ("src/a.py (in git: a flag in the index hides its changes)",)


async def test_a_replaced_object_asks(tmp_path: Path) -> None:
    asking = await held(shop(tmp_path, "echo evil > evil && git replace HEAD:src/a.py $(git hash-object -w evil)"))
    assert asking[0].startswith(".git/refs/replace/")


async def test_parents_that_are_hidden_ask(tmp_path: Path) -> None:
    asking = await held(shop(tmp_path, "git rev-parse HEAD > .git/shallow"))
    assert asking == (".git/shallow (in git: it hides parents of commits)",)


async def test_a_commit_graph_that_a_command_wrote_is_left_out(tmp_path: Path) -> None:
    workshop = shop(tmp_path, "git gc -q", "git commit-graph write --reachable", "git multi-pack-index write")
    events = await play(workshop)
    assert [done.outcome for done in outcomes(events)] == [Outcome.OK] * 3
    assert not (workshop.workspace / ".git/objects/info/commit-graph").exists()
    assert not list(workshop.workspace.glob(".git/objects/pack/*.rev"))
    assert git(workshop, "fsck", "--strict") == ""


@pytest.mark.parametrize("folder", [".git", "store"])
async def test_a_repository_that_lacks_its_head_for_a_while_is_judged(tmp_path: Path, folder: str) -> None:
    stored = f"{BLOB}; t=$(printf '100644 blob %s\\t.envrc\\n' $b | git mktree); c=$(git {NAMED} commit-tree -m m $t)"
    workshop = shop(
        tmp_path, f"export GIT_DIR={folder}; {stored}; echo $c > {folder}/refs/heads/side; mv {folder}/HEAD old"
    )
    git(workshop, "clone", "-q", "--bare", ".", "store")
    assert ".envrc (in git: refs/heads/side)" in await held(workshop)


async def test_a_bare_repository_is_one_too(tmp_path: Path) -> None:
    push = f"{PLANT}.envrc && {COMMIT} m && git push -q store HEAD:side && git reset -q --hard HEAD~1; rm -rf .git/logs"
    workshop = shop(tmp_path, push)
    git(workshop, "init", "-q", "--bare", "store")
    git(workshop, "remote", "add", "store", "store")
    assert ".envrc (in git: refs/heads/side)" in await held(workshop)


async def test_another_working_tree_has_an_index_of_its_own(tmp_path: Path) -> None:
    workshop = shop(tmp_path, f"cd tree && {PLANT}.envrc")
    git(workshop, "worktree", "add", "-q", "tree")
    assert "tree/.envrc (in git: the index of worktrees/tree)" in await held(workshop)


async def test_a_nested_repository_is_judged_by_its_own_files(tmp_path: Path) -> None:
    workshop = shop(
        tmp_path, f"cd inner && {PLANT}.envrc && {COMMIT} m", f"cd inner && echo x > x && git add x && {COMMIT} x"
    )
    (workshop.workspace / "inner").mkdir()
    git(workshop, "init", "-q", "-b", "main", folder="inner")
    first, second = judged(await play(workshop))
    assert first.asking[0] == "inner/.envrc (in git: refs/heads/main)"
    assert second.verdict is Verdict.ALLOW


async def test_writing_a_ref_with_a_file_tool_asks(tmp_path: Path) -> None:
    workshop = shop(tmp_path)
    head = git(workshop, "rev-parse", "HEAD")
    write = calls("fs.write", path=".git/refs/heads/side", content=head)
    workshop = shop(tmp_path / "b")
    workshop.provider = Workshop(tmp_path / "c", [Script(turns=(write, says("Done.")))]).provider
    (done,) = outcomes(await play(workshop))
    assert (done.outcome, done.error and done.error.code) == (Outcome.DENIED, "nobody_to_ask")


async def test_a_card_shows_what_git_would_write_and_survives_a_restart(tmp_path: Path) -> None:
    workshop = shop(tmp_path, f"{PLANT}.envrc && {COMMIT} m")
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        first = await question(engine)
    async with workshop.open() as engine:
        card = await question(engine)
        assert card.preview == first.preview
        assert card.preview is not None
        assert ".envrc (in git: refs/heads/main)" in card.preview
        assert "+on: push" in card.preview
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW))
        await finished(engine, record)
    assert git(workshop, "show", "HEAD:.envrc") == "on: push\n"


async def test_a_path_that_a_person_leaves_out_is_named_in_git_too(tmp_path: Path) -> None:
    asking = await held(shop(tmp_path, f"echo x > .envrc && git add .envrc && {COMMIT} m"))
    assert asking == (".envrc (in git: refs/heads/main)", ".envrc")


BINARY = "b=$(head -c 300 /bin/ls | git hash-object -w --stdin); git update-index --add --cacheinfo 100644,$b,tool.dat"


async def test_content_that_no_review_shows_asks_after_content_from_outside(tmp_path: Path) -> None:
    assert await held(shop(tmp_path, BINARY), is_tainted=True) == ("tool.dat (in git: the index)",)
    assert judged(await play(shop(tmp_path / "clean", BINARY)))[0].verdict is Verdict.ALLOW


HARMLESS = (
    f"echo 2 > f && git add f && {COMMIT} m",
    f"git checkout -qb side && echo 3 > src/a.py && git commit --help >/dev/null 2>&1; {COMMIT} m -a; git checkout -q main",
    f"echo 4 > f && git {NAMED} stash -q && git stash pop -q && git checkout -q f",
    f"git {NAMED} merge -q --no-ff -m merged side",
    f"git checkout -q side && echo x > x && git add x && {COMMIT} x && git {NAMED} rebase -q main",
    f"git checkout -q main && git {NAMED} merge -q side && git branch -q -d side",
    f"git {NAMED} commit -q --amend -m amended",
    f"git {NAMED} tag -m one v1 && git tag light && git {NAMED} notes add -m note",
    "git reset -q HEAD~1 && git reset -q ORIG_HEAD && git reset -q --hard",
    f"git {NAMED} revert --no-edit -m 1 HEAD >/dev/null 2>&1 || git {NAMED} revert --no-edit HEAD >/dev/null",
    f"git {NAMED} cherry-pick HEAD~1 --allow-empty --keep-redundant-commits >/dev/null 2>&1; git status --short",
    "git gc -q",
    f"git {NAMED} rebase -q --root",
    "git repack -adq && git prune && git pack-refs --all && git reflog expire --all",
    "for n in 1 2 3; do echo $n > n$n; done; git add -A && " + COMMIT + " three && git stash list",
)


@pytest.mark.parametrize("is_tainted", [False, True])
async def test_ordinary_work_with_git_asks_nobody(tmp_path: Path, is_tainted: bool) -> None:
    workshop = shop(tmp_path, *HARMLESS)
    events = await play(workshop, is_tainted=is_tainted)
    asked = {HARMLESS[at]: each.asking for at, each in enumerate(judged(events)) if each.verdict is not Verdict.ALLOW}
    assert asked == {}
    assert [done.outcome for done in outcomes(events)] == [Outcome.OK] * len(HARMLESS)
    assert git(workshop, "status", "--short") == ""
    assert git(workshop, "fsck", "--strict", "--no-dangling") == ""


async def test_a_history_that_knows_instructions_is_worked_with_without_a_question(tmp_path: Path) -> None:
    """AGENTS.md is the person's own, in two versions. Commits that keep it are no news of it."""
    reword = (
        f"git {NAMED} rebase -q --root && git {NAMED} commit -q --amend -m again && git reset -q HEAD~1 && git reset -q"
    )
    workshop = shop(tmp_path, reword, f"echo 5 > f && git add f && {COMMIT} m")
    for version in ("one", "two"):
        (workshop.workspace / "AGENTS.md").write_text(version)
        git(workshop, "add", "-A")
        git(workshop, "commit", "-qm", version)
    for is_tainted in (False, True):
        events = await play(workshop, is_tainted=is_tainted)
        assert [each.asking for each in judged(events)] == [(), ()], is_tainted


FORGE_TREES = """cat > /tmp/forge.py <<'END'
import hashlib, subprocess
def git(*words, given=None):
    return subprocess.run(["git", *words], input=given, capture_output=True, check=True).stdout.strip().decode()
blob = git("hash-object", "-w", "--stdin", given=b"evil\\n")
tree = git("mktree", given=f"100644 blob {blob}\\ta.py\\n".encode())
index = open(".git/index", "rb").read()
old = bytes.fromhex(git("rev-parse", "HEAD:src"))
assert old in index
body = index.replace(old, bytes.fromhex(tree))[:-20]
open(".git/index", "wb").write(body + hashlib.sha1(body).digest())
END
python3 /tmp/forge.py"""


@pytest.mark.parametrize("is_tainted", [False, True])
async def test_a_tree_in_the_index_that_is_not_that_of_its_files_asks(tmp_path: Path, is_tainted: bool) -> None:
    """Git takes it into the next commit, and `git status` says nothing."""
    asking = await held(shop(tmp_path, FORGE_TREES), is_tainted=is_tainted)
    assert asking == ("src/ (in git: the index has another tree for it than for its files)",)


async def test_a_name_that_holds_the_letters_of_a_part_of_the_index_asks_nobody(tmp_path: Path) -> None:
    command = f"echo a > COUNTRY.txt && git add COUNTRY.txt && {COMMIT} m"
    assert judged(await play(shop(tmp_path, command)))[-1].verdict is Verdict.ALLOW


@pytest.mark.parametrize("data", [".git/HEAD", ".git/refs/x"])
async def test_data_of_a_repository_that_is_not_there_asks(tmp_path: Path, data: str) -> None:
    path = f"src/{data}"
    asking = await held(shop(tmp_path, f"mkdir -p $(dirname {path}) && echo 'ref: refs/heads/main' > {path}"))
    assert "src/.git/HEAD (in git: a repository begins here, so the one around it shows less)" in asking


async def test_an_id_in_the_words_of_a_commit_is_no_ref(tmp_path: Path) -> None:
    stored = f"{BLOB}; t=$(printf '100644 blob %s\\t.envrc\\n' $b | git mktree); git {NAMED} commit-tree -m m $t > id"
    told = f'git {NAMED} commit -q --allow-empty -m "Bump to $(cat id)"'
    moved = "git checkout -q $(cat id); git checkout -q -f main"
    workshop = shop(tmp_path, f"{COMMIT} {'b' * 40} --allow-empty", stored, told, moved, "git branch side $(cat id)")
    verdicts = [each.verdict for each in judged(await play(workshop))]
    assert verdicts == [Verdict.ALLOW] * 3 + [Verdict.DENY] * 2


async def test_a_new_repository_asks_with_a_card_that_shows_all(tmp_path: Path) -> None:
    workshop = shop(tmp_path, "git init -q new")
    async with workshop.open() as engine:
        await engine.runs.start(OWNER, ask())
        card = await question(engine)
    assert card.preview is not None
    assert not card.is_cut
    assert "new/.git/config" in card.preview


async def test_a_commit_starts_no_housekeeping_that_would_be_cut_off(tmp_path: Path) -> None:
    """Git keeps its process in a file of `.git` meanwhile, which would ask."""
    many = "mkdir many; for n in $(seq 1500); do echo $n > many/$n; done; git add -A"
    workshop = shop(tmp_path, many, f"{COMMIT} m")
    git(workshop, "config", "gc.auto", "1")
    git(workshop, "config", "gc.autoDetach", "false")  # So that it would be over with the command.
    assert [each.verdict for each in judged(await play(workshop))] == [Verdict.ALLOW] * 2
    assert not list(workshop.workspace.glob(".git/objects/pack/*.pack"))


async def test_settings_of_a_repository_among_the_objects_ask(tmp_path: Path) -> None:
    command = "mkdir .git/objects/evil && printf '[core]\\nfsmonitor = ./x\\n' > .git/objects/evil/config"
    assert await held(shop(tmp_path, command)) == (".git/objects/evil/config",)
