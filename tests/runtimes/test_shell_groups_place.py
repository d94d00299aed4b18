"""Where control groups can be: what the kernel's lists say, and which place is chosen."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palyra.adapters.runtimes.shell import groups as groups_module
from palyra.adapters.runtimes.shell import groups_find
from palyra.adapters.runtimes.shell import sandbox as sandboxes
from palyra.adapters.runtimes.shell.groups import ControlGroup, GroupParent, Groups, NoGroups, words_for
from palyra.adapters.runtimes.shell.groups_find import find_place, possible_branches, why_no_branches
from palyra.adapters.runtimes.shell.groups_place import (
    WANTED,
    GroupState,
    Layout,
    Ready,
    lay_out,
    parse_memberships,
    parse_mounts,
    ready_places,
    should_step_down,
    why_none,
)
from palyra.adapters.runtimes.shell.limits import CommandLimits
from palyra.adapters.runtimes.shell.sandbox import NoSandbox, Sandbox
from palyra.app import Home
from palyra.app.services import SandboxProxy
from palyra.app.tools import ToolDependencies, _shell, try_sandbox
from tests.runtimes.shells import make_setup, never_tainted

HYBRID_GROUPS = "9:name=systemd:/\n8:pids:/\n4:memory:/jobs/a:b\n2:cpu,cpuacct:/\n0::/\n"
HYBRID_MOUNTS = """31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
UNIFIED = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
OWN, MIDDLE, TOP = "/g/a/b", "/g/a", "/g"
OURS = frozenset({10, 11})


def chain(
    own: GroupState | None = None, middle: GroupState | None = None, top: GroupState | None = None
) -> tuple[GroupState, ...]:
    return (own or GroupState(folder=OWN), middle or GroupState(folder=MIDDLE), top or GroupState(folder=TOP))


def ready(folder: str, **fields: object) -> GroupState:
    return replace(GroupState(folder=folder, is_writable=True, controllers=WANTED, handed_on=WANTED), **fields)


ALONE = GroupState(folder=OWN, is_writable=True, controllers=WANTED, pids=OURS)


def test_own_groups_are_found_in_each_old_tree_and_in_the_unified_one() -> None:
    assert lay_out(HYBRID_GROUPS, HYBRID_MOUNTS) == Layout(
        unified=("/sys/fs/cgroup/unified",),
        old=(("memory", "/sys/fs/cgroup/memory/jobs/a:b"), ("pids", "/sys/fs/cgroup/pids")),
    )


def test_chain_goes_from_the_own_group_up_to_the_mount() -> None:
    found = lay_out("0::/user.slice/user-1000.slice/app.scope\n", UNIFIED).unified
    assert found == (
        "/sys/fs/cgroup/user.slice/user-1000.slice/app.scope",
        "/sys/fs/cgroup/user.slice/user-1000.slice",
        "/sys/fs/cgroup/user.slice",
        "/sys/fs/cgroup",
    )


@pytest.mark.parametrize(
    ("path", "root", "folder"),
    [
        ("/docker/1", "/docker/1", "/c"),
        ("/docker/1/x", "/docker/1", "/c/x"),
        ("/docker/12", "/docker/1", None),
        ("/", "/docker/1", None),
        ("/../other", "/", None),
        ("/a", "/..", None),
        ("/a", "/", "/c/a"),
    ],
)
def test_part_of_a_tree_that_is_mounted_shows_only_what_lies_in_it(path: str, root: str, folder: str | None) -> None:
    found = lay_out(f"0::{path}\n", f"1 2 0:3 {root} /c rw - cgroup2 cgroup2 rw\n")
    assert (found.unified[0] if found.unified else None) == folder


def test_blanks_in_mount_points_are_spelled_out_and_writable_mounts_come_first() -> None:
    text = "1 2 0:3 / /ro ro,nosuid - cgroup2 cgroup2 rw\n1 2 0:3 / /a\\040b\\134c rw - cgroup2 cgroup2 rw\n"
    assert [mount.point for mount in parse_mounts(text)] == ["/a b\\c", "/ro"]
    assert lay_out("0::/x", text).unified == ("/a b\\c/x", "/a b\\c")


def test_nothing_mounted_is_no_layout() -> None:
    assert lay_out("", "") == Layout()
    assert lay_out(HYBRID_GROUPS, "") == Layout()
    assert lay_out("", HYBRID_MOUNTS) == Layout()
    assert lay_out("0::/a\n", "1 2 0:3 / relative rw - cgroup2 cgroup2 rw\n") == Layout()


