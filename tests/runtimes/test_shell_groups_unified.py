"""The steps of cgroup v2, in a folder that stands in for its tree and answers as the kernel does."""

import errno
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from palyra.adapters.runtimes.shell import groups as groups_module
from palyra.adapters.runtimes.shell import groups_find
from palyra.adapters.runtimes.shell.groups import GroupParent, Groups
from palyra.adapters.runtimes.shell.groups_find import (
    find_place,
    owner_name,
    possible_branches,
    step_down,
    sweep,
    why_no_branches,
)
from palyra.adapters.runtimes.shell.groups_place import DAEMON_LEAF, WANTED
from palyra.adapters.runtimes.shell.limits import CommandLimits
from palyra.adapters.runtimes.shell.watch import Excess

LIMITS = CommandLimits(memory_bytes=1 << 28, processes_count=10)


class Tree:
    """Groups as folders. What is written to some of their files changes others, and some of it is refused."""

    def __init__(self, top: Path) -> None:
        self.top = top / "tree"
        self.proc = top / "proc"
        self.refused: dict[str, int] = {}
        self.written: list[tuple[str, str]] = []
        self.is_missing: set[str] = set()
        self._make_folder, self._remove_folder = os.mkdir, os.rmdir
        self.proc.mkdir()
        (self.proc / "mountinfo").write_text(f"1 2 0:3 / {self.top} rw - cgroup2 cgroup2 rw\n")

    def enter(self, name: str) -> Path:
        """The daemon's own group."""
        (self.proc / "cgroup").write_text(f"0::/{name}\n")
        own = self.top
        for part in ["", *name.split("/")]:
            own = own / part
            if not own.exists():
                self.mkdir(str(own))
        (own / "cgroup.procs").write_text(f"{os.getpid()}\n")
        return own

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        self._make_folder(path, mode)
        folder = Path(path)
        if not folder.is_relative_to(self.top):
            return
        files = {"cgroup.procs": "", "cgroup.controllers": "cpu memory pids\n", "cgroup.subtree_control": "\n"}
        files |= {"memory.max": "max\n", "memory.high": "max\n", "memory.swap.max": "max\n", "memory.oom.group": "0\n"}
        files |= {"memory.events": "oom 0\noom_kill 0\n", "pids.max": "max\n", "pids.events": "max 0\n"}
        files |= {"cgroup.kill": ""}
        for name, text in files.items():
            if name not in self.is_missing:
                (folder / name).write_text(text)

    def rmdir(self, path: str) -> None:
        """A group is removed with its files, but not with processes or groups in it."""
        folder = Path(path)
        if folder.is_relative_to(self.top) and folder.exists():
            if (folder / "cgroup.procs").read_text().split() or any(one.is_dir() for one in folder.iterdir()):
                raise OSError(errno.EBUSY, "Device or resource busy", path)
            for file in folder.iterdir():
                file.unlink()
        self._remove_folder(path)

    def write(self, path: str, value: str) -> None:
        file = Path(path)
        self.written.append((str(file.relative_to(self.top)), value))
        if file.name in self.refused:
            raise OSError(self.refused[file.name], os.strerror(self.refused[file.name]), path)
        if file.name == "cgroup.procs":
            self._move(value, file)
        elif file.name == "cgroup.subtree_control" and (file.parent / "cgroup.procs").read_text().split():
            raise OSError(errno.EBUSY, "Device or resource busy", path)
        elif file.name == "cgroup.subtree_control":
            file.write_text(value.replace("+", "") + "\n")
        elif not file.exists():
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        else:
            file.write_text(f"{value}\n")

    def _move(self, pid: str, file: Path) -> None:
        for other in self.top.rglob("cgroup.procs"):
            other.write_text("".join(f"{one}\n" for one in other.read_text().split() if one != pid))
        file.write_text(f"{file.read_text()}{pid}\n")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tree]:
    made = Tree(tmp_path)
    monkeypatch.setattr(os, "mkdir", made.mkdir)
    monkeypatch.setattr(os, "rmdir", made.rmdir)
    monkeypatch.setattr(groups_module, "write", made.write)
    monkeypatch.setattr(groups_find, "write", made.write)
    yield made
    monkeypatch.undo()


