"""The MCP server by the mcp library, over HTTP and over standard input and output."""

import os
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import ClientSession, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from palyra.adapters.providers.prepared_turns import Chunk, Turn
from palyra.core.memory.wish import MemoryOrigin, NewMemory
from palyra.engine.api.requests import RunsQuery
from palyra.engine.setup import EngineSettings
from tests.gateway.scene import ADMIN
from tests.openai_api.serving import USER, Served, serve, workshop_at
from tests.support.asking import calls, says
from tests.support.engines import OWNER
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.anyio

TOOLS = [
    "prompt", "list_sessions", "open_session", "show_run", "cancel_run", "list_approvals", "show_approval", "answer_approval",
]  # fmt: skip
WORDS = tuple(Chunk(f"w{n} ", 5) for n in range(20))


def headed(token: str = ADMIN) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=WAIT_S)


class Connected:
    """A client of the library for one daemon."""

    def __init__(self, served: Served, token: str = ADMIN) -> None:
        self._served = served
        self._token = token

    async def __aenter__(self) -> ClientSession:
        from contextlib import AsyncExitStack

        self._stack = AsyncExitStack()
        client = await self._stack.enter_async_context(headed(self._token))
        streams = await self._stack.enter_async_context(
            streamable_http_client(f"{self._served.address}/mcp", http_client=client)
        )
        session = await self._stack.enter_async_context(ClientSession(streams[0], streams[1]))
        await session.initialize()
        return session

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()


