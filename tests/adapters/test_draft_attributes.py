"""A draft never changes attributes: of users, access lists, capabilities, the mark of fs.patch; and says so."""

import asyncio
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from palyra.adapters.drafts import apply as applying
from palyra.adapters.drafts import stage as staging
from palyra.adapters.drafts.attributes import ACCESS, CAPABILITY, DEFAULT, read_attributes
from palyra.adapters.drafts.store import FileDrafts
from palyra.adapters.drafts.tree import remove_tree
from palyra.adapters.files.partial import MARK
from palyra.adapters.tools.fs_patch import FsPatch
from palyra.core.drafts.changes import ChangeSet, describe_left_out
from palyra.core.drafts.plan import join, reverse
from palyra.core.events.tool import Outcome
from palyra.core.ids import EffectId
from palyra.ports.drafts import AppliedDraft
from tests.adapters.test_drafts import Desk, Killed, killing
from tests.runtimes.shells import NOBODY, USERS, attempt, make_context, open_house

pytestmark = pytest.mark.anyio
ANYBODY = 0xFFFFFFFF
OWNER, NAMED, GROUP, MASK, OTHERS = 0x01, 0x02, 0x04, 0x10, 0x20
CAPABLE = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)


def access_list(named: int, mask: int = 7, user: int = 4711) -> bytes:
    """An access list that lets one more user in."""
    entries = [
        (OWNER, 7, ANYBODY),
        (NAMED, named, user),
        (GROUP, 4, ANYBODY),
        (MASK, mask, ANYBODY),
        (OTHERS, 0, ANYBODY),
    ]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


OTHER_LIST = access_list(7, user=1000)  # The only user that a command knows.


def named_entries(path: Path) -> list[tuple[int, int, int]]:
    entries = struct.iter_unpack("<HHI", os.getxattr(path, ACCESS)[4:])
    return [(tag, allowed, user) for tag, allowed, user in entries if tag == NAMED]


def python(lines: str) -> str:
    return f"python3 - <<'END'\nimport os\n{lines}\nEND\n"


def gives(path: str, name: str = "user.evil", value: bytes = b"1") -> str:
    return python(f"os.setxattr({path!r}, {name!r}, {value!r})")


def named(found: ChangeSet) -> set[str]:
    return {each.path for each in found.left_out if "attributes or access list" in each.reason}


