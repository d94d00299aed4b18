"""Changes of a repository: what a diff shows, and that nothing in a hostile repository makes a program run."""

import asyncio
import hashlib
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from palyra.adapters.references import git_program
from palyra.adapters.references.changes import FILES_MAX, GitChanges
from palyra.core.errors import PalyraError
from palyra.ports.references import ReadScope, ReferenceText
from tests.references.repositories import git, make_repository, write
from tests.support.waiting import WAIT_S, until

MayRead = Callable[[str], bool]


def scope(folder: Path, chars_max: int = 20_000, may_read: MayRead = lambda path: True) -> ReadScope:
    return ReadScope(workspace=(str(folder),), chars_max=chars_max, may_read=may_read)


def text_of(read: ReferenceText) -> str:
    return "\n".join(part.text for part in read.parts)


async def changes(folder: Path, path: str = ".", may_read: MayRead = lambda path: True) -> str:
    return text_of(await GitChanges().read_changes(path, scope(folder, may_read=may_read)))


async def staged(folder: Path, path: str = ".") -> str:
    return text_of(await GitChanges().read_staged(path, scope(folder)))


async def refusal(folder: Path, path: str = ".") -> str:
    with pytest.raises(PalyraError) as refused:
        await changes(folder, path)
    return refused.value.code


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Git may take a busy machine long."""
    monkeypatch.setattr(git_program, "DIFF_S", WAIT_S)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    make_repository(folder, {"a.txt": "one\n", "src/b.txt": "two\n", "c.txt": "three\n"})
    write(folder, {"a.txt": "ONE\n", "src/b.txt": "TWO\n"})
    git(folder, "add", "a.txt")
    write(folder, {"a.txt": "ONE AGAIN\n", "new.txt": "untracked\n"})
    return folder


async def test_diff_is_against_the_index_and_staged_against_the_commit(repository: Path) -> None:
    unstaged, cached = await changes(repository), await staged(repository)
    assert "-ONE\n+ONE AGAIN" in unstaged
    assert "-two\n+TWO" in unstaged
    assert "-one\n+ONE\n" in cached
    assert "TWO" not in cached
    assert "untracked" not in unstaged + cached


async def test_path_narrows_a_diff_and_a_deleted_file_still_has_one(repository: Path) -> None:
    assert "ONE" not in await changes(repository, "src")
    assert "+TWO" in await changes(repository, "src/b.txt")
    (repository / "c.txt").unlink()
    assert "-three" in await changes(repository, "c.txt")
    assert "Nothing is changed" in await changes(repository, "src/none")
    assert "Nothing is changed" in await changes(repository, "*.txt")


async def test_repository_inside_the_workspace_is_found_from_a_path_in_it(repository: Path) -> None:
    outer = repository.parent
    assert "+TWO" in await changes(outer, "work/src")
    assert await refusal(outer) == "not_a_repository"


async def test_repository_before_its_first_commit_shows_what_is_staged(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    write(tmp_path, {"a.txt": "first\n"})
    git(tmp_path, "add", "a.txt")
    assert "+first" in await staged(tmp_path)
    assert "Nothing is changed" in await changes(tmp_path)


async def test_packed_branches_and_a_detached_head_are_read(repository: Path) -> None:
    git(repository, "pack-refs", "--all")
    git(repository, "gc", "-q")
    assert "+ONE\n" in await staged(repository)
    git(repository, "checkout", "-q", "--detach")
    assert "+ONE\n" in await staged(repository)


async def test_sha256_repository_is_read(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--object-format=sha256")
    write(tmp_path, {"a.txt": "first\n"})
    git(tmp_path, "add", "a.txt")
    git(tmp_path, "commit", "-q", "-m", "first")
    write(tmp_path, {"a.txt": "second\n"})
    assert "+second" in await changes(tmp_path)


async def test_secret_files_are_left_out_of_a_diff(tmp_path: Path) -> None:
    secret = {".env": "KEY=1\n", "deploy/id_rsa": "KEY=2\n", "server.pem": "KEY=3\n", ".aws/credentials": "KEY=4\n"}
    make_repository(tmp_path, {"a.txt": "one\n", **secret})
    write(tmp_path, {name: text.replace("KEY", "CHANGED") for name, text in secret.items()})
    write(tmp_path, {"a.txt": "ONE\n"})
    shown = await changes(tmp_path)
    assert "CHANGED" not in shown
    assert "KEY" not in shown
    assert "+ONE" in shown
    assert "4 changed files are left out" in shown
    git(tmp_path, "add", "-A", "-f")
    assert "CHANGED" not in await staged(tmp_path)
    with pytest.raises(PalyraError) as refused:
        await changes(tmp_path, ".env")
    assert refused.value.code == "secret_file"


async def test_file_in_the_place_of_a_folder_shows_no_secret_of_the_folder(tmp_path: Path) -> None:
    make_repository(tmp_path, {"foo/.env": "KEY=1\n", "foo/x": "y\n"})
    shutil.rmtree(tmp_path / "foo")
    write(tmp_path, {"foo": "now a file\n"})
    git(tmp_path, "add", "-A")
    assert "KEY" not in await staged(tmp_path)


async def test_file_changed_in_the_moment_of_its_commit_is_seen(tmp_path: Path) -> None:
    for number in range(5):
        folder = tmp_path / str(number)
        make_repository(folder, {"a.txt": "a\n"})
        written_at_ns = (folder / ".git" / "index").stat().st_mtime_ns
        write(folder, {"a.txt": "b\n"})
        os.utime(folder / "a.txt", ns=(written_at_ns, written_at_ns))
        assert "+b" in await changes(folder)


async def test_file_that_a_policy_refuses_is_left_out(repository: Path) -> None:
    asked: list[str] = []

    def judge(path: str) -> bool:
        asked.append(path)
        return path != "src/b.txt"

    shown = await changes(repository, may_read=judge)
    assert sorted(asked) == ["a.txt", "src/b.txt"]
    assert "TWO" not in shown
    assert "1 changed files are left out" in shown


async def test_only_the_first_of_very_many_files_are_shown(tmp_path: Path) -> None:
    many = {f"f{number:04}.txt": "a\n" for number in range(FILES_MAX + 20)}
    make_repository(tmp_path, many)
    write(tmp_path, dict.fromkeys(many, "b\n"))
    read = await GitChanges().read_changes(".", scope(tmp_path, chars_max=200_000))
    assert f"More than {FILES_MAX} files" in text_of(read)
    assert text_of(read).count("diff --git") == FILES_MAX


async def test_huge_and_binary_changes_are_bounded(tmp_path: Path) -> None:
    make_repository(tmp_path, {"big.txt": "a\n", "long.txt": "a\n", "data.bin": "a\n"})
    (tmp_path / "big.txt").write_bytes(b"line\n" * 1_000_000)
    (tmp_path / "data.bin").write_bytes(b"\x00\x01" * 100)
    write(tmp_path, {"long.txt": "b\n" * 100_000})
    read = await GitChanges().read_changes(".", scope(tmp_path, chars_max=1_000))
    assert read.parts[-1].has_more
    assert len(read.parts[-1].text) == 1_000
    assert "Binary files" in text_of(read)


async def test_git_is_ended_with_all_it_started_when_it_takes_too_long(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\n/bin/sleep 60 &\necho $! > {tmp_path}/pid\nwait\n")
    slow.chmod(0o755)
    note = tmp_path / "pid"
    note.touch()
    monkeypatch.setattr(git_program, "find_git", lambda: str(slow))
    for limit_s in (0.5, 5.0, 50.0):  # On a busy machine it may not even have begun.
        monkeypatch.setattr(git_program, "DIFF_S", limit_s)
        assert await refusal(repository) == "git_timed_out"
        if note.read_text():
            break
    started = Path("/proc") / note.read_text().strip()
    await until(lambda: not started.exists() or " Z " in (started / "stat").read_text())


async def test_pipe_in_the_place_of_a_file_does_not_hold_git(repository: Path) -> None:
    (repository / "c.txt").unlink()
    os.mkfifo(repository / "c.txt")
    assert await refusal(repository, "c.txt") == "git_failed"


async def test_cancelled_diff_leaves_no_program_and_no_folder(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    for _ in range(5):
        task = asyncio.create_task(changes(repository))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert list(temporary.iterdir()) == []


def hostile(folder: Path, ran: Path) -> str:
    """A command that leaves a mark, as every setting of a repository that names a program would."""
    script = folder.parent / "evil.sh"
    script.write_text(f"#!/bin/sh\necho ran >> {ran}\ncat\n")
    script.chmod(0o755)
    return str(script)


PROGRAM_SETTINGS = [
    "diff.external", "diff.evil.command", "diff.evil.textconv", "diff.evil.xfuncname", "core.fsmonitor", "core.pager",
    "pager.diff", "core.sshCommand", "core.editor", "core.askPass", "core.gitProxy", "filter.evil.clean",
    "filter.evil.smudge", "filter.evil.process", "interactive.diffFilter", "credential.helper", "gpg.program",
    "merge.evil.driver", "alias.diff", "alias.evil", "sequence.editor", "trailer.x.command", "core.alternateRefsCommand",
    "uploadpack.packObjectsHook", "difftool.x.cmd", "man.x.cmd", "web.browser", "browser.x.cmd", "init.templateDir",
]  # fmt: skip


@pytest.mark.parametrize("place", ["config", "included", "worktree"])
async def test_no_setting_of_a_hostile_repository_runs_a_program(repository: Path, tmp_path: Path, place: str) -> None:
    ran = tmp_path / "ran"
    evil = hostile(repository, ran)
    for setting in PROGRAM_SETTINGS:
        value = f"!{evil}" if setting.startswith("alias") else evil
        file = {"config": ".git/config", "included": "evil.config", "worktree": ".git/config.worktree"}[place]
        git(repository, "config", "-f", file, setting, value)
    git(repository, "config", "-f", ".git/config", "filter.evil.required", "true")
    if place == "included":
        git(repository, "config", "-f", ".git/config", "include.path", "../evil.config")
    if place == "worktree":
        git(repository, "config", "-f", ".git/config", "extensions.worktreeConfig", "true")
    attributes = "* filter=evil diff=evil merge=evil\n"
    write(repository, {".gitattributes": attributes, ".git/info/attributes": attributes})
    for name in ("post-index-change", "fsmonitor-watchman", "reference-transaction", "pre-commit", "post-checkout"):
        hook = repository / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\necho hook >> {ran}\n")
        hook.chmod(0o755)
    os.utime(repository / "c.txt", (1, 1))
    assert "+TWO" in await changes(repository)
    assert "+ONE" in await staged(repository)
    assert not ran.exists()


async def test_the_same_repository_does_run_a_program_for_an_unguarded_git(repository: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    git(repository, "config", "filter.evil.clean", hostile(repository, ran))
    write(repository, {".gitattributes": "* filter=evil\n"})
    git(repository, "diff")
    assert ran.exists()


async def test_hostile_submodule_runs_nothing(repository: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    make_repository(repository / "sub", {"x": "y\n"})
    git(repository, "add", "sub")
    git(repository, "commit", "-q", "-m", "sub")
    git(repository / "sub", "config", "core.fsmonitor", hostile(repository, ran))
    write(repository / "sub", {"x": "z\n"})
    await changes(repository)
    assert not ran.exists()


async def test_environment_of_the_daemon_does_not_reach_git(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    evil = hostile(repository, ran)
    for name in ("GIT_EXTERNAL_DIFF", "GIT_PAGER", "PAGER", "GIT_SSH_COMMAND", "GIT_EDITOR", "GIT_ASKPASS"):
        monkeypatch.setenv(name, evil)
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert "+TWO" in await changes(repository)
    assert not ran.exists()


async def test_diff_writes_nothing_into_the_repository(repository: Path) -> None:
    os.utime(repository / "c.txt", (1, 1))
    before = {path: path.stat().st_mtime_ns for path in repository.rglob("*")}
    await changes(repository)
    await staged(repository)
    assert {path: path.stat().st_mtime_ns for path in repository.rglob("*")} == before


async def test_repository_that_leads_elsewhere_is_refused(repository: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    git(repository, "worktree", "add", "-q", str(other))
    assert await refusal(other) == "repository_unsupported"
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / ".git").symlink_to(repository / ".git")
    assert await refusal(linked) == "repository_unsupported"
    borrowing = tmp_path / "borrowing"
    git(tmp_path, "clone", "-q", "--shared", str(repository), str(borrowing))
    write(borrowing, {"a.txt": "x\n"})
    assert await refusal(borrowing) == "repository_unsupported"


@pytest.mark.parametrize("part", ["index", "HEAD", "config", "packed-refs", "objects", "refs/heads/main"])
async def test_part_of_a_repository_that_is_a_link_or_a_pipe_is_refused(repository: Path, part: str) -> None:
    path = repository / ".git" / part
    if path.is_dir():
        shutil.move(path, repository.parent / "moved")
        path.symlink_to(repository.parent / "moved")
        assert await refusal(repository) in ("repository_unsupported", "symlink_refused", "io_error")
        return
    if part == "packed-refs":
        (repository / ".git" / "refs" / "heads" / "main").unlink()  # It is read if the branch has no file of its own.
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    with pytest.raises(PalyraError) as refused:
        await staged(repository)
    assert refused.value.code == "repository_unsupported"


async def test_links_in_the_working_tree_are_not_followed(repository: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    write(outside, {"b.txt": "SECRET OUTSIDE\n"})
    shutil.rmtree(repository / "src")
    (repository / "src").symlink_to(outside)
    (repository / "c.txt").unlink()
    (repository / "c.txt").symlink_to(outside / "b.txt")
    assert "SECRET OUTSIDE" not in await changes(repository)


@pytest.mark.parametrize(
    "path", ["../outside.txt", "/../outside.tx", "src/../.envxy", "src/../../o.txt", "./././././a.t"]
)
async def test_forged_path_in_an_index_shows_nothing_outside(tmp_path: Path, path: str) -> None:
    outer = tmp_path / "outer"
    folder = outer / "site"
    make_repository(folder, {"a" * 14: "one\n"})
    write(tmp_path, {"outer/outside.txt": "OUTSIDE\n", "outer/o.txt": "OUTSIDE\n", "outer/site/.envxy": "OUTSIDE\n"})
    (folder / "src").mkdir()
    index = folder / ".git" / "index"
    body = index.read_bytes()[:-20].replace(b"a" * 14, path.encode().ljust(14, b"x")[:14])
    index.write_bytes(body + hashlib.sha1(body, usedforsecurity=False).digest())
    for root, below in ((folder, "."), (outer, "site")):
        for read in (changes, staged):
            try:
                assert "OUTSIDE" not in await read(root, below)
            except PalyraError as refused:
                assert refused.code == "git_failed"


@pytest.mark.parametrize("damage", [b"", b"DIRC\x00\x00\x00\x02\xff\xff\xff\xff", b"\x00" * 100])
async def test_damaged_index_is_a_clear_refusal(repository: Path, damage: bytes) -> None:
    (repository / ".git" / "index").write_bytes(damage)
    try:
        await changes(repository)
    except PalyraError as refused:
        assert refused.code == "git_failed"


async def test_a_program_whose_output_nobody_reads_any_more_is_ended() -> None:
    child = await asyncio.create_subprocess_exec("yes", stdout=asyncio.subprocess.PIPE, start_new_session=True)
    assert child.stdout is not None
    await child.stdout.read(1)
    await asyncio.sleep(0.2)  # Long enough to fill the reader, which then stops looking at the pipe.
    async with asyncio.timeout(WAIT_S):
        await git_program._end(child)
    assert child.returncode == -signal.SIGKILL