async def called(session: ClientSession, name: str, **arguments: Any) -> Any:
    result = await session.call_tool(name, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def test_an_agent_is_given_a_task_and_its_text_is_told_as_progress(tmp_path: Path) -> None:
    workshop, _ = workshop_at(tmp_path, Turn(chunks=WORDS))
    heard: list[tuple[float, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))

    async with serve(workshop) as served, Connected(served) as session:
        plain = await called(session, "prompt", text="hello")
        assert plain["answer"] == "".join(chunk.text for chunk in WORDS)
        result = await session.call_tool("prompt", {"text": "hello"}, progress_callback=hear)
        assert result.content[0].text == plain["answer"]  # type: ignore[union-attr]
        assert "".join(message or "" for _, message in heard) == plain["answer"]
        assert [progress for progress, _ in heard] == sorted({progress for progress, _ in heard})
        run = await called(session, "show_run", run_id=plain["run_id"])
        assert (run["origin"], run["state"]) == ("mcp", "done")


async def test_a_prompt_beyond_the_limit_of_streams_starts_nothing(tmp_path: Path) -> None:
    workshop, _ = workshop_at(tmp_path, says("Good day."))
    async with serve(workshop, streams_per_token_max=0) as served, Connected(served) as session:
        result = await session.call_tool("prompt", {"text": "hello"})
        assert result.is_error
        assert "raise limits.streams_per_token_max" in str(result.content)
        assert await served.engine.runs.list(OWNER, RunsQuery()) == ()


async def test_sessions_go_on_and_their_tapes_are_resources(tmp_path: Path) -> None:
    workshop, _ = workshop_at(tmp_path, says("One."), more={"second": (says("Two."),)})
    async with serve(workshop) as served, Connected(served) as session:
        opened = await called(session, "open_session", key="k", label="talk")
        first = await called(session, "prompt", text="hello", session_id=opened["id"])
        second = await called(session, "prompt", text="the second", session_key="k")
        assert {first["session_id"], second["session_id"]} == {opened["id"]}
        listed = await called(session, "list_sessions")
        assert [(each["id"], each["label"]) for each in listed["sessions"]] == [(opened["id"], "talk")]
        (resource,) = (await session.list_resources()).resources
        read = await session.read_resource(resource.uri)
        assert '"message.assistant"' in read.contents[0].text  # type: ignore[union-attr]
        later = await session.read_resource(f"{resource.uri}?after=3")
        assert '"seq":4,' in later.contents[0].text.splitlines()[0]  # type: ignore[union-attr]
        assert (await session.list_resource_templates()).resource_templates
        async with Connected(served, USER) as stranger:
            assert not (await stranger.list_resources()).resources
            for uri in (resource.uri, "palyra://sessions/x", f"palyra://sessions/{'0' * 26}/tape"):
                with pytest.raises(MCPError):
                    await stranger.read_resource(uri)


async def test_a_question_is_reported_listed_and_answered(tmp_path: Path) -> None:
    workshop, _ = workshop_at(
        tmp_path, calls("mark.send", text="x"), says("Sent."), more={"never mind": (says("Good."),)}
    )
    workshop.settings = EngineSettings(waits_headless=True)
    async with serve(workshop) as served, Connected(served) as session:
        asked = await called(session, "prompt", text="send it")
        (approval_id,) = asked["approval_ids"]
        assert asked["state"] == "waiting"
        (card,) = (await called(session, "list_approvals"))["approvals"]
        assert (card["id"], card["tool"]) == (approval_id, "mark.send")
        answered = await called(session, "answer_approval", approval_id=approval_id, decision="deny")
        assert answered["status"] == "denied"
        held = await called(session, "prompt", text="send it", session_key="s")
        instead = await called(session, "prompt", text="never mind", session_key="s")
        assert (instead["run_id"], instead["answer"]) == (held["run_id"], "Good.")
        again = await session.call_tool("answer_approval", {"approval_id": approval_id, "decision": "allow"})
        assert again.is_error
    assert workshop.executed() == []


async def test_tools_are_those_that_the_daemon_has_and_the_caller_may_use(tmp_path: Path) -> None:
    workshop, _ = workshop_at(tmp_path)
    async with serve(workshop) as served, Connected(served) as session:
        assert [tool.name for tool in (await session.list_tools()).tools] == [*TOOLS, "search_memory"]
        wish, origin = NewMemory(content="about cats"), MemoryOrigin(name="api", actor=OWNER)
        await served.engine.memory.add(OWNER, [wish], origin)
        found = await called(session, "search_memory", query="cats")
        assert found["items"][0]["content"] == "about cats"
        with pytest.raises(MCPError, match="no tool"):
            await session.call_tool("rm", {})
        wrong = await session.call_tool("show_run", {"run_id": 5})
        assert wrong.is_error
        missing = await session.call_tool("show_run", {"run_id": "0" * 26})
        assert missing.is_error
        await session.send_ping()


async def test_a_stranger_a_foreign_page_and_another_version_are_refused(tmp_path: Path) -> None:
    workshop, _ = workshop_at(tmp_path)
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    async with serve(workshop) as served:
        url = f"{served.address}/mcp"
        async with headed("wrong") as stranger:
            assert (await stranger.post(url, json=ping)).status_code == 401
        async with headed() as client:
            cases: list[tuple[dict[str, str], int]] = [
                ({}, 200),
                ({"Origin": "http://evil.example"}, 403),
                ({"Host": "evil.example"}, 403),
                ({"MCP-Protocol-Version": "1999-01-01"}, 400),
            ]
            for headers, status in cases:
                assert (await client.post(url, json=ping, headers=headers)).status_code == status
            assert (await client.post(url, json={"jsonrpc": "2.0", "method": "notifications/x"})).status_code == 202
            assert (await client.get(url)).status_code == 405
            unknown = await client.post(url, json={**ping, "method": "nope"})
            assert unknown.json()["error"]["code"] == -32601


@pytest.mark.parametrize("name", ["mcp-server", "mcp"])
async def test_the_same_server_speaks_over_standard_input_and_output(tmp_path: Path, name: str) -> None:
    workshop, _ = workshop_at(tmp_path / "engine", says("Good day."))
    async with serve(workshop) as served:
        own = {"PALYRA_SERVER__HTTP": served.address.removeprefix("http://"), "PALYRA_HOME": str(tmp_path / "home")}
        environment = {**os.environ, **own, "PALYRA_TOKEN": ADMIN}
        command = StdioServerParameters(command=sys.executable, args=["-m", "palyra", name], env=environment)
        async with stdio_client(command) as (read, write), ClientSession(read, write) as session:
            assert (await session.initialize()).server_info.name == "palyra"
            assert (await called(session, "prompt", text="hello"))["answer"] == "Good day."
        assert (await served.engine.sessions.list(OWNER, "", 10))[0].owner == OWNER
