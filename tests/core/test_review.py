"""What a review shows is told by name and content: nothing that it does not know is shown."""

import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.core.drafts.changes import place_of
from palyra.core.drafts.known_formats import is_known_format
from palyra.core.drafts.review import (
    COMPARED_BYTES_MAX,
    Unseen,
    hold_back,
    is_output,
    pack_places,
    read_bytes_max,
    unpack_places,
    unseen_name,
    unseen_reason,
)
from palyra.core.events.draft import ChangeKind, FileChange
from tests.support.examples import examples
from tests.support.file_types import names_of_file_types


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


HEAD = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
PNG = b"\x89PNG\r\n\x1a\n" + HEAD + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")
GIF = b"GIF89a\1\0\1\0\x80\0\0" + bytes(6) + b",\0\0\0\0\1\0\1\0\0\2\2D\1\0;"
JPEG = b"\xff\xd8\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0\xff\xda\0\x08\1\1\0\0\x3f\0\x37\xff\xd9"
WEBP = b"RIFF" + struct.pack("<I", 16) + b"WEBPVP8L" + struct.pack("<I", 4) + b"\x2f\0\0\0"
PDF = b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog >>\nendobj\nxref\n0 1\ntrailer\n<<>>\nstartxref\n9\n%%EOF\n"
FORMATS = {"a.png": PNG, "a.gif": GIF, "a.jpg": JPEG, "a.webp": WEBP, "a.pdf": PDF}
ARCHIVE = b"PK\x03\x04" + bytes(30) + b"PK\x05\x06" + bytes(18)


def test_there_are_more_names_than_anybody_lists() -> None:
    assert len(names_of_file_types()) > 900


@pytest.mark.parametrize("folder", ["", "src/", "a/b c/"])
@pytest.mark.parametrize(
    "body",
    [b"\x00\x01\x02", b"\xa7\x0d\x0d\x0a" + bytes(60), b"\x7fELF" + bytes(99), ARCHIVE, b"\xff\xfe\xfd", b"x = 1\xe2\x80\xae\n",
     b"a\x1b[2Kb\n", b"a\rb\n", b"x" * 6000, b"a\xe2\x80\x8bb"],
)  # fmt: skip
def test_no_name_of_a_file_type_makes_unprintable_content_seen(folder: str, body: bytes) -> None:
    assert [name for name in names_of_file_types() if unseen_reason(f"{folder}{name}", body) is None] == []


def test_plain_text_is_seen_whatever_its_type() -> None:
    hidden = [
        name
        for name in names_of_file_types()
        if not name.startswith("__") and unseen_reason(name, "x = 'grün' # 你好 ✓ 👩‍💻\n".encode()) is not None
    ]
    assert hidden == []


@pytest.mark.parametrize("name", FORMATS)
def test_an_image_or_a_document_is_known_by_its_structure_and_its_name_together(name: str) -> None:
    body = FORMATS[name]
    assert unseen_reason(name, body) is None
    assert unseen_reason(f"x/{name.upper()}", body) is None
    for other in FORMATS:
        assert (unseen_reason(other, body) is None) == (other == name or body is PDF), "a PDF of text is text as well"
    for worse in (body + ARCHIVE, b"#!/bin/sh\n\x00" + body, body + b"\x00evil", body[: len(body) // 2] + b"\x00"):
        assert unseen_reason(name, worse) is not None
    assert unseen_reason("conftest.pyc", body + b"\x00") is Unseen.BINARY


@pytest.mark.parametrize(
    "active", [b"/JavaScript (x)", b"/OpenAction << /S /Launch >>", b"/J#61vaScript", b"/EmbeddedFile"]
)
def test_a_document_that_a_viewer_would_run_is_not_known(active: bytes) -> None:
    assert not is_known_format("a.pdf", PDF.replace(b"/Catalog", b"/Catalog " + active))


@given(st.sampled_from(sorted(FORMATS)), st.binary(max_size=200), st.integers(0, 400))
@settings(max_examples=examples(300))
def test_whatever_bytes_come_the_formats_answer(name: str, noise: bytes, place: int) -> None:
    body = FORMATS[name]
    for each in (noise, body[:place] + noise + body[place:], body[:place] + noise):
        unseen_reason(name, each)
    trailing = body + b"\x00" + noise
    assert not is_known_format(name, trailing)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("node_modules/a/index.js", Unseen.MODULES),
        ("a/.venv/lib/x.py", Unseen.MODULES),
        ("x.egg-info/entry_points.txt", Unseen.MODULES),
        ("a/__pycache__/b.py", Unseen.CACHE),
        (".mypy_cache/3.11/a.json", Unseen.CACHE),
        ("src/a.py", None),
        ("src/conf\u200btest.py", Unseen.UNPRINTABLE),
        (".git/objects/ab/cd", None),
    ],
)
def test_names_of_tools_own_folders_are_unseen(path: str, reason: Unseen | None) -> None:
    assert unseen_name(path) is reason