WORDS = st.sampled_from(["0", ":", "::", "/", "/a", "/..", " - ", " ", "\n", "cgroup2", "cgroup", "memory", "pids", "rw",
                         "\\040", "\\000", "\\777", "\0", "é", "\udcff", "1 2 0:3 / /c rw - cgroup2 x rw\n"])  # fmt: skip
TEXTS = st.one_of(st.text(max_size=200), st.lists(WORDS, max_size=40).map("".join))


@given(TEXTS, TEXTS)
def test_any_text_gives_folders_that_lie_in_what_is_mounted_or_none(memberships: str, mounts: str) -> None:
    found = lay_out(memberships, mounts)
    points = [mount.point.rstrip("/") for mount in parse_mounts(mounts)]
    for folder in (*found.unified, *(folder for _, folder in found.old)):
        assert any(f"{folder}/".startswith(f"{point}/") for point in points)
        assert "\0" not in folder
    for path in parse_memberships(memberships).values():
        assert path.startswith("/")
    if found.unified:
        assert found.unified[-1] in points or len(found.unified) == 64
    assert len(found.unified) <= 64


def test_nearest_group_that_hands_both_on_is_taken() -> None:
    assert ready_places(chain(middle=ready(MIDDLE), top=ready(TOP))) == (
        Ready(MIDDLE, frozenset()),
        Ready(TOP, frozenset()),
    )
    assert ready_places(chain(own=ready(OWN), top=ready(TOP)))[0].folder == OWN


@pytest.mark.parametrize(
    "fields",
    [{"is_writable": False}, {"handed_on": frozenset({"memory"})}, {"handed_on": frozenset({"pids", "cpu"})}],
)
def test_group_that_cannot_be_written_or_hands_one_on_only_is_not_taken(fields: dict[str, object]) -> None:
    assert ready_places(chain(middle=ready(MIDDLE, **fields))) == ()


def test_bound_of_memory_set_for_the_daemon_is_never_left_and_one_of_processes_is_told() -> None:
    bound = GroupState(folder=OWN, bounded=frozenset({"memory"}))
    assert ready_places(chain(own=bound, middle=ready(MIDDLE))) == ()
    counted = GroupState(folder=OWN, bounded=frozenset({"pids"}))
    assert ready_places(chain(own=counted, middle=ready(MIDDLE))) == (Ready(MIDDLE, frozenset({"pids"})),)
    above = ready(MIDDLE, bounded=frozenset({"memory"}))
    assert [place.folder for place in ready_places(chain(middle=above, top=ready(TOP)))] == [MIDDLE]


def test_daemon_alone_in_its_group_steps_down() -> None:
    assert should_step_down(chain(own=ALONE), OURS)
    assert should_step_down(chain(own=replace(ALONE, pids=frozenset({10}))), OURS)


@pytest.mark.parametrize(
    "fields",
    [
        {"pids": frozenset({10, 12})},
        {"pids": frozenset({0})},
        {"is_writable": False},
        {"controllers": frozenset({"memory", "cpu"})},
        {"controllers": frozenset({"pids"})},
    ],
)
def test_daemon_does_not_step_down_where_others_are_or_it_would_not_help(fields: dict[str, object]) -> None:
    assert not should_step_down(chain(own=replace(ALONE, **fields)), OURS)


def test_daemon_does_not_step_down_where_a_place_is_ready_unless_that_leaves_a_bound() -> None:
    assert not should_step_down(chain(own=ALONE, middle=ready(MIDDLE)), OURS)
    counted = replace(ALONE, bounded=frozenset({"pids"}))
    assert should_step_down(chain(own=counted, middle=ready(MIDDLE)), OURS)
    assert not should_step_down((), OURS)


def test_reason_is_in_words() -> None:
    bound = GroupState(folder=OWN, bounded=frozenset({"memory"}), controllers=WANTED)
    told = {
        "not mounted": (),
        "cannot be written": chain(),
        "no controller for memory and pids": chain(own=GroupState(folder=OWN, is_writable=True)),
        "would leave the bound of memory": chain(own=bound, middle=ready(MIDDLE)),
        "not the daemon's alone": chain(own=replace(ALONE, pids=frozenset({10, 12}))),
    }
    for words, seen in told.items():
        assert words in why_none(seen)


