"""Files that go along: uploaded whole, told by their bytes, and named by the message they belong to."""

import hashlib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from palyra.cli.main import app
from palyra.cli.terminal.attachments import FILE_BYTES_MAX, read_file
from palyra.core.errors import Invalid, NotFound
from tests.support.images import jpeg, png
from tests.support.stand_in import SESSION, StandIn
from tests.support.terminals import Terminal

pytestmark = pytest.mark.usefixtures("reaching")


def palyra(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def named(body: bytes, name: str, media_type: str) -> dict[str, str]:
    return {"name": name, "media_type": media_type, "artifact_id": hashlib.sha256(body).hexdigest()}


def test_files_are_uploaded_and_named_in_order(stand_in: StandIn, tmp_path: Path) -> None:
    large = png(filler=b"x" * 2_000_000)
    (tmp_path / "photo.png").write_bytes(large)
    (tmp_path / "notes.txt").write_text("hello")
    files = ["--attach", str(tmp_path / "photo.png"), "--attach", str(tmp_path / "notes.txt")]
    assert palyra("run", "look", *files).exit_code == 0
    assert stand_in.sent("/artifacts") == [
        {"media_type": "image/png", "body": large},
        {"media_type": "text/plain", "body": b"hello"},
    ]
    (body,) = stand_in.sent("/runs")
    assert body["attachments"] == [named(large, "photo.png", "image/png"), named(b"hello", "notes.txt", "text/plain")]


def test_files_go_along_with_a_run_that_is_left_running(stand_in: StandIn, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png())
    assert palyra("run", "slow", "--no-wait", "--attach", str(tmp_path / "a.png")).exit_code == 0
    assert stand_in.sent("/runs")[0]["attachments"] == [named(png(), "a.png", "image/png")]


def test_nothing_is_sent_when_one_file_cannot_be_read(stand_in: StandIn, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png())
    result = palyra("run", "look", "--attach", str(tmp_path / "a.png"), "--attach", str(tmp_path / "absent.png"))
    assert result.exit_code == 1
    assert result.stderr.startswith("error: file_unreadable: ")
    assert stand_in.calls == []


def test_image_is_what_its_bytes_say(tmp_path: Path) -> None:
    for name, body, media_type in (
        ("photo.png", jpeg(), "image/jpeg"),
        ("page.html", b"<p>", "text/html"),
        ("unknown", b"?", "text/plain"),
        ("wrong.png", b"text", "image/png"),
        ("report.pdf", b"%PDF-1.7", "application/pdf"),
        ("report", b"%PDF-1.7", "application/pdf"),
        ("film.ts", b"const a = 1;", "text/plain"),
        ("Makefile", b"all: build", "text/plain"),
        ("a.md", b"# A", "text/markdown"),
        ("a.csv", b"a,b", "text/csv"),
        ("a.json", b"{}", "application/json"),
        ("a.py", b"pass", "text/x-python"),
        ("wide.txt", "ä".encode("utf-16"), "text/plain"),
        ("empty", b"", "text/plain"),
    ):
        (tmp_path / name).write_bytes(body)
        assert read_file(tmp_path / name).media_type == media_type


@pytest.mark.parametrize(
    ("name", "body", "words"),
    [
        ("a.zip", b"PK\x03\x04" + bytes(9), "of the type application/zip"),
        ("program", b"\x7fELF" + bytes(60), "no text and no image"),
        ("a.csv.gz", b"\x1f\x8b\x08" + bytes(60), "no text and no image"),
    ],
)
def test_file_of_a_type_that_no_model_reads_is_refused_before_it_is_sent(
    stand_in: StandIn, tmp_path: Path, name: str, body: bytes, words: str
) -> None:
    (tmp_path / name).write_bytes(body)
    result = palyra("run", "look", "--attach", str(tmp_path / name))
    assert result.exit_code == 1
    assert result.stderr.startswith("error: file_unsupported: ")
    assert words in " ".join(result.stderr.split())
    assert stand_in.calls == []


def test_file_that_is_too_large_or_none_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(FILE_BYTES_MAX + 1)
    with pytest.raises(Invalid, match="more than"):
        read_file(tmp_path / "large")
    with pytest.raises(NotFound, match="cannot be read"):
        read_file(tmp_path)


def test_chat_sends_files_with_the_next_message_alone(
    stand_in: StandIn, reaching: dict[str, str], tmp_path: Path
) -> None:
    photo = tmp_path / "my photo.png"
    photo.write_bytes(png())
    with Terminal(["chat"], reaching) as terminal:
        terminal.expect("›")
        terminal.type("/attach nowhere.png\r")
        terminal.expect("file_unreadable")
        terminal.type(f"/attach {photo}\r")
        terminal.expect("attached to your next message: my photo.png")
        terminal.type("/attach\r")
        terminal.expect("attached to your next message: nothing")
        terminal.type(f"/attach {photo}\r")
        terminal.expect("attached to your next message: my photo.png")
        terminal.type("slow look\r")
        terminal.expect("Thinking about it")
        terminal.type(f"/attach {photo}\r")
        terminal.expect("attached to your next message: my photo.png")
        terminal.type("and this\r")
        terminal.expect("so: and this")
        terminal.type("plain\r")
        terminal.expect("Steered to plain")
        terminal.type("/quit\r")
        assert terminal.wait() == 0
    first, second = stand_in.sent("/runs")
    assert first["attachments"] == second["attachments"] == [named(png(), "my photo.png", "image/png")]
    assert (second["session_id"], second["when_busy"], second["text"]) == (SESSION, "steer", "and this")
    assert stand_in.sent(f"/runs/{stand_in.run_ids()[0]}/input") == [{"text": "plain"}]
