"""Sets of files: what was put in is always found, other things hardly ever, and the room is never exceeded."""

from palyra.core.drafts.judge import LISTED_MAX, TAINTED_BYTES_MAX, name_written
from palyra.core.events.draft import ChangeKind, FileChange
from palyra.core.events.tool import FileBytes
from palyra.core.file_sets import folders_above, may_hold, name_bytes, pack_files, unpack_members

TAINT = ("http:a",)


def files(count: int, root: str = "/w") -> list[FileBytes]:
    return [
        FileBytes(root=root, path=f"build/{number % 97}/{number}.o", sha256=f"{number:064x}", taint=TAINT)
        for number in range(count)
    ]


def changes(count: int) -> tuple[FileChange, ...]:
    return tuple(
        FileChange(root=file.root, path=file.path, kind=ChangeKind.CREATED, after_sha256=file.sha256)
        for file in files(count)
    )


def test_every_file_its_path_and_its_folders_are_found() -> None:
    (found,) = pack_files(files(5000), TAINTED_BYTES_MAX)
    bits = unpack_members(found.members)
    for file in files(5000):
        path = f"/w/{file.path}"
        assert may_hold(bits, name_bytes(path, file.sha256))
        assert may_hold(bits, path)
    assert all(may_hold(bits, f"/w/build/{number}/") for number in range(97))
    assert may_hold(bits, "/w/build/")
    assert (found.root, found.files_count, found.taint) == ("/w", 5000, TAINT)


def test_other_bytes_and_other_paths_are_hardly_ever_found() -> None:
    (found,) = pack_files(files(5000), TAINTED_BYTES_MAX)
    bits = unpack_members(found.members)
    others = [name_bytes(f"/w/{file.path}", "ff" * 32) for file in files(5000)]
    others += [f"/w/src/{number}.c" for number in range(5000)]
    assert sum(may_hold(bits, name) for name in others) < len(others) / 100


def test_a_crowded_set_keeps_its_room_and_still_finds_everything() -> None:
    (found,) = pack_files(files(20_000), 4000)
    bits = unpack_members(found.members)
    assert len(found.members) <= 4000
    assert all(may_hold(bits, name_bytes(f"/w/{file.path}", file.sha256)) for file in files(20_000))


def test_each_root_has_its_own_set_and_they_share_the_room() -> None:
    found = pack_files([*files(30_000), *files(30_000, "/v")], TAINTED_BYTES_MAX)
    assert [each.root for each in found] == ["/w", "/v"]
    assert sum(len(each.members) for each in found) <= TAINTED_BYTES_MAX


def test_folders_above_a_path() -> None:
    assert list(folders_above("/w/a/b.md")) == ["/w/a/", "/w/", "/"]
    assert list(folders_above("/w/a/")) == ["/w/", "/"]
    assert list(folders_above("/")) == []


def test_few_files_are_listed_and_many_become_a_set() -> None:
    few, many = name_written(changes(LISTED_MAX), TAINT), name_written(changes(LISTED_MAX + 1), TAINT)
    assert (len(few.files), few.sets) == (LISTED_MAX, ())
    assert (many.files, [each.files_count for each in many.sets]) == ((), [LISTED_MAX + 1])
    assert name_written(changes(LISTED_MAX + 1), ()) == name_written((), TAINT)


def test_files_with_long_names_or_many_sources_become_a_set_too() -> None:
    named = name_written(changes(40), tuple(f"http:{number}.{'x' * 100}" for number in range(64)))
    assert [each.files_count for each in named.sets] == [40]