@pytest.fixture(params=["memory", "disk"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    folder = Path(mkdtemp(dir="/dev/shm" if request.param == "memory" else tmp_path))
    try:
        os.setxattr(folder, DEFAULT, access_list(7))
        os.removexattr(folder, DEFAULT)
        os.setxattr(folder, "user.palyra", b"1")
    except OSError:
        pytest.skip("this file system has no attributes")
    else:
        yield Desk(folder)
    finally:
        remove_tree(str(folder))


async def applied(desk: Desk, command: str) -> ChangeSet:
    context, found = await desk.run(command)
    assert isinstance(await desk.apply(context.effect_id, found), AppliedDraft)
    return found


async def test_what_a_command_gives_is_named_and_not_applied(desk: Desk) -> None:
    os.setxattr(desk.root / "b", "user.mine", b"1")
    (desk.root / "e").mkdir()
    found = await applied(
        desk,
        f"set -e; echo 1 >> a; echo 2 > new; mkdir sub; {gives('a')}{gives('new', ACCESS, OTHER_LIST)}{gives('sub')}"
        f"{gives('b', 'user.mine', b'2')}{gives('c', ACCESS, OTHER_LIST)}{gives('d')}{gives('e', DEFAULT, OTHER_LIST)}"
        f"{gives('.')}",
    )
    assert named(found) == {"a", "new", "sub/", "b", "c", "d/", "e/", "."}
    assert {change.path for change in found.changes if change.path != "c"} == {"a", "new", "sub/"}
    for name in ("a", "new", "sub", "c", "d", "e", "."):
        assert read_attributes(str(desk.root / name)) == {}, name
    assert (desk.root / "c").stat().st_mode & 0o777 == 0o740, "the list let one user in, not the whole group"
    assert os.getxattr(desk.root / "b", "user.mine") == b"1"
    assert (desk.root / "a").read_text() == "old a\n1\n"
    told = describe_left_out(found.left_out, found.left_out_count)
    assert "not applied: a (its attributes or access list; the file itself is applied without)" in told


async def test_attributes_survive_every_way_to_change_a_file(desk: Desk) -> None:
    for name in ("a", "b", "c", "d/x"):
        os.setxattr(desk.root / name, "user.mine", name.encode())
        os.setxattr(desk.root / name, ACCESS, access_list(6))
    found = await applied(desk, "sed -i s/old/new/ a; echo 1 >> b; chmod 600 c; echo 3 > t && mv t d/x; echo 4 > d/y")
    assert len(found.changes) == 5
    for name in ("a", "b", "c", "d/x"):
        assert os.getxattr(desk.root / name, "user.mine") == name.encode()
        assert named_entries(desk.root / name) == [(NAMED, 6, 4711)]
    assert (desk.root / "c").stat().st_mode & 0o777 == 0o600
    assert (desk.root / "a").stat().st_mode & 0o777 == 0o770
    assert read_attributes(str(desk.root / "d/y")) == {}


async def test_a_command_that_leaves_attributes_alone_hears_nothing_of_them(desk: Desk) -> None:
    os.setxattr(desk.root / "a", "user.mine", b"1")
    os.setxattr(desk.root / "a", ACCESS, access_list(6))
    os.setxattr(desk.root / "b", MARK, b"x")
    os.setxattr(desk.root, "user.mine", b"1")
    os.setxattr(desk.root, DEFAULT, access_list(7))
    os.setxattr(desk.root / "d", DEFAULT, access_list(5))
    found = await applied(
        desk,
        "echo 1 >> a; chmod 640 a; sed -i s/old/new/ b; echo 1 > new; mkdir s; echo 2 > s/t; echo 3 > d/new; mv c d",
    )
    assert found.left_out == ()


async def test_a_new_file_gets_what_its_folder_hands_on(desk: Desk) -> None:
    """The same as without a draft."""
    os.setxattr(desk.root, DEFAULT, access_list(7))
    command = (
        "umask 022; echo 1 > {0}new; mkdir {0}s; echo 2 > {0}s/t; mkdir -p {0}s/u; echo 3 > {0}s/u/v; chmod 600 {0}s/t"
    )
    await applied(desk, command.format(""))
    os.setxattr(desk.root.parent, DEFAULT, access_list(7))
    (desk.root.parent / "real").mkdir()
    done = await asyncio.create_subprocess_shell(command.format("real/"), cwd=desk.root.parent)
    assert await done.wait() == 0
    for name in ("new", "s", "s/t", "s/u", "s/u/v"):
        drafted, real = desk.root / name, desk.root.parent / "real" / name
        assert read_attributes(str(drafted)) == read_attributes(str(real)), name
        assert drafted.stat().st_mode == real.stat().st_mode, name


async def test_files_of_one_content_keep_each_its_own(desk: Desk) -> None:
    """A command that links two files leaves one file of two names, which has its attributes once."""
    os.setxattr(desk.root / "a", "user.mine", b"a")
    os.setxattr(desk.root / "b", "user.mine", b"b")
    await applied(desk, "echo 1 >> a; ln -f a b; ln a new; ln a c -f")
    assert os.getxattr(desk.root / "a", "user.mine") == b"a"
    assert os.getxattr(desk.root / "b", "user.mine") == b"b"
    assert read_attributes(str(desk.root / "new")) == read_attributes(str(desk.root / "c")) == {}
    assert (desk.root / "new").read_text() == (desk.root / "b").read_text() == "old a\n1\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives capabilities")
async def test_a_capability_is_never_applied(desk: Desk) -> None:
    context, found = await desk.run("echo 1 >> a; echo 2 > new; cp /usr/bin/true tool")
    (upper,) = desk.drafts.home.glob("*/0/upper")
    for name in ("a", "new", "tool"):
        os.setxattr(upper / name, CAPABILITY, CAPABLE)
    assert isinstance(await desk.apply(context.effect_id, found), AppliedDraft)
    for name in ("a", "new", "tool"):
        assert CAPABILITY not in os.listxattr(desk.root / name)


async def test_a_mark_of_a_patch_goes_with_its_content(desk: Desk) -> None:
    """The patch that is performed again after a kill takes a marked file for its own work."""
    patch = "--- a/a\n+++ b/a\n@@ -1 +1,2 @@\n old a\n+more\n"
    context = make_context(desk.root)
    assert (await FsPatch().execute({"patch": patch}, context)).outcome is Outcome.OK
    assert os.getxattr(desk.root / "a", MARK) == context.effect_id.encode()
    found = await applied(desk, f"chmod 600 a; {gives('b', MARK, context.effect_id.encode())}echo 1 >> b")
    assert os.getxattr(desk.root / "a", MARK) == context.effect_id.encode(), "it is still that content"
    assert MARK not in os.listxattr(desk.root / "b")
    assert named(found) == {"b"}
    assert named(await applied(desk, "echo old a > a")) == set()
    assert MARK not in os.listxattr(desk.root / "a")
    again = await FsPatch().execute({"patch": patch}, context)
    assert again.outcome is Outcome.OK
    assert (desk.root / "a").read_text() == "old a\nmore\n", "the content of the draft was not taken for the patch's"


async def test_a_workspace_is_not_emptied_in_secret_by_an_attribute(desk: Desk) -> None:
    _, found = await desk.run(f"{gives('.')}rm -r ./*")
    assert found.emptied_roots == (str(desk.root),)


@pytest.mark.parametrize("step", ["stage_change", "exchange", "rename_new"])
@pytest.mark.parametrize("is_copied", [False, True])
async def test_killed_while_staging_it_ends_alike(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, step: str, is_copied: bool
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    os.setxattr(desk.root / "a", "user.mine", b"a")
    os.setxattr(desk.root, DEFAULT, access_list(7))
    context, found = await desk.run(f"echo 1 >> a; echo 2 > new; {gives('a')}{gives('new')}")
    killed, _ = killing(applying, step, 3 if step == "stage_change" else 2)
    with monkeypatch.context() as patch:
        if is_copied:
            patch.setattr(os, "link", refuse)
        patch.setattr(applying, step, killed)
        patch.setattr(applying.Applier, "_go_back", lambda self: None)
        with pytest.raises(Killed):
            await desk.apply(context.effect_id, found)
    assert isinstance(await FileDrafts(desk.drafts.home).apply(context.effect_id, found.changes), AppliedDraft)
    assert read_attributes(str(desk.root / "a")) == {"user.mine": b"a"}
    assert read_attributes(str(desk.root / "new")).keys() == {ACCESS}
    assert not list(desk.root.glob(".palyra*"))


async def test_a_killed_half_of_staging_is_finished(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kill comes when the file is linked and still has what the command gave it."""
    os.setxattr(desk.root / "a", "user.mine", b"a")
    context, found = await desk.run(f"echo 1 >> a; {gives('a')}")
    killed, _ = killing(staging, "set_attributes", 2)
    with monkeypatch.context() as patch:
        patch.setattr(staging, "set_attributes", killed)
        patch.setattr(applying.Applier, "_go_back", lambda self: None)
        with pytest.raises(Killed):
            await desk.apply(context.effect_id, found)
    assert isinstance(await FileDrafts(desk.drafts.home).apply(context.effect_id, found.changes), AppliedDraft)
    assert read_attributes(str(desk.root / "a")) == {"user.mine": b"a"}


async def test_a_disk_without_attributes_has_drafts(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(95, "Operation not supported")

    context, found = await desk.run("echo 1 >> a; echo 2 > new; rm b; mkdir e; echo 3 > e/f")
    for name in ("listxattr", "getxattr", "setxattr", "removexattr"):
        monkeypatch.setattr(os, name, refuse)
    assert isinstance(await desk.apply(context.effect_id, found), AppliedDraft)
    assert (desk.root / "new").read_text() == "2\n"


async def test_what_is_put_back_has_the_attributes_of_what_it_replaces(desk: Desk) -> None:
    os.setxattr(desk.root / "a", "user.mine", b"a")
    context, found = await desk.run("sed -i s/old/new/ a")
    done = await desk.apply(context.effect_id, found)
    assert isinstance(done, AppliedDraft)
    assert done.undo is not None
    undo_id = EffectId("f" * 64)
    back = await desk.drafts.unpack(undo_id, tuple(reverse(change) for change in join(found.changes)), (done.undo,))
    assert isinstance(await desk.apply(undo_id, back), AppliedDraft)
    assert (desk.root / "a").read_text() == "old a\n"
    assert read_attributes(str(desk.root / "a")) == {"user.mine": b"a"}


@pytest.mark.parametrize("user", USERS)
def test_an_ordinary_user_has_the_same_wall(user: str) -> None:
    with open_house(user) as house:
        for name in ("a", "b"):
            (house.workspace / name).write_text("old\n")
            os.setxattr(house.workspace / name, "user.mine", b"1")
            os.setxattr(house.workspace / name, ACCESS, access_list(6))
            if user == "nobody":
                os.chown(house.workspace / name, NOBODY, NOBODY)
        os.setxattr(house.workspace, DEFAULT, access_list(7))
        command = f"sed -i s/old/new/ a; echo 1 >> b; echo 2 > new; mkdir s; echo 3 > s/t; {gives('new')}{gives('b')}"
        done = attempt(user, command, house)
        assert done.outcome == "ok", done
        assert set(done.left_out) - {"a"} == {"new", "b"}
        for name in ("a", "b"):
            assert read_attributes(str(house.workspace / name)).keys() == {"user.mine", ACCESS}
            assert named_entries(house.workspace / name) == [(NAMED, 6, 4711)]
        for name in ("new", "s/t"):
            assert read_attributes(str(house.workspace / name)).keys() == {ACCESS}
            assert named_entries(house.workspace / name) == [(NAMED, 7, 4711)]
