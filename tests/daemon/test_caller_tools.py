"""Tools of the caller with a real daemon that is killed while it waits for their results."""

from pathlib import Path
from typing import Any

import openai

from tests.support.daemons import Daemon

SCRIPT = """
[[scripts]]
[[scripts.turns]]
[[scripts.turns.calls]]
tool = "look_up"
arguments = { q = "a" }
[[scripts.turns]]
text = "It is 42."
"""
TOOL: dict[str, Any] = {"name": "look_up", "parameters": {"type": "object"}}


def test_a_killed_daemon_still_waits_for_the_callers_result(tmp_path: Path) -> None:
    with Daemon(tmp_path / "home", SCRIPT) as daemon:
        _, run = daemon.call("POST", "/api/v1/runs", {"text": "go", "tools": [TOOL]})
        waiting = next(event for event in daemon.follow(run["id"]) if event["type"] == "run.waiting")
        assert (waiting["data"]["kind"], waiting["data"]["approval_ids"]) == ("caller_tool", [])
        daemon.kill()
        daemon.start()
        status, owed = daemon.call("GET", f"/api/v1/runs/{run['id']}/calls")
        assert status == 200, owed
        assert [(call["tool"], call["arguments"]) for call in owed["items"]] == [("look_up", {"q": "a"})]
        result = {"call_id": owed["items"][0]["call_id"], "output": "42"}
        for _ in range(2):
            daemon.call("POST", f"/api/v1/runs/{run['id']}/results", {"results": [result]})
        events = list(daemon.follow(run["id"]))
        assert events[-1]["type"] == "run.done"
        assert [event["data"]["output"] for event in events if event["type"] == "tool.finished"] == ["42"]


def test_a_client_of_openai_goes_on_with_a_killed_daemon(tmp_path: Path) -> None:
    messages: list[Any] = [{"role": "user", "content": "go"}]
    tools: list[Any] = [{"type": "function", "function": TOOL}]
    with Daemon(tmp_path / "home", SCRIPT) as daemon:
        address = f"http://127.0.0.1:{daemon.port}/v1"
        with openai.OpenAI(base_url=address, api_key=daemon.token, max_retries=0) as client:
            asked = client.chat.completions.create(model="main", messages=messages, tools=tools).choices[0].message
            assert asked.tool_calls
            messages += [asked.to_dict(), {"role": "tool", "tool_call_id": asked.tool_calls[0].id, "content": "42"}]
            daemon.kill()
            daemon.start()
            answer = client.chat.completions.create(model="main", messages=messages, tools=tools)
            assert answer.choices[0].message.content == "It is 42."
        assert daemon.call("GET", "/api/v1/runs")[1]["next_after"] is None
        assert len(daemon.call("GET", "/api/v1/runs")[1]["items"]) == 1
