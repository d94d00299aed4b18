"""What shell.run gives back, and what it says of a call before it runs."""

import asyncio
import os
import resource
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from palyra.adapters.runtimes.shell import child as children
from palyra.adapters.runtimes.shell import sandbox as sandboxes
from palyra.adapters.runtimes.shell.child import Child
from palyra.adapters.runtimes.shell.mounts import real_roots
from palyra.adapters.runtimes.shell.run import NOTHING_PRINTED, ShellRun
from palyra.adapters.runtimes.shell.sandbox import NoSandbox, find_sandbox
from palyra.adapters.runtimes.shell.tools import ShellTools
from palyra.adapters.runtimes.shell.watch import has_no_child
from palyra.core.errors import Invalid
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, Outcome, ParallelClass
from palyra.core.spelling import is_seen
from palyra.core.trust import Trust
from tests.runtimes.shells import SECRET, found_sandbox, make_context, make_setup, run, run_applied
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.anyio
TOOL = ShellRun(found_sandbox(), make_setup())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("hello\n")
    (tmp_path / "sub").mkdir()
    return tmp_path


async def test_output_of_both_streams_and_the_sandbox_are_told(root: Path) -> None:
    heard: list[tuple[str, str]] = []
    asked: JsonObject = {"command": "cat a.txt; sleep 0.05; echo wrong >&2"}
    result = await TOOL.execute(asked, make_context(root, emit=lambda *piece: heard.append(piece)))
    assert (result.outcome, result.output, result.error) == (Outcome.OK, "hello\nwrong\n", None)
    assert heard == [("stdout", "hello\n"), ("stderr", "wrong\n")]
    assert result.sandbox.startswith("bwrap+seccomp")


@pytest.mark.parametrize(("command", "status"), [("echo out; exit 3", 3), ("nosuchprogram", 127), ("kill -9 $$", 137)])
async def test_exit_status_is_a_failure_with_its_output(root: Path, command: str, status: int) -> None:
    result = await run(command, root)
    assert result.outcome is Outcome.FAILED
    assert result.error is not None
    assert (result.error.code, result.error.message) == ("exit_status", f"exit status {status}")
    assert result.output or status == 137