def test_size_counts_and_without_git_less_is_shown() -> None:
    text = b"word\n" * (COMPARED_BYTES_MAX // 5 + 1)
    assert unseen_reason("a.txt", text) is None
    assert unseen_reason("a.txt", text, has_git=False) is Unseen.LARGE
    assert unseen_reason("a.txt", b"word\n", 10 << 30) is Unseen.LARGE
    rows = b"1,2\n" * (600 * 1024 // 4)
    assert unseen_reason("a.csv", rows) is None
    assert unseen_reason("a.csv", rows + b"1,2,3\n") is Unseen.LARGE
    assert unseen_reason("a.csv", rows + b"=cmd,2\n") is Unseen.LARGE
    assert read_bytes_max("a.png") > read_bytes_max("a.txt")


def test_what_a_build_leaves_to_be_run_is_told_from_its_other_files() -> None:
    assert is_output("build/app", 0o755)
    assert is_output("native/build/Makefile", 0o644)
    assert not is_output("build/report.html", 0o644)
    assert not is_output("app", 0o755)


def change(path: str, kind: ChangeKind = ChangeKind.CREATED, before: str | None = None) -> FileChange:
    return FileChange(root="/w", path=path, kind=kind, before_sha256=before)


def test_a_new_folder_is_applied_if_something_in_it_is() -> None:
    changes = [change("a/"), change("a/b.o"), change("c/"), change("c/d.o"), change("c/e.txt")]
    held = hold_back(changes, {("/w", "a/b.o"), ("/w", "c/d.o")}, ())
    assert {path for _, path in held} == {"a/", "a/b.o", "c/d.o"}


def test_what_was_moved_or_packed_into_something_held_back_is_not_deleted() -> None:
    moved = FileChange(root="/w", path="old.db", kind=ChangeKind.CREATED, after_sha256="one")
    packed = FileChange(root="/w", path="notes.txt.gz", kind=ChangeKind.CREATED, after_sha256="two")
    gone = [
        change(path, ChangeKind.DELETED, before) for path, before in (("a.db", "one"), ("notes.txt", "n"), ("c", "x"))
    ]
    held = hold_back([moved, packed, *gone], {("/w", "old.db"), ("/w", "notes.txt.gz")}, ())
    assert {path for _, path in held} == {"old.db", "a.db", "notes.txt", "notes.txt.gz"}


def test_a_folder_of_the_layer_is_not_new_and_what_only_it_held_is_held_back() -> None:
    changes = [change("a/"), change("gone", ChangeKind.DELETED)]
    assert {path for _, path in hold_back(changes, (), {("/w", "a/")})} == {"a/", "gone"}
    assert hold_back([change("x", ChangeKind.DELETED, "hash")], (), ()) == frozenset()


@given(st.lists(st.booleans(), max_size=300))
@settings(max_examples=examples(100))
def test_what_is_packed_is_unpacked(chosen: list[bool]) -> None:
    changes = [change(f"f{number}") for number in range(len(chosen))]
    held = {place_of(each) for each, is_held in zip(changes, chosen, strict=True) if is_held}
    assert unpack_places(changes, pack_places(changes, held)) == held


@pytest.mark.parametrize("empty", ["\n", " \n", "\t\r\n"])
def test_a_line_behind_many_empty_ones_is_not_shown(empty: str) -> None:
    assert unseen_reason("a.py", f"a = 1\n{empty * 30}b = 2\n{empty * 500}".encode()) is None
    assert unseen_reason("a.py", f"a = 1\n{empty * 500}b = 2\n".encode()) is Unseen.UNPRINTABLE
