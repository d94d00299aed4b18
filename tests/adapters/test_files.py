"""Private files: whole or not at all whatever kills the writer, never through a link, one writer at a time."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from palyra.adapters.files import regular
from palyra.adapters.files.durable import PUBLIC, ensure_folder, replace_whole, write_new
from palyra.adapters.files.private import NO_OTHER_WRITER, FileKind, ParsedFile, PrivateFile
from palyra.core.errors import Corrupt, PalyraError, Unavailable

ROOT = Path(__file__).parents[2]
KIND = FileKind(noun="thing", remedy="mend it", bytes_max=100)
SHARED = FileKind(noun="thing", remedy="mend it", bytes_max=100, forbidden=NO_OTHER_WRITER)


@pytest.fixture
def file(tmp_path: Path) -> PrivateFile:
    return PrivateFile(tmp_path / "home" / "thing", KIND)


def put(file: PrivateFile, data: bytes) -> None:
    with file.locked() as replace:
        replace(data)


def data_of(file: PrivateFile) -> bytes | None:
    found = file.read()
    return None if found is None else found.data


def code_of(act: Callable[[], object]) -> str:
    with pytest.raises(PalyraError) as caught:
        act()
    return caught.value.code


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# Killing writers, and filling the disk


def left_by(how: str, act: str, directory: Path) -> list[dict[str, object]]:
    run = subprocess.run(
        [sys.executable, "-m", "tests.support.file_kills", how, act, str(directory)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


@pytest.mark.parametrize("how", ["kill", "full"])
@pytest.mark.parametrize(("act", "old"), [("create", "none"), ("first", "none"), ("replace", "old")])
def test_struck_at_any_step_the_file_is_as_before_or_as_after(tmp_path: Path, how: str, act: str, old: str) -> None:
    points = left_by(how, act, tmp_path)
    assert [point["was_stopped"] for point in points] == [True] * (len(points) - 1) + [False]
    assert len(points) > 5
    found = [point["holds"] for point in points]
    changed_at = found.index("new")
    assert found == [old] * changed_at + ["new"] * (len(points) - changed_at)
    for point in points:
        assert point["then_holds"] == "new"
        assert isinstance(point["then_files"], list)
        assert [name for name in point["then_files"] if ".partial-" in name] == [], "what a crash left is cleared away"


@pytest.mark.parametrize("act", ["create", "first", "replace"])
def test_full_disk_leaves_no_partial_file(tmp_path: Path, act: str) -> None:
    for point in left_by("full", act, tmp_path):
        assert isinstance(point["files"], list)
        assert set(point["files"]) <= {"thing", "thing.lock"}


# Writing


def test_file_has_exactly_its_mode_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        replace_whole(tmp_path / "public", b"x", PUBLIC)
        os.umask(0)
        replace_whole(tmp_path / "private", b"x")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("public", "private")]
    assert modes == [0o644, 0o600]


def test_new_file_never_writes_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "link", b"x")
    assert not (tmp_path / "elsewhere").exists()


def test_replacing_a_link_leaves_what_it_led_to(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"theirs")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    replace_whole(tmp_path / "link", b"ours")
    assert (tmp_path / "elsewhere").read_bytes() == b"theirs"
    assert not (tmp_path / "link").is_symlink()


def test_folders_are_made_for_us_alone(tmp_path: Path) -> None:
    ensure_folder(tmp_path / "a" / "b")
    ensure_folder(tmp_path / "a" / "b")
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "a", tmp_path / "a" / "b")} == {0o700}


def test_all_who_create_at_once_agree(file: PrivateFile) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda number: file.create(b"%d" % number), range(32)))
    assert made.count(True) == 1
    assert data_of(file) == b"%d" % made.index(True)
    assert names(file.path.parent) == ["thing"]


def test_what_could_not_be_read_again_is_not_written(file: PrivateFile) -> None:
    put(file, b"x" * 100)
    assert code_of(lambda: put(file, b"y" * 101)) == "thing_full"
    assert data_of(file) == b"x" * 100


def test_writers_at_once_lose_nothing(file: PrivateFile) -> None:
    def count_up(_: int) -> None:
        with file.locked() as replace:
            replace(b"%d" % (int(data_of(file) or b"0") + 1))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count_up, range(50)))
    assert data_of(file) == b"50"


def test_lock_is_not_waited_for_without_end(file: PrivateFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palyra.adapters.files.lock.LOCK_WAIT_S", 0.0)
    with file.locked() as replace:
        assert code_of(lambda: put(file, b"x")) == "thing_busy"
        replace(b"y")
    put(file, b"z")
    assert data_of(file) == b"z"


def test_lock_that_is_a_link_is_refused(file: PrivateFile, tmp_path: Path) -> None:
    file.create(b"x")
    file.path.with_name("thing.lock").symlink_to(tmp_path / "elsewhere")
    assert code_of(lambda: put(file, b"y")) == "thing_unwritable"
    assert not (tmp_path / "elsewhere").exists()


# Reading


def test_nothing_is_read_where_there_is_none(file: PrivateFile) -> None:
    assert (file.read(), file.stamp()) == (None, None)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o777])
def test_secret_that_others_can_reach_is_refused(file: PrivateFile, mode: int) -> None:
    file.create(b"x")
    file.path.chmod(mode)
    with pytest.raises(Unavailable) as caught:
        file.read()
    assert caught.value.code == "thing_exposed"
    assert f"chmod 600 {file.path}" in caught.value.message


@pytest.mark.parametrize(("mode", "is_refused"), [(0o644, False), (0o664, True), (0o646, True)])
def test_what_is_no_secret_is_refused_only_if_others_write_it(tmp_path: Path, mode: int, is_refused: bool) -> None:
    file = PrivateFile(tmp_path / "thing", SHARED)
    file.create(b"x")
    file.path.chmod(mode)
    if is_refused:
        assert code_of(file.read) == "thing_exposed"
    else:
        assert data_of(file) == b"x"


@pytest.mark.parametrize(
    "make",
    [os.mkdir, os.mkfifo, lambda path: path.symlink_to("real"), lambda path: path.write_bytes(b"x" * 101)],
    ids=["folder", "pipe", "link", "large"],
)
def test_what_is_no_small_file_of_its_own_is_refused_at_once(tmp_path: Path, make: Callable[[Path], None]) -> None:
    (tmp_path / "real").touch(0o600)
    make(tmp_path / "thing")
    with pytest.raises(Corrupt) as caught:
        PrivateFile(tmp_path / "thing", KIND).read()
    assert caught.value.code == "thing_damaged"
    assert caught.value.message.endswith("; mend it")


def test_place_that_cannot_be_reached_is_said(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    file = PrivateFile(tmp_path / "home" / "thing", KIND)
    assert {code_of(file.read), code_of(file.stamp)} == {"thing_unreadable"}
    assert {code_of(lambda: file.create(b"x")), code_of(lambda: put(file, b"x"))} == {"thing_unwritable"}


# What a file says now


def test_parsed_file_is_read_once_until_it_changes(file: PrivateFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regular, "_SETTLED_NS", -(10**15))  # As if much time had passed.
    reads: list[bytes | None] = []

    def parse(data: bytes | None) -> bytes | None:
        reads.append(data)
        return data

    parsed = ParsedFile(file, parse)
    assert parsed.now() is None
    file.create(b"one")
    assert [parsed.now() for _ in range(3)] == [b"one"] * 3
    put(file, b"two")
    assert parsed.now() == b"two"
    file.path.unlink()
    assert parsed.now() is None
    assert reads == [None, b"one", b"two", None]


def test_fresh_file_is_read_every_time(file: PrivateFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two changes within one tick of the file system's clock may leave the same stamp."""
    parsed = ParsedFile(file, lambda data: data)
    file.create(b"one")
    same = file.stamp()
    monkeypatch.setattr(regular, "_stamp", lambda found: same)
    assert parsed.now() == b"one"
    put(file, b"two")
    assert parsed.now() == b"two"


def test_file_that_became_unreadable_gives_out_nothing_older(
    file: PrivateFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regular, "_SETTLED_NS", -(10**15))
    parsed = ParsedFile(file, lambda data: data)
    file.create(b"one")
    assert parsed.now() == b"one"
    file.path.chmod(0o644)
    assert {code_of(parsed.now) for _ in range(2)} == {"thing_exposed"}
    file.path.chmod(0o600)
    assert parsed.now() == b"one"