def test_what_is_bounded_is_named() -> None:
    memory, pids = GroupParent("/m", frozenset({"memory"}), False), GroupParent("/p", frozenset({"pids"}), False)
    assert words_for((GroupParent("/u", WANTED, True),)) == words_for((memory, pids)) == "cgroup"
    assert (words_for((memory,)), words_for((pids,))) == ("cgroup.memory", "cgroup.pids")


def test_old_trees_are_tried_together_and_then_each(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text("8:pids:/\n4:memory:/jobs\n")
    lines = [f"1 2 0:3 / {tmp_path}/{name} rw - cgroup cgroup rw,{name}" for name in ("pids", "memory")]
    (proc / "mountinfo").write_text("\n".join(lines) + "\n")
    place = find_place(str(proc))
    assert possible_branches(place) == []
    assert f"{tmp_path}/memory/jobs and {tmp_path}/pids cannot be written" in why_no_branches(place)
    assert "Delegate=yes" in why_no_branches(place)
    for folder in (tmp_path / "memory" / "jobs", tmp_path / "pids"):
        folder.mkdir(parents=True)
        (folder / "cgroup.procs").touch()
    names = [[sorted(branch.controllers) for branch in one] for one in possible_branches(find_place(str(proc)))]
    assert names == [[["memory"], ["pids"]], [["memory"]], [["pids"]]]
    os.remove(tmp_path / "pids" / "cgroup.procs")
    assert [one[0].folder for one in possible_branches(find_place(str(proc)))] == [f"{tmp_path}/memory/jobs"]


def test_lists_that_cannot_be_read_mean_no_place(tmp_path: Path) -> None:
    place = find_place(str(tmp_path / "none"))
    assert possible_branches(place) == []
    assert "not mounted" in why_no_branches(place)


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        (NoGroups("nobody may"), "bwrap+seccomp, by /b/bwrap; no control groups: nobody may"),
        (Groups((GroupParent("/u", WANTED, True),), "palyra-1-2-3"), "bwrap+seccomp+cgroup, by /b/bwrap"),
    ],
)
def test_doctor_says_whether_there_are_groups_or_why_not(
    monkeypatch: pytest.MonkeyPatch, groups: Groups | NoGroups, words: str
) -> None:
    found = Sandbox(program="/b/bwrap", options=(), filter=b"", name="bwrap+seccomp", groups=groups)
    monkeypatch.setattr(sandboxes, "find_sandbox", lambda: found)
    assert try_sandbox() == (True, words)


def test_daemon_makes_room_before_it_looks_for_groups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    steps: list[str] = []
    monkeypatch.setattr(groups_find, "step_down", lambda: steps.append("step down"))

    def find() -> NoSandbox:
        steps.append("find")
        return NoSandbox("none")

    monkeypatch.setattr("palyra.adapters.runtimes.shell.tools.find_sandbox", find)
    dependencies = SimpleNamespace(
        provenance=SimpleNamespace(taints_workspace=never_tainted), home=Home(tmp_path), drafts=make_setup().drafts
    )
    source = _shell(
        cast(ToolDependencies, dependencies),
        make_setup().processes,
        cast(SandboxProxy, SimpleNamespace(path=tmp_path / "way")),
    )
    source.missing()
    assert steps == ["step down", "find"]


def test_in_v1_the_joining_shell_moves_its_one_thread_and_in_v2_its_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(groups_module, "_settings", fill)
    parents = [GroupParent(str(tmp_path / name), frozenset(), name == "v2") for name in ("v1", "v2")]
    for parent in parents:
        os.mkdir(parent.folder)
    group = ControlGroup(tuple(parents), "palyra-x")
    group.create(CommandLimits())
    opened = [os.readlink(f"/proc/self/fd/{entry}") for entry in group.entries]
    assert opened == [str(tmp_path / "v1/palyra-x/tasks"), str(tmp_path / "v2/palyra-x/cgroup.procs")]
    group.shut()
    assert group.entries == ()


def fill(_branch: GroupParent, folder: str, _limits: CommandLimits) -> list[tuple[str, str]]:
    """Makes the files of a group, which the kernel would make, and sets nothing."""
    for name in ("tasks", "cgroup.procs"):
        Path(folder, name).touch()
    return []
