"""Objects of git are what their names say, or they are not sound."""

import hashlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.drafts.git import (
    LooseCheck,
    check_object,
    describe_write,
    hidden,
    is_made_anew,
    is_ordered_tree,
    large_file_sha256,
    linked_names,
    loose_id,
)

ROOM = 1 << 24


def stored(kind: str, body: bytes) -> bytes:
    return f"{kind} {len(body)}".encode() + b"\0" + body


def name_of(raw: bytes, digest: str = "sha1") -> str:
    return hashlib.new(digest, raw).hexdigest()


def is_sound(object_id: str, packed: bytes, piece_bytes: int, room: int = ROOM) -> bool:
    """Checks it as a small file and in pieces, which must agree."""
    check = LooseCheck(object_id, room)
    for start in range(0, len(packed), piece_bytes):
        check.update(packed[start : start + piece_bytes])
    whole, _ = check_object(object_id, packed, room)
    assert check.is_sound() == whole
    return whole


@given(st.binary(max_size=3000), st.sampled_from(["sha1", "sha256"]), st.integers(1, 500))
def test_an_object_with_its_own_name_is_sound(body: bytes, digest: str, piece_bytes: int) -> None:
    raw = stored("blob", body)
    assert is_sound(name_of(raw, digest), zlib.compress(raw), piece_bytes)


@given(st.binary(max_size=300), st.binary(min_size=1, max_size=300), st.integers(0, 1000), st.integers(1, 50))
def test_a_changed_object_is_not_sound(body: bytes, change: bytes, place: int, piece_bytes: int) -> None:
    raw = stored("blob", body)
    packed = zlib.compress(raw)
    at = place % (len(packed) + 1)
    changed = packed[:at] + change + packed[at:]
    assert not is_sound(name_of(raw), changed, piece_bytes)
    assert not is_sound(name_of(raw), packed[: at % len(packed)], piece_bytes)


@given(st.binary(max_size=2000), st.integers(1, 100))
def test_any_bytes_are_checked_without_an_error(packed: bytes, piece_bytes: int) -> None:
    assert not is_sound("0" * 40, packed, piece_bytes)
    assert not is_sound("0" * 40, zlib.compress(packed), piece_bytes)


@pytest.mark.parametrize(
    "raw", [b"blob 3\0ab", b"blob 03\0abc", b"blob +3\0abc", b"blobs 3\0abc", b"blob 3", b"", b"blob -1\0"]
)
def test_a_header_that_lies_is_not_sound(raw: bytes) -> None:
    assert not is_sound(name_of(raw), zlib.compress(raw), 7)


def test_an_object_that_is_too_long_is_not_sound() -> None:
    raw = stored("blob", bytes(1 << 20))
    assert is_sound(name_of(raw), zlib.compress(raw), 99)
    assert not is_sound(name_of(raw), zlib.compress(raw), 99, room=1 << 19)


def entry(name: bytes, mode: bytes = b"100644") -> bytes:
    return mode + b" " + name + b"\0" + bytes(20)


FOLDER = b"40000"
TREES = {
    entry(b"a") + entry(b"b"): True,
    entry(b"a.c") + entry(b"a", FOLDER) + entry(b"a0"): True,
    b"": True,
    entry(b"b") + entry(b"a"): False,
    entry(b"a") + entry(b"a"): False,
    entry(b"a") + entry(b"a.c") + entry(b"a", FOLDER): False,
    entry(b"a", FOLDER) + entry(b"a.c"): False,
    entry(b"a/b"): False,
    entry(b""): False,
    entry(b"a")[:-1]: False,
    entry(b"a") + b"x": False,
    entry(b"a", b"0100644"): False,
}


@pytest.mark.parametrize("body", TREES)
def test_a_tree_names_each_file_once_and_in_order(body: bytes) -> None:
    assert is_ordered_tree(body, 20) is TREES[body]
    raw = stored("tree", body)
    assert is_sound(name_of(raw), zlib.compress(raw), 3) is TREES[body]


def test_the_beginning_of_a_tree_cannot_be_hidden_in_empty_blocks() -> None:
    """An object may begin with any number of blocks that hold nothing, or one byte."""
    raw = stored("tree", entry(b"b") + entry(b"a"))
    packer = zlib.compressobj()
    packed = packer.compress(raw[:3]) + packer.flush(zlib.Z_FULL_FLUSH)
    packed += b"".join(packer.flush(zlib.Z_FULL_FLUSH) for _ in range(100)) + packer.compress(raw[3:]) + packer.flush()
    assert not is_sound(name_of(raw), packed, 1)


def test_paths_of_objects_are_known() -> None:
    assert loose_id(f".git/objects/ab/{'c' * 38}") == "ab" + "c" * 38
    assert loose_id(f"bare/objects/ab/{'c' * 62}") == "ab" + "c" * 62
    assert loose_id(f"objects/ab/{'c' * 39}") is None
    assert large_file_sha256(f".git/lfs/objects/ab/cd/{'e' * 64}") == "e" * 64
    assert is_made_anew(".git/objects/info/commit-graph")
    assert is_made_anew(".git/objects/info/commit-graphs/graph-1.graph")
    assert is_made_anew("x/objects/pack/multi-pack-index")
    assert is_made_anew(".git/objects/pack/pack-1.rev")
    assert not is_made_anew(".git/objects/pack/pack-1.idx")
    assert not is_made_anew("src/commit-graph")


def test_what_is_hidden_is_judged_as_settings_of_git_too() -> None:
    write = hidden("/w", "src/a.py", ".git/", "a flag")
    assert linked_names([write, write]) == {("/w", "src/a.py"): (".git/config",)}
    assert describe_write(write, "src/a\x1b.py") == "src/a\\x1b.py (in git: a flag)"