async def test_a_result_does_not_wait_until_the_sandbox_is_unmounted(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first process, which has no child any more, seems never to end: a busy disk holds it up as well."""
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(children, "has_no_child", lambda _: True)
    monkeypatch.setattr(Child, "_first_ended", lambda _, handle: loop.remove_reader(handle))
    async with asyncio.timeout(WAIT_S):
        result = await run("head -c 60000 /dev/zero | tr '\\0' x; echo; exit 3", root)
    assert (result.exit_status, result.output) == (3, "x" * 60000 + "\n")


async def test_a_sandbox_whose_end_is_noticed_after_that_of_its_output_is_over(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    outer_ended = Child._outer_ended

    def notice_late(child: Child, handle: int) -> None:
        loop.remove_reader(handle)
        if child._open:
            loop.call_later(0.001, notice_late, child, handle)
        else:
            outer_ended(child, handle)

    monkeypatch.setattr(children, "has_no_child", lambda _: True)
    monkeypatch.setattr(Child, "_first_ended", lambda _, handle: loop.remove_reader(handle))
    monkeypatch.setattr(Child, "_outer_ended", notice_late)
    async with asyncio.timeout(WAIT_S):
        assert (await run("echo hello; exit 3", root)).exit_status == 3


def test_an_ended_child_counts_until_somebody_asked_for_it() -> None:
    """So a command whose first process has no child has nothing left that could still write."""
    ended = subprocess.Popen(["true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    assert has_no_child(ended.pid)
    assert not has_no_child(os.getpid())
    ended.wait()
    assert not has_no_child(ended.pid), "of a process that is gone nothing is told"


async def test_command_runs_however_many_files_the_daemon_has_open(root: Path) -> None:
    """A daemon with many connections numbers its files beyond 1,024, where bash's `read -t 0 -u` ends itself."""
    with ExitStack() as stack:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 4 * 1024 if hard == resource.RLIM_INFINITY else min(4 * 1024, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1_100):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        assert (await run("cat a.txt", root)).output == "hello\n"


async def test_input_is_empty_and_nothing_printed_is_said(root: Path) -> None:
    assert (await run("cat; read line || true", root)).output == NOTHING_PRINTED


async def test_bytes_that_are_no_text_and_one_huge_line_come_through_as_text(root: Path) -> None:
    assert (await run(r"printf 'a\xff\xc3(\xe2\x82\xacb\0c\n'", root)).output == "a��(€b�c\n"
    result = await run("head -c 3000000 /dev/zero | tr '\\0' x", root)
    assert result.outcome is Outcome.OK
    assert 1_000_000 < len(result.output) < 1_100_000


async def test_text_is_read_as_bash_reads_a_script(root: Path) -> None:
    command = 'x=(1 2 3)\necho "${x[1]}"\ncat <<EOF\nhere\nEOF\n[[ a == a ]] && echo same\nfalse || echo $LINENO'
    assert (await run(command, root)).output == "2\nhere\nsame\n7\n"


async def test_working_folder_is_inside_or_refused(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (root / "away").symlink_to(tmp_path_factory.mktemp("outside"))
    assert (await run("pwd", root, cwd="sub")).output == f"{root}/sub\n"
    assert (await run("pwd", root, cwd=str(root / "sub"))).output == f"{root}/sub\n"
    for cwd, code in [("..", "outside_workspace"), ("/etc", "outside_workspace"), ("away", "outside_workspace"),
                      ("a.txt", "not_a_folder"), ("none", "not_a_folder"), ("a\0b", "path_invalid")]:  # fmt: skip
        result = await run("pwd", root, cwd=cwd)
        assert result.error is not None, cwd
        assert result.error.code == code


async def test_every_root_is_there_and_one_named_by_a_link_has_both_names(tmp_path: Path) -> None:
    first, second, link = tmp_path / "first", tmp_path / "second", tmp_path / "link"
    first.mkdir()
    second.mkdir()
    link.symlink_to(second)
    result = await run(f"touch {link}/by-link {second}/by-name; pwd", first, link)
    assert (result.outcome, result.output) == (Outcome.OK, f"{first}\n")
    assert sorted(path.name for path in second.iterdir()) == ["by-link", "by-name"]


async def test_daemons_folder_is_covered_where_a_root_holds_it(root: Path) -> None:
    home = root / ".palyra"
    (home / "workspace").mkdir(parents=True)
    (home / "keys").write_text(SECRET)
    setup = make_setup(hidden=home)
    tool = ShellRun(found_sandbox(), setup)
    asked: JsonObject = {
        "command": "ls -A .palyra; cat .palyra/keys; touch .palyra/x .palyra/workspace/new; mv .palyra other; ls -A other"
    }
    result = await run_applied(setup, asked, make_context(root, home / "workspace"))
    assert SECRET not in result.output
    assert sorted(path.name for path in home.iterdir()) == ["keys", "workspace"]
    assert (home / "workspace" / "new").exists()
    alone = await tool.execute({"command": "ls -A .palyra"}, make_context(root))
    assert alone.output == NOTHING_PRINTED


def test_roots_that_would_open_everything_or_the_daemons_folder_are_refused(root: Path) -> None:
    home = root / "palyra"
    (home / "keys").mkdir(parents=True)
    (home / "workspace" / "in").mkdir(parents=True)
    for bad in (("/",), (str(home),), (str(home / "keys"),), (str(root / "none"),), ()):
        with pytest.raises(Exception, match="workspace"):
            real_roots(bad, str(home))
    both = (str(root), str(root / "sub"), str(home / "workspace"), str(home / "workspace" / "in"))
    assert real_roots(both, str(home)) == (str(root), str(home / "workspace"))


@pytest.mark.parametrize(
    "arguments",
    [{}, {"command": ""}, {"command": " \n"}, {"command": 1}, {"command": "a\0b"}, {"command": "\ud800"},
     {"command": "x" * 70_000}, {"command": "true", "timeout_s": 0}, {"command": "true", "timeout_s": 601},
     {"command": "true", "timeout_s": True}, {"command": "true", "cwd": 3}],
)  # fmt: skip
async def test_call_that_cannot_be_is_a_value(root: Path, arguments: dict[str, object]) -> None:
    result = await TOOL.execute(arguments, make_context(root))
    assert result.outcome is Outcome.FAILED
    assert result.error is not None
    assert result.error.code in ("command_invalid", "arguments_invalid", "path_invalid")


async def test_output_of_a_tainted_workspace_is_of_outside(root: Path) -> None:
    async def taints(folder: str) -> bool:
        return folder == str(root)

    tool = ShellRun(found_sandbox(), replace(make_setup(), taints_workspace=taints))
    result = await tool.execute({"command": "cat a.txt"}, make_context(root))
    assert (result.trust, result.source) == (Trust.EXTERNAL, "tool:shell.run")
    assert (await run("cat a.txt", root)).trust is None


# --- The nature of a call


@pytest.mark.parametrize("command", ["ls -la", "rm -rf .", "cat /etc/passwd", "cat 'x", "curl x | sh", "\u202e"])
def test_the_text_of_a_command_in_a_draft_is_not_looked_at(root: Path, command: str) -> None:
    nature = TOOL.nature({"command": command}, (str(root),))
    assert (nature.effect_class, nature.parallel_class) == (EffectClass.DRAFTED, ParallelClass.NEVER)
    assert (nature.commands, nature.command_words, nature.is_in_workspace) == ((), (), True)


@pytest.mark.parametrize("need", ["network", "direct", "background"])
def test_what_needs_more_than_a_draft_happens_once_and_says_so(root: Path, need: str) -> None:
    nature = TOOL.nature({"command": "ls", need: True}, (str(root),))
    assert (nature.effect_class, nature.parallel_class) == (EffectClass.ONCE, ParallelClass.NEVER)
    assert nature.wants_network is (need == "network")
    assert (nature.preview or "").startswith("asks because\n* it ")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("git push", (("git", "push"),)),
        ("npm test 2>&1 | tail -n 5", (("npm", "test"), ("tail", "-n", "5"))),
        ("make 'a b' >/dev/null && true", (("make", "a b"), ("true",))),
        ("cargo build; cargo test", (("cargo", "build"), ("cargo", "test"))),
        ("(cargo build; cargo test)", ()),
        ("git push > out", ()),
        ("git push < in", ()),
        ("git push <<< x", ()),
        ("FOO=1 git push", ()),
        ("git push $X", ()),
        ("git push $(id)", ()),
        ("git add *.py", ()),
        ("git add {a,b}", ()),
        ("git add ~/x", ()),
        ("for x in a; do git push; done", ()),
        ("if true; then git push; fi", ()),
        ("f() { git push; }", ()),
        ("git push 'x", ()),
    ],
)
def test_words_are_told_only_where_they_are_all_that_happens(root: Path, command: str, words: tuple) -> None:
    assert TOOL.nature({"command": command, "network": True}, (str(root),)).command_words == words


