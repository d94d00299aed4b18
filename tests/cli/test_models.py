"""`palyra models`: what the daemon has, unknown prices said to be unknown, and checks that tell what to do."""

import json
from collections.abc import Awaitable, Callable, Iterator

import pytest
from aiohttp import web
from typer.testing import CliRunner, Result

from palyra.cli.main import app
from tests.support.stand_in import Json, StandIn

pytestmark = pytest.mark.usefixtures("reaching")

SONNET: Json = {
    "name": "sonnet", "provider": "anthropic", "kind": "anthropic-messages", "id": "claude-sonnet-5-5",
    "window_tokens": 1_000_000, "max_output_tokens": None, "input_usd_per_mtok": 2.0, "output_usd_per_mtok": 10.0,
    "price_source": "known", "vision": True, "tools": True, "health": "ok", "routes": ["main", "cheap"],
    "is_default": True,
}  # fmt: skip
QWEN: Json = {
    "name": "org/qwen", "provider": "local", "kind": "openai-chat", "id": "qwen3:8b", "window_tokens": None,
    "max_output_tokens": None, "input_usd_per_mtok": None, "output_usd_per_mtok": None, "price_source": "unknown",
    "vision": False, "tools": True, "health": "open", "routes": [], "is_default": False,
}  # fmt: skip
DEMO: Json = {**QWEN, "name": "demo", "kind": "demo", "price_source": "free", "is_default": True}
FINE: Json = {
    "ok": True, "code": None, "message": "It answers.", "first_token_ms": 231, "total_ms": 1400, "text": "ok",
    "usage": {"input_tokens": 12, "output_tokens": 1},
}  # fmt: skip
REFUSED: Json = {
    "ok": False, "code": "auth", "message": "local refused the key.\nCheck \x1b[2Japi_key.", "first_token_ms": None,
    "total_ms": 12, "text": "", "usage": None,
}  # fmt: skip


class WithModels(StandIn):
    """A daemon with models. `outcomes` are what checks of them come to: a body, or a status and an error's code."""

    def __init__(self) -> None:
        super().__init__()
        self.models = [SONNET, QWEN]
        self.outcomes: dict[str, Json | tuple[int, str]] = {"sonnet": FINE, "org/qwen": FINE}

    def _routes(self) -> list[tuple[str, str, Callable[[web.Request], Awaitable[web.StreamResponse]]]]:
        return [
            *super()._routes(),
            ("GET", "/api/v1/models", self._models),
            ("POST", "/api/v1/models/{name}/check", self._check),
        ]

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"items": self.models, "next_after": None})

    async def _check(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        outcome = self.outcomes[name]
        if isinstance(outcome, tuple):
            error = {"code": outcome[1], "message": "not now", "retryable": True}
            return web.json_response({"error": error}, status=outcome[0])
        return web.json_response({"model": name, **outcome})

    def checked(self) -> list[str]:
        return [path.removeprefix("/models/").removesuffix("/check") for _, path, _ in self.calls if "/check" in path]


@pytest.fixture
def stand_in() -> Iterator[WithModels]:
    daemon = WithModels()
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop()


def palyra(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize("arguments", [["models"], ["models", "list"]])
def test_models_are_listed_plainly_in_a_pipe(arguments: list[str]) -> None:
    head, first, second = palyra(*arguments).stdout.splitlines()
    assert head.split()[:4] == ["name", "provider", "id", "window"]
    assert " ".join(first.split()) == "sonnet * anthropic claude-sonnet-5-5 1,000,000 2 10 yes yes ok main, cheap"
    assert " ".join(second.split()) == "org/qwen local qwen3:8b unknown unknown unknown no yes open –"


@pytest.mark.parametrize("arguments", [["models", "--json"], ["--json", "models"], ["models", "list", "--json"]])
def test_models_for_programs_are_what_the_daemon_says(arguments: list[str]) -> None:
    assert json.loads(palyra(*arguments).stdout) == {"items": [SONNET, QWEN]}


def test_a_guide_is_said_to_be_no_model(stand_in: WithModels) -> None:
    stand_in.models = [DEMO]
    lines = palyra("models").stdout.splitlines()
    assert lines[1].split()[4:7] == ["unknown", "free", "free"]
    assert "not a language model" in lines[2]


def test_every_model_is_checked_and_all_is_well(stand_in: WithModels) -> None:
    result = palyra("models", "check")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"✓ {name}  first token after 231 ms, done after 1.4 s, 12 tokens in, 1 out" for name in ("sonnet", "org/qwen")
    ]
    assert stand_in.checked() == ["sonnet", "org/qwen"]


def test_a_failure_says_what_to_do_and_the_others_are_checked_too(stand_in: WithModels) -> None:
    stand_in.outcomes["sonnet"] = REFUSED
    result = palyra("models", "check")
    assert result.exit_code == 1
    first, second = result.stdout.splitlines()
    assert first == "✗ sonnet  auth: local refused the key. Check \\x1b[2Japi_key."
    assert second.startswith("✓ org/qwen")


def test_a_check_for_programs_has_every_outcome(stand_in: WithModels) -> None:
    stand_in.outcomes["org/qwen"] = REFUSED
    result = palyra("models", "check", "--json")
    expected = [{"model": "sonnet", **FINE}, {"model": "org/qwen", **REFUSED}]
    assert (result.exit_code, json.loads(result.stdout)) == (1, {"ok": False, "items": expected})


def test_only_the_models_that_were_named_are_checked_each_once(stand_in: WithModels) -> None:
    assert palyra("models", "check", "org/qwen", "org/qwen").exit_code == 0
    assert stand_in.checked() == ["org/qwen"]


def test_an_unknown_name_is_told_before_anything_is_called(stand_in: WithModels) -> None:
    result = palyra("models", "check", "sonnet", "opus")
    assert (result.exit_code, stand_in.checked()) == (1, [])
    assert result.stderr == "error: model_unknown: there is no model opus; the daemon has sonnet, org/qwen\n"


def test_a_model_that_somebody_else_checks_is_told_as_such(stand_in: WithModels) -> None:
    stand_in.outcomes["sonnet"] = (409, "check_under_way")
    result = palyra("models", "check")
    assert result.exit_code == 1
    assert [line.split()[:3] for line in result.stdout.splitlines()] == [
        ["✗", "sonnet", "check_under_way:"],
        ["✓", "org/qwen", "first"],
    ]


def test_what_the_token_may_not_do_ends_the_command(stand_in: WithModels) -> None:
    stand_in.outcomes["sonnet"] = (403, "role_insufficient")
    result = palyra("models", "check")
    assert (result.exit_code, result.stderr) == (1, "error: role_insufficient: not now\n")
    assert stand_in.checked() == ["sonnet"]


def test_doctor_tells_the_models_of_the_daemon(stand_in: WithModels) -> None:
    assert models_line() == ("ok", "the daemon has sonnet, org/qwen; palyra models check calls them")
    stand_in.models = [DEMO]
    assert models_line()[0] == "warn"


def test_doctor_tells_what_a_start_would_find(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALYRA_SERVER__HTTP", "127.0.0.1:1")
    mark, what = models_line()
    assert (mark, "the demo guide answers" in what) == ("warn", True)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789abcdef")
    mark, what = models_line()
    assert (mark, what.partition(":")[0]) == ("ok", "at a start from here")
    assert "OPENAI_API_KEY is set" in what
    assert "sk-test" not in what


def models_line() -> tuple[str, str]:
    checks = json.loads(palyra("doctor", "--json").stdout)["checks"]
    (found,) = [check for check in checks if check["check"] == "models"]
    return found["mark"], found["what"]
