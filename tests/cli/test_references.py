"""References on the command line: completion while typing, the line after sending, and `palyra context preview`."""

import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import web
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from typer.testing import CliRunner, Result

from palyra.cli.main import app
from palyra.cli.terminal.completion import chat_completer
from palyra.cli.terminal.reference_words import OFFERED_MAX, TypedPath, is_reference_typed, paths_below
from tests.support.stand_in import SESSION, Json, StandIn
from tests.support.terminals import Terminal

FOUND: Json = {
    "raw": "@file:notes.md", "kind": "file", "ok": True, "code": None, "warning": None, "chars": 12, "trust": "local"
}  # fmt: skip
REFUSED: Json = {
    "raw": "@url:http://10.0.0.1/", "kind": "url", "ok": False, "code": "address_refused",
    "warning": "10.0.0.1 is private\x1b[2J", "chars": 0, "trust": "system",
}  # fmt: skip


class WithReferences(StandIn):
    workspace = ""

    def _routes(self) -> list[tuple[str, str, Callable[[web.Request], Awaitable[web.StreamResponse]]]]:
        return [
            *super()._routes(),
            ("GET", "/api/v1/agents", self._agents),
            ("POST", "/api/v1/context/preview", self._preview),
        ]

    async def _agents(self, request: web.Request) -> web.Response:
        if request.query:
            return web.json_response(
                {"error": {"code": "query_invalid", "message": "unknown", "retryable": False}}, status=400
            )
        return web.json_response({"items": [{"name": "main", "workspace": [self.workspace]}], "next_after": None})

    async def _preview(self, request: web.Request) -> web.Response:
        text = self.sent("/context/preview")[-1]["text"]
        references = [FOUND, REFUSED] if "@" in text else []
        rendered = "<context_references>\nhello\n</context_references>" if references else ""
        return web.json_response(
            {"references": references, "rendered": rendered, "total_chars": 12 if references else 0}
        )


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[WithReferences]:
    daemon = WithReferences()
    daemon.workspace = str(tmp_path / "work")
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    for name in (
        "src/main.py",
        "src/more/x.py",
        "notes.md",
        "my notes.md",
        ".env",
        ".hidden",
        "id_rsa",
        "src/.git/config",
    ):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (root / "link").symlink_to("/etc")
    return root


def completions(text: str, *roots: Path) -> list[str]:
    """What the text becomes with each completion."""
    found = chat_completer(lambda: roots).get_completions(Document(text), CompleteEvent(completion_requested=True))
    return [text[: len(text) + each.start_position] + each.text for each in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@", ["@file:", "@folder:", "@diff", "@staged", "@url:", "@memory:", "@run:", "@session:"]),
        ("see @f", ["see @file:", "see @folder:"]),
        ("(@st", ["(@staged"]),
        ("me@f", []),
        ("@@f", []),
        ("@file:n", ["@file:notes.md"]),
        ("@file:m", ['@file:"my notes.md"']),
        ('@file:"my', ['@file:"my notes.md"']),
        ("@file:s", ["@file:src/"]),
        ("@file:src/", ["@file:src/main.py", "@file:src/more/"]),
        ("@folder:", ["@folder:src/"]),
        ("@folder:src/", ["@folder:src/more/"]),
        ("@diff:src/ma", ["@diff:src/main.py"]),
        ("@file:.", ["@file:.hidden"]),
        ("@file:../", []),
        ("@file:/etc/pas", []),
        ("@file:link/", []),
        ("@file:id", []),
        ("@url:x", []),
        ("@file:notes.md and", []),
    ],
)
def test_references_are_completed(workspace: Path, text: str, expected: list[str]) -> None:
    assert completions(text, workspace) == expected


def test_completion_without_a_workspace_here_offers_kinds_only(tmp_path: Path) -> None:
    assert completions("@file:n", tmp_path / "nowhere") == []
    assert completions("@file:n") == []
    assert completions("@di") == ["@diff"]


def test_completion_of_a_huge_folder_is_bounded(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"f{number}").touch()
    assert len(list(paths_below(tmp_path, TypedPath("file", "f", False)))) == OFFERED_MAX


def test_menu_opens_only_within_a_reference() -> None:
    assert is_reference_typed("look at @fi")
    assert is_reference_typed('@file:"my no')
    assert not is_reference_typed("look at me@fi")
    assert not is_reference_typed("@file:a b")
    assert not is_reference_typed("x" * 100_000)


def test_chat_completes_and_tells_what_references_bring(
    stand_in: WithReferences, reaching: dict[str, str], workspace: Path
) -> None:
    with Terminal(["chat"], reaching) as terminal:
        terminal.expect_screen("\n›")
        terminal.type("see @fi\tno\t")
        terminal.expect_screen("\n› see @file:notes.md")
        terminal.type(" and @url:http://10.0.0.1/\r")
        terminal.expect("@file:notes.md  12 characters, local")
        terminal.expect("not included (address_refused): 10.0.0.1 is private\\x1b[2J")
        terminal.expect("done")
        terminal.type("no references\r")
        terminal.expect("done")
        terminal.type("/quit\r")
        assert terminal.wait() == 0
    text = "see @file:notes.md and @url:http://10.0.0.1/"
    assert stand_in.sent("/context/preview") == [{"text": text, "session_id": SESSION}]
    assert stand_in.sent("/runs")[0]["text"] == text


def test_chat_goes_on_where_the_daemon_previews_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = StandIn().start()
    try:
        monkeypatch.setenv("NO_COLOR", "1")
        reaching = {"PALYRA_HOME": str(tmp_path), "PALYRA_TOKEN": "stand-in-token", "NO_COLOR": "1"}
        with Terminal(["chat"], {**reaching, "PALYRA_SERVER__HTTP": f"127.0.0.1:{daemon.port}"}) as terminal:
            terminal.expect("›")
            terminal.type("@diff\r")
            terminal.expect("references could not be previewed")
            terminal.expect("done")
    finally:
        daemon.stop()


def palyra(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["context", *arguments])


@pytest.mark.usefixtures("reaching")
def test_preview_is_a_command(stand_in: WithReferences) -> None:
    shown = palyra("preview", "see @file:notes.md", "--session", SESSION)
    assert shown.exit_code == 0
    assert "@file:notes.md  12 characters, local" in shown.output
    assert "10.0.0.1 is private\\x1b[2J" in shown.output
    assert "12 characters" in shown.output
    assert "<context_references>" not in shown.output
    assert stand_in.sent("/context/preview") == [{"text": "see @file:notes.md", "session_id": SESSION}]
    assert "<context_references>\nhello" in palyra("preview", "@diff", "--rendered").output
    assert json.loads(palyra("preview", "@diff", "--json").output)["references"] == [FOUND, REFUSED]
    assert "the text has no references" in palyra("preview", "nothing").output


@pytest.mark.usefixtures("reaching")
def test_preview_takes_a_session_by_its_key(stand_in: WithReferences) -> None:
    assert palyra("preview", "see @file:notes.md", "--session", "cli").exit_code == 0
    assert stand_in.sent("/context/preview")[-1]["session_id"] == SESSION