def pids_in(folder: Path) -> list[str]:
    return (folder / "cgroup.procs").read_text().split()


def test_daemon_alone_in_a_delegated_group_makes_room_and_commands_get_groups_beside_it(tree: Tree) -> None:
    own = tree.enter("system.slice/palyra.service")
    assert possible_branches(find_place(str(tree.proc))) == []
    assert "made room there" in why_no_branches(find_place(str(tree.proc)))
    assert step_down(str(tree.proc))
    assert pids_in(own) == []
    assert pids_in(own / DAEMON_LEAF) == [str(os.getpid())]
    assert (own / "cgroup.subtree_control").read_text().split() == ["memory", "pids"]
    (tree.proc / "cgroup").write_text(f"0::/system.slice/palyra.service/{DAEMON_LEAF}\n")
    assert possible_branches(find_place(str(tree.proc))) == [(GroupParent(str(own), WANTED, True),)]
    assert not step_down(str(tree.proc))


def test_children_of_the_daemon_move_with_it(tree: Tree) -> None:
    own = tree.enter("palyra.service")
    child = subprocess.Popen(["sleep", "300"])
    try:
        (own / "cgroup.procs").write_text(f"{os.getpid()}\n{child.pid}\n")
        assert step_down(str(tree.proc))
        assert set(pids_in(own / DAEMON_LEAF)) == {str(os.getpid()), str(child.pid)}
    finally:
        child.kill()
        child.wait()


def test_processes_of_others_are_never_moved(tree: Tree) -> None:
    own = tree.enter("session.scope")
    (own / "cgroup.procs").write_text(f"{os.getpid()}\n{os.getppid()}\n")
    assert not step_down(str(tree.proc))
    assert tree.written == []
    assert not (own / DAEMON_LEAF).exists()