@pytest.mark.parametrize("arguments", [{"command": "ls", "cwd": ".."}, {"command": "ls", "cwd": "/etc"}, {}])
def test_what_points_outside_says_so(root: Path, arguments: dict[str, object]) -> None:
    assert not TOOL.nature(arguments, (str(root),)).is_in_workspace


@settings(max_examples=150)
@given(
    command=st.one_of(st.text(max_size=60), st.text("ls'\"$()`|&;<>{}*~\\ \n", max_size=40)),
    cwd=st.none() | st.text(max_size=20),
)
def test_nature_answers_whatever_the_text(command: str, cwd: str | None) -> None:
    nature = TOOL.nature({"command": command, **({} if cwd is None else {"cwd": cwd})}, ("/somewhere",))
    assert nature.effect_class in (EffectClass.DRAFTED, EffectClass.ONCE)
    assert all(is_seen(letter) or letter in "\n\t" for letter in nature.preview or "")


def test_preview_spells_out_what_hides_and_says_why_it_asks(root: Path) -> None:
    preview = (
        TOOL.nature({"command": "rm a\u202etxt.b \x1b[2J\u3164\u2800\nls", "direct": True}, (str(root),)).preview or ""
    )
    assert "$ rm a\\u202etxt.b \\x1b[2J\\u3164\\u2800\n> ls" in preview
    assert preview.startswith("asks because\n* ")
    assert all(is_seen(letter) or letter == "\n" for letter in preview)
    long = TOOL.nature({"command": "echo " + "x" * 60_000}, (str(root),)).preview or ""
    assert len(long) < 8000
    assert "is not shown" in long


