"""A provider's key is in the header of its requests and nowhere else, even if the provider says it back in every way it can.

One daemon has keys of several forms, from variables and from the vault. Each provider repeats its key in one way; then
everything that the daemon wrote, sent or printed is searched for every key.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from palyra.cli.main import app
from tests.support.bad_providers import Providers, section
from tests.support.daemons import Daemon, plain_environment
from tests.support.provider_answers import (
    call_item,
    chat,
    half_hello,
    messages,
    responses,
    text_block,
    text_item,
    tool_block,
)
from tests.support.stand_in_provider import Played, StandInProvider, events, refusal

STARTERS = 4
LEDGER = "ledger.txt"
LEDGER_LINES = 200  # Enough that reading them is too much for the tape, and becomes an artifact.
# By name: the kind of provider that has it, where it is kept, and the key itself. The last two look like no key at all.
KEYS = {
    "openai": ("openai-chat", "env", "sk-proj-Hq83kTzVb61mXwPf04RuYc29LsDn57Ga"),
    "anthropic": ("anthropic-messages", "vault", "sk-ant-api03-Jw5nRk82TbXq71ZpVc40MfYh96LdSg3e"),
    "random": ("openai-responses", "env", "kVb7wqTzR2mNp4Xs"),
    "letters": ("openai-chat", "vault", "marmaladeheliotrope"),
}
# How a provider says its key back.
WAYS = (
    "401",
    "403",
    "400",
    "429",
    "500",
    "plain-500",
    "redirect",
    "page",
    "garbage",
    "error-event",
    "half-and-error",
    "long-error",
    "answer",
    "split-answer",
    "call",
    "tool-name",
    "file",
)


COMMANDS = (
    "doctor",
    "doctor --json",
    "config show",
    "config check",
    "export --all",
    "models --json",
    "models check openai_answer letters_answer random_400",
    "secrets list",
)
PLACES = (
    "log",
    "streams and records",
    "answers",
    "home",
    "home while the daemon runs",
    "command line of the daemon",
    "command line of a command",
    "files of the backup",
    "backup",
    *COMMANDS,
)


def said(key: str) -> str:
    return f"You sent me {key} and I saw it."


def answer(kind: str, *pieces: str) -> Played:
    match kind:
        case "openai-chat":
            return Played(body=chat(*({"content": piece} for piece in pieces)))
        case "openai-responses":
            return Played(body=responses(text_item(*pieces)))
        case _:
            return Played(body=messages(text_block(*pieces)))


def call(kind: str, tool: str, arguments: dict[str, str]) -> Played:
    written = json.dumps(arguments)
    match kind:
        case "openai-chat":
            function = {"name": tool, "arguments": written}
            calls = [{"index": 0, "id": "c", "type": "function", "function": function}]
            return Played(body=chat({"tool_calls": calls}, finish="tool_calls"))
        case "openai-responses":
            return Played(body=responses(call_item(tool, written)))
        case _:
            return Played(body=messages(tool_block(tool, written), stop="tool_use"))


def answers(way: str, kind: str, key: str) -> list[Played]:
    """How a provider of this kind repeats its key in this way."""
    error = events({"type": "error", "error": {"type": "overloaded_error", "message": said(key)}})
    match way:
        case "401" | "403" | "400" | "429" | "500":
            return [refusal(int(way), said(key))]
        case "plain-500":
            return [Played(body=said(key).encode(), status=500, content_type="text/plain")]
        case "redirect":
            return [refusal(307, said(key), {"Location": f"http://127.0.0.1:1/?key={key}"})]
        case "page":
            return [Played(body=f"<html>{said(key)}</html>".encode(), content_type="text/html")]
        case "garbage":
            return [Played(body=f"data: {said(key)}\n\n".encode())]
        case "error-event":
            return [Played(body=error)]
        case "long-error":  # Where a message is cut, half a key could be left.
            long = f"{'words ' * 48}{key} {said(key)}"
            return [Played(body=events({"type": "error", "error": {"type": "overloaded_error", "message": long}}))]
        case "half-and-error":
            return [Played(body=half_hello(kind) + error)]
        case "answer":
            return [answer(kind, said(key))]
        case "split-answer":
            return [answer(kind, *said(key))]
        case "call":
            return [call(kind, "fs__read", {"path": key}), answer(kind, "There is none.")]
        case "tool-name":
            return [call(kind, key, {}), answer(kind, "There is none.")]
        case _:
            return [call(kind, "fs__read", {"path": LEDGER}), answer(kind, "I have read it.")]


class Scene:
    """The daemon, its providers, and everything that came out of it."""

    def __init__(self, home: Path, providers: Providers) -> None:
        variables = {f"KEY_{name.upper()}": key for name, (_, source, key) in KEYS.items() if source == "env"}
        self.daemon = Daemon(home, **variables)
        self.stand_ins: dict[str, StandInProvider] = {}
        self.records: dict[str, dict[str, Any]] = {}
        self.seen: dict[str, bytes] = {}
        self.environment = b""
        self._variables = variables
        self._configure(providers)

    def play(self) -> None:
        """All runs at once, then every way to look at what came of them."""
        kept = [name for name, (_, source, _) in KEYS.items() if source == "vault"]
        with ThreadPoolExecutor(STARTERS) as pool, ExitStack() as running:
            self.seen["command line of a command"] = b"".join(pool.map(self._keep, kept))
            running.enter_context(self.daemon)
            self.seen["streams and records"] = b"".join(pool.map(self._run, self.stand_ins))
            self._ask_daemon()
            self._ask_commands()
            self.seen["command line of the daemon"] = self._process_file("cmdline")
            self.environment = self._process_file("environ")
            self.seen["home while the daemon runs"] = _contents(self.daemon.home)
        self.seen["home"] = _contents(self.daemon.home)
        self.seen["log"] = self.daemon.log().encode()

    def _configure(self, providers: Providers) -> None:
        sections: list[str] = []
        for name, (kind, source, key) in KEYS.items():
            reference = f"env:KEY_{name.upper()}" if source == "env" else f"vault:{name}"
            for way in WAYS:
                model = f"{name}_{way}"
                self.stand_ins[model] = providers.play(*answers(way, kind, key))
                url = self.stand_ins[model].url
                sections.append(section("provider", name=model, kind=kind, base_url=url, api_key=reference, retries=0))
                sections.append(section("model", name=model, provider=model))
        home = self.daemon.home
        (home / "palyra.toml").write_text("\n".join(sections))
        (home / "workspace").mkdir()
        lines = [f"{number} {said(key)}" for number in range(LEDGER_LINES) for _, _, key in KEYS.values()]
        (home / "workspace" / LEDGER).write_text("\n".join(lines))

    def _run(self, model: str) -> bytes:
        """Everything that a follower of the run is sent, and its record."""
        _, record = self.daemon.call("POST", "/api/v1/runs", {"text": "Hi.", "model": model})
        with self.daemon.open("GET", f"/api/v1/runs/{record['id']}/events") as stream:
            sent = stream.read()
        self.records[model] = self.daemon.call("GET", f"/api/v1/runs/{record['id']}")[1]
        return sent + json.dumps(self.records[model], ensure_ascii=False).encode()

    def _ask_daemon(self) -> None:
        paths = ["/api/v1/models", "/api/v1/runs", "/api/v1/sessions", "/api/v1/usage", "/api/v1/tools", "/metrics"]
        paths += [f"/api/v1/sessions/{record['session_id']}/tape" for record in self.records.values()]
        checks = [f"/api/v1/models/{name}_{way}/check" for name in KEYS for way in ("400", "answer", "split-answer")]
        asked = [("GET", path) for path in paths] + [("POST", path) for path in checks]
        self.seen["answers"] = b"\n".join(self._body(method, path) for method, path in asked)

    def _body(self, method: str, path: str) -> bytes:
        with self.daemon.open(method, path) as response:
            body = response.read()
            assert response.status == 200, (path, body)
            return body

    def _ask_commands(self) -> None:
        backup = self.daemon.home.parent / "backup"
        for words in (*COMMANDS, f"backup {backup}"):
            done = CliRunner().invoke(app, ["--home", str(self.daemon.home), *words.split()], env=self._environment())
            self.seen[words.partition(" /")[0]] = done.output.encode()
        self.seen["files of the backup"] = _contents(backup)

    def _keep(self, name: str) -> bytes:
        """Puts a key into the vault; the command line of who does it, and what it prints."""
        command = [sys.executable, "-m", "palyra", "secrets", "set", name]
        pipe = subprocess.PIPE
        environment = plain_environment() | self._environment()
        with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT) as keeping:
            seen = Path(f"/proc/{keeping.pid}/cmdline").read_bytes()
            printed, _ = keeping.communicate(KEYS[name][2].encode(), timeout=60)
        assert keeping.returncode == 0, printed
        return seen + printed

    def _process_file(self, name: str) -> bytes:
        return Path(f"/proc/{self.daemon.process.pid}/{name}").read_bytes()

    def _environment(self) -> dict[str, str]:
        own = {"PALYRA_HOME": str(self.daemon.home), "PALYRA_SERVER__HTTP": f"127.0.0.1:{self.daemon.port}"}
        return own | self._variables


def _contents(folder: Path) -> bytes:
    """Journal, its log, artifacts, vault, keys: all files but the one that the test itself put there."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != LEDGER]
    return b"\n".join(path.read_bytes() for path in files)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with Providers() as providers:
        scene = Scene(tmp_path_factory.mktemp("keys") / "home", providers)
        scene.play()
        yield scene


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", KEYS)
def test_a_key_is_nowhere(scene: Scene, name: str, place: str) -> None:
    seen = scene.seen[place]
    key = KEYS[name][2].encode()
    assert seen
    assert key not in seen
    assert key[: len(key) * 2 // 3] not in seen


def test_everything_that_was_seen_is_looked_at(scene: Scene) -> None:
    assert set(scene.seen) == set(PLACES)


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("way", WAYS)
def test_the_provider_was_sent_its_key_and_said_it_back(scene: Scene, name: str, way: str) -> None:
    """Else the other tests would show nothing."""
    key = KEYS[name][2]
    for asked in scene.stand_ins[f"{name}_{way}"].asked:
        assert any(key in value for value in asked.headers.values())
        assert key not in json.dumps(asked.body)
    assert scene.records[f"{name}_{way}"]["state"] in ("done", "failed")


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("way", ["answer", "split-answer"])
def test_a_key_in_an_answer_becomes_a_marker(scene: Scene, name: str, way: str) -> None:
    before, _, after = said("|").partition("|")
    shown = scene.records[f"{name}_{way}"]["answer"]
    assert shown.startswith(f"{before}‹secret:")
    assert shown.endswith(f"›{after}")


def test_keys_in_a_file_that_was_read_are_markers_in_the_artifact(scene: Scene) -> None:
    assert all(scene.records[f"{name}_file"]["answer"] == "I have read it." for name in KEYS)
    (artifact,) = [path for path in (scene.daemon.home / "artifacts").rglob("*") if path.is_file()]
    assert artifact.read_text().count("‹secret:") == LEDGER_LINES * len(KEYS)


def test_a_key_of_the_vault_is_not_in_the_environment_of_the_daemon(scene: Scene) -> None:
    assert scene.environment
    for _, source, key in KEYS.values():
        assert (key.encode() in scene.environment) is (source == "env")