def test_process_of_another_that_comes_meanwhile_is_not_moved_and_the_daemon_goes_back(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tree.enter("palyra.service")
    looks = iter([frozenset({os.getpid()}), frozenset({os.getpid(), os.getppid()})])
    pids = groups_find._pids

    def look(folder: str) -> frozenset[int]:
        return next(looks, pids(folder)) if folder == str(own) else pids(folder)

    monkeypatch.setattr(groups_find, "_pids", look)
    assert not step_down(str(tree.proc))
    assert str(os.getppid()) not in [value for _, value in tree.written]
    assert not (own / DAEMON_LEAF).exists()


@pytest.mark.parametrize("name", ["cgroup.subtree_control", "cgroup.procs"])
@pytest.mark.parametrize("error", [errno.EACCES, errno.EBUSY, errno.EROFS, errno.EINVAL])
def test_room_that_cannot_be_made_leaves_everything_as_it_was(tree: Tree, name: str, error: int) -> None:
    own = tree.enter("palyra.service")
    tree.refused[name] = error
    assert not step_down(str(tree.proc))
    assert pids_in(own) == [str(os.getpid())]
    assert not (own / DAEMON_LEAF).exists()


def test_group_of_a_command_has_every_limit_and_is_removed(tree: Tree) -> None:
    groups = Groups((GroupParent(str(tree.enter("a")), WANTED, True),), owner_name())
    group = groups.make(LIMITS)
    assert group is not None
    (folder,) = map(Path, group.folders)
    read = {name: (folder / name).read_text().strip() for name in ("memory.max", "pids.max")}
    assert read == {"memory.max": str(1 << 28), "pids.max": "48"}
    names = [name.rpartition("/")[2] for name, _ in tree.written]
    assert names == ["memory.max", "memory.swap.max", "memory.oom.group", "pids.max"]
    assert [value for _, value in tree.written[1:3]] == ["0", "1"]
    assert [os.readlink(f"/proc/self/fd/{entry}") for entry in group.entries] == [f"{folder}/cgroup.procs"]
    groups.let_go(group)
    assert (folder.exists(), groups.count) == (False, 0)


def test_kernel_without_swap_or_group_killing_still_gives_groups(tree: Tree) -> None:
    own = tree.enter("a")
    tree.is_missing |= {"memory.swap.max", "memory.oom.group", "cgroup.kill"}
    group = Groups((GroupParent(str(own), WANTED, True),), owner_name()).make(LIMITS)
    assert group is not None
    group.kill()
    assert group.excess() is None


@pytest.mark.parametrize("name", ["memory.max", "memory.swap.max", "memory.oom.group", "pids.max"])
def test_limit_that_is_refused_means_no_group(tree: Tree, name: str) -> None:
    own = tree.enter("a")
    tree.refused[name] = errno.EACCES
    groups = Groups((GroupParent(str(own), WANTED, True),), owner_name())
    assert groups.make(LIMITS) is None
    assert groups.count == 0
    assert [path.name for path in own.iterdir() if path.is_dir()] == []


@pytest.mark.parametrize(
    ("file", "text", "excess"),
    [
        ("memory.events", "low 3\nmax 7\noom 2\noom_kill 0\n", None),
        ("memory.events", "oom 1\noom_kill 1\noom_group_kill 1\n", Excess.MEMORY),
        ("pids.events", "max 4\n", Excess.PROCESSES),
        ("pids.events", "max\n", None),
        ("memory.events", "oom_kill -1\noom_kill x\n\0", None),
    ],
)
def test_what_the_kernel_counted_is_the_excess(tree: Tree, file: str, text: str, excess: Excess | None) -> None:
    group = Groups((GroupParent(str(tree.enter("a")), WANTED, True),), owner_name()).make(LIMITS)
    assert group is not None
    Path(group.folders[0], file).write_text(text)
    assert group.excess() is excess


def test_ending_a_command_kills_its_group(tree: Tree) -> None:
    group = Groups((GroupParent(str(tree.enter("a")), WANTED, True),), owner_name()).make(LIMITS)
    assert group is not None
    group.kill()
    assert tree.written[-1] == (f"a/{Path(group.folders[0]).name}/cgroup.kill", "1")


def test_sweep_removes_what_dead_daemons_left_and_nothing_else(tree: Tree) -> None:
    own = tree.enter("a")
    dead = subprocess.Popen(["/bin/true"])
    dead.wait()
    _, namespace, pid, start = owner_name().split("-")
    left = [f"palyra-{namespace}-{dead.pid}-1-1", f"palyra-{namespace}-{pid}-{int(start) - 1}-4"]
    kept = [f"{owner_name()}-1", f"palyra-{int(namespace) + 1}-{dead.pid}-1-1", DAEMON_LEAF, "palyra-old", "x.service"]
    kept += [f"palyra-{namespace}-{dead.pid}-1", f"my-palyra-{namespace}-{dead.pid}-1-1"]
    busy = f"palyra-{namespace}-{dead.pid}-1-2"
    for name in (*left, *kept, busy):
        os.mkdir(own / name)
    (own / busy / "cgroup.procs").write_text(f"{dead.pid}\n")
    assert sweep((GroupParent(str(own), WANTED, True),)) == (busy,)
    assert sorted(path.name for path in own.iterdir() if path.is_dir()) == sorted([*kept, busy])
    killed = [name for name, _ in tree.written]
    assert all(re.fullmatch(rf"a/palyra-{namespace}-({dead.pid}|{pid})-\d+-\d/cgroup.kill", name) for name in killed)
    assert not any(name.startswith(f"a/{owner_name()}") for name in killed)


def test_sweep_of_a_folder_that_is_gone_is_nothing(tmp_path: Path) -> None:
    assert sweep((GroupParent(str(tmp_path / "none"), WANTED, True),)) == ()
