"""The first start as its users meet it: a real daemon that finds a model server, says so, and is answered by it."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.daemons import Daemon, plain_environment
from tests.support.provider_answers import chat
from tests.support.stand_in_provider import Played, StandInProvider

KEY = "sk-test-0123456789abcdef"
USAGE = {"prompt_tokens": 12, "completion_tokens": 2, "total_tokens": 14}
LIST = Played(
    body=json.dumps({"object": "list", "data": [{"id": "nomic-embed-text"}, {"id": "org/qwen3:8b"}]}).encode(),
    content_type="application/json",
)
SAYS = Played(body=chat({"content": "Here "}, {"content": "I am."}, usage=USAGE))


def answered(daemon: Daemon) -> tuple[str, str]:
    """Asks for a run; the model that took it, and its answer."""
    _, record = daemon.call("POST", "/api/v1/runs", {"text": "Who are you?"})
    frames = list(daemon.follow(record["id"]))
    assert frames[-1]["type"] == "run.done", frames[-1]
    models = [frame["data"]["model"] for frame in frames if frame["type"] == "model.requested"]
    return models[0], daemon.call("GET", f"/api/v1/runs/{record['id']}")[1]["answer"]


def models(daemon: Daemon) -> list[tuple[str, str, str, bool]]:
    items = daemon.call("GET", "/api/v1/models")[1]["items"]
    return [(item["name"], item["provider"], item["kind"], item["is_default"]) for item in items]


def announced(daemon: Daemon) -> str:
    (line,) = [line for line in daemon.log().splitlines() if line.startswith("models: ")]
    (logged,) = [json.loads(line) for line in daemon.log().splitlines() if '"models_chosen"' in line]
    assert line == f"models: {logged['why']}"
    return line


async def test_a_server_on_this_machine_is_found_announced_and_answers(tmp_path: Path) -> None:
    def use(place: str) -> None:
        with Daemon(tmp_path / "home", PALYRA_SERVER__DETECT=place) as daemon:
            assert models(daemon) == [("org/qwen3:8b", "local", "openai-chat", True)]
            assert answered(daemon) == ("org/qwen3:8b", "Here I am.")
            assert f"so org/qwen3:8b at {place} answers" in announced(daemon)

    async with StandInProvider(LIST, SAYS) as server:
        await asyncio.to_thread(use, server.url.removeprefix("http://"))
    assert [asked.path for asked in server.asked] == ["/v1/models", "/v1/chat/completions"]
    assert server.asked[1].body["model"] == "org/qwen3:8b"


async def test_variables_come_first_and_a_check_of_their_model_is_on_the_tape(tmp_path: Path) -> None:
    def use(url: str) -> list[dict[str, Any]]:
        environment = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": url}
        with Daemon(tmp_path / "home", PALYRA_SERVER__DETECT=url.removeprefix("http://"), **environment) as daemon:
            assert models(daemon) == [("org/qwen3:8b", "openai", "openai-chat", True)]
            assert "OPENAI_BASE_URL is set, so org/qwen3:8b at 127.0.0.1:" in announced(daemon)
            checked = palyra(daemon, "models", "check")
            assert (checked.returncode, checked.stderr) == (0, "")
            assert checked.stdout.startswith("✓ org/qwen3:8b  first token after ")
        assert KEY not in daemon.log()
        assert palyra(daemon, "verify").returncode == 0
        exported = palyra(daemon, "export", "--all").stdout
        return [json.loads(line) for line in exported.splitlines()]

    async with StandInProvider(LIST, SAYS) as server:
        events = await asyncio.to_thread(use, server.url)
    data = {event["type"]: event["data"] for event in events if event["run_id"] is not None}
    assert (data["run.accepted"]["origin"], data["run.accepted"]["model"]) == ("service", "org/qwen3:8b")
    assert (data["usage.recorded"]["input_tokens"], data["usage.recorded"]["output_tokens"]) == (12, 2)
    assert data["run.done"]["reason"] == "final_answer"
    assert [asked.headers["authorization"] for asked in server.asked] == [f"Bearer {KEY}"] * 2
    sent = server.asked[1].body
    assert (sent["messages"], "tools" in sent) == ([{"role": "user", "content": "Reply with the word ok."}], False)


def palyra(daemon: Daemon, *arguments: str) -> "subprocess.CompletedProcess[str]":
    own = {"PALYRA_HOME": str(daemon.home), "PALYRA_SERVER__HTTP": f"127.0.0.1:{daemon.port}"}
    command = [sys.executable, "-m", "palyra", *arguments]
    environment = {**plain_environment(), **own}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