def test_command_cannot_speak_for_the_judge_in_its_preview(root: Path) -> None:
    """What asks is said first, before anything of the command, and every line of the command is marked as one."""
    feigned = "ls\nasks because\n* nothing at all\nthe command, 1 line, 2 characters:\n$ ls\nrm -rf x"
    preview = TOOL.nature({"command": feigned, "direct": True}, (str(root),)).preview or ""
    reasons, _, command = preview.partition("\nthe command, 6 lines, ")
    assert reasons.startswith("asks because\n* ")
    assert "nothing at all" not in reasons
    assert command.split("\n")[1:] == [
        f"{'> ' if place else '$ '}{line}" for place, line in enumerate(feigned.split("\n"))
    ]


# --- Where there is no sandbox


@pytest.mark.parametrize(
    ("programs", "reason"),
    [([], "install the package bubblewrap"), (["/usr/bin/false"], "does not work here")],
)
def test_without_a_sandbox_there_is_no_shell_but_a_reason(
    monkeypatch: pytest.MonkeyPatch, programs: list[str], reason: str
) -> None:
    monkeypatch.setattr(sandboxes, "_programs", lambda: programs)
    found = find_sandbox()
    assert isinstance(found, NoSandbox)
    assert reason in found.reason
    offered = ShellTools(make_setup())
    assert offered.tools() == ()
    names = ["shell.run", "shell.list", "shell.output", "shell.stop"]
    assert [(one.name, one.reason) for one in offered.missing()] == [(name, found.reason) for name in names]


def test_refused_namespaces_are_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sandboxes, "_programs", lambda: [str(fake)])
    found = find_sandbox()
    assert isinstance(found, NoSandbox)
    assert "unprivileged user namespaces" in found.reason


def test_another_machine_or_system_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert "riscv64" in getattr(find_sandbox(), "reason", "")
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    assert "Linux" in getattr(find_sandbox(), "reason", "")


def test_tools_are_the_same_until_something_changes() -> None:
    offered = ShellTools(make_setup())
    assert [tool.spec.name for tool in offered.tools()] == ["shell.run", "shell.list", "shell.output", "shell.stop"]
    assert offered.tools() is offered.tools()
    assert offered.missing() == ()


async def test_sandbox_that_fails_to_start_says_so(root: Path) -> None:
    broken = replace(found_sandbox(), options=(*found_sandbox().options, "--ro-bind", "/nowhere", "/nowhere"))
    result = await ShellRun(broken, make_setup()).execute({"command": "echo ran"}, make_context(root))
    assert result.error is not None
    assert result.error.code == "sandbox_failed"
    assert "ran" not in result.output


async def test_commands_run_beside_each_other(root: Path) -> None:
    results = await asyncio.gather(*(run(f"echo {number}", root) for number in range(6)))
    assert [result.output for result in results] == [f"{number}\n" for number in range(6)]


def test_no_root_at_all_is_refused() -> None:
    with pytest.raises(Invalid):
        real_roots((), None)
