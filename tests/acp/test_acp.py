"""An editor talks to `palyra acp`, which talks to a real server: a script over pipes, and the protocol's own library."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from palyra.adapters.providers.prepared_turns import Chunk, PreparedCall, Turn
from palyra.adapters.tools.routine_create import RoutineCreate
from palyra.app.tools import LateRoutines
from palyra.core.context.messages import ToolMessage
from tests.gateway.scene import ADMIN
from tests.openai_api.serving import Served, serve, workshop_at
from tests.support.asking import calls, says
from tests.support.engines import OWNER
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.anyio
FS: dict[str, Any] = {"fs": {"readTextFile": True, "writeTextFile": True}}


class Editor:
    """A client on the other end of two pipes. `answers` are given to the agent's own requests, by method."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._count = 0
        self.updates: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []
        self.answers: dict[str, Any] = {}

    async def ask(self, method: str, **params: Any) -> Any:
        """Returns the result; what comes before it is kept or answered."""
        self._count += 1
        number = f"e{self._count}"
        self.send({"id": number, "method": method, "params": params})
        while True:
            message = await self.next()
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]
            self.hear(message)

    def hear(self, message: dict[str, Any]) -> None:
        if message.get("method") == "session/update":
            self.updates.append(message["params"]["update"])
        elif "method" in message:
            self.asked.append(message)
            self.send({"id": message["id"], "result": self.answers[message["method"]]})

    def send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def next(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        async with asyncio.timeout(WAIT_S):
            return json.loads(await self._process.stdout.readline())

    async def begin(self, folder: str = "/home/ann/project", **capabilities: Any) -> str:
        known = await self.ask("initialize", protocolVersion=1, clientCapabilities=capabilities)
        assert known["protocolVersion"] == 1
        return (await self.ask("session/new", cwd=folder, mcpServers=[]))["sessionId"]

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(each["content"]["text"] for each in self.updates if each["sessionUpdate"] == kind)

    def statuses(self) -> list[str]:
        return [each["status"] for each in self.updates if each["sessionUpdate"].startswith("tool_call")]


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "PALYRA_TOKEN": ADMIN, "PALYRA_HOME": str(home)}


@asynccontextmanager
async def editing(served: Served, home: Path) -> AsyncIterator[Editor]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "palyra", "acp", "--url", served.address,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environment(home),
    )  # fmt: skip
    try:
        yield Editor(process)
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(WAIT_S):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def prompt(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


async def test_a_prompt_is_answered_in_pieces_with_its_calls(tmp_path: Path) -> None:
    thinking = Turn(text="Let me see.", reasoning="Hm.", calls=(PreparedCall("time.now", {}),))
    workshop, _ = workshop_at(tmp_path, thinking, Turn(chunks=tuple(Chunk(f"w{n} ", 1) for n in range(9))))
    async with serve(workshop) as served, editing(served, tmp_path) as editor:
        session_id = await editor.begin()
        answer = await editor.ask("session/prompt", sessionId=session_id, prompt=prompt("hello"))
        assert answer == {"stopReason": "end_turn"}
        assert editor.text() == "Let me see." + "".join(f"w{n} " for n in range(9))
        assert editor.text("agent_thought_chunk") == "Hm."
        assert editor.statuses() == ["pending", "in_progress", "completed"]
        again = Editor(editor._process)
        await again.ask("session/load", sessionId=session_id, cwd="/", mcpServers=[])
        assert (again.text("user_message_chunk"), again.text()) == ("hello", "".join(f"w{n} " for n in range(9)))


@pytest.mark.parametrize(
    ("picked", "executed"), [("allow", 2), ("allow_session", 2), ("reject", 0), ("reject_session", 0)]
)
async def test_a_question_is_put_to_the_person_in_the_editor(tmp_path: Path, picked: str, executed: int) -> None:
    workshop, _ = workshop_at(tmp_path, calls("mark.send", text="mail"), says("Done."))
    async with serve(workshop) as served, editing(served, tmp_path) as editor:
        session_id = await editor.begin()
        editor.answers["session/request_permission"] = {"outcome": {"outcome": "selected", "optionId": picked}}
        await editor.ask("session/prompt", sessionId=session_id, prompt=prompt("send it"))
        (asked,) = editor.asked
        assert asked["params"]["toolCall"]["title"] == "mark.send"
        kinds = [each["kind"] for each in asked["params"]["options"]]
        assert kinds == ["allow_once", "allow_always", "reject_once", "reject_always"]
        assert editor.text() == "Done."
        await editor.ask("session/prompt", sessionId=session_id, prompt=prompt("send it again"))
        assert len(editor.asked) == (1 if picked.endswith("_session") else 2)
    assert len(workshop.executed()) == executed


async def test_a_critical_call_is_offered_one_yes_in_the_editor(tmp_path: Path) -> None:
    workshop, _ = workshop_at(tmp_path, calls("routine.create", name="r", prompt="p", every_s=60), says("Done."))
    workshop.tools.append(RoutineCreate(LateRoutines()))
    async with serve(workshop) as served, editing(served, tmp_path) as editor:
        session_id = await editor.begin()
        editor.answers["session/request_permission"] = {"outcome": {"outcome": "selected", "optionId": "reject"}}
        await editor.ask("session/prompt", sessionId=session_id, prompt=prompt("remind me"))
        (asked,) = editor.asked
        kinds = [each["kind"] for each in asked["params"]["options"]]
        assert kinds == ["allow_once", "reject_once", "reject_always"]


async def test_the_editors_files_are_read_and_written_by_the_editor(tmp_path: Path) -> None:
    turns = (
        calls("editor_read_file", path="/home/ann/project/a.py"),
        calls("editor_write_file", path="/home/ann/a.py", content="new"),
        says("Done."),
    )
    workshop, provider = workshop_at(tmp_path, *turns)
    async with serve(workshop) as served, editing(served, tmp_path) as editor:
        session_id = await editor.begin(**FS)
        editor.answers = {
            "fs/read_text_file": {"content": "unsaved"},
            "fs/write_text_file": {},
            "session/request_permission": {"outcome": {"outcome": "selected", "optionId": "allow"}},
        }
        await editor.ask("session/prompt", sessionId=session_id, prompt=prompt("change it"))
        assert [each["method"] for each in editor.asked] == [
            "fs/read_text_file", "session/request_permission", "fs/write_text_file",
        ]  # fmt: skip
        assert editor.asked[-1]["params"]["content"] == "new"
    told = [message.text for message in provider.requests[-1].messages if isinstance(message, ToolMessage)]
    assert "unsaved" in told[0]
    assert "/home/ann/project" in provider.requests[0].instructions


@pytest.mark.parametrize("picked", ["allow", "reject"])
async def test_a_file_outside_the_open_folder_is_read_only_after_a_yes(tmp_path: Path, picked: str) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    ways = ["/etc/hosts", str(folder / "../secret"), str(folder / "link/secret"), "relative"]
    turns = [calls("editor_read_file", path=path) for path in [*ways, str(folder / "inside")]]
    workshop, provider = workshop_at(tmp_path, *turns, says("Done."))
    async with serve(workshop) as served, editing(served, tmp_path) as editor:
        session_id = await editor.begin(str(folder), **FS)
        editor.answers = {
            "fs/read_text_file": {"content": "its words"},
            "session/request_permission": {"outcome": {"outcome": "selected", "optionId": picked}},
        }
        await editor.ask("session/prompt", sessionId=session_id, prompt=prompt("read them"))
        methods = [each["method"] for each in editor.asked]
        question, reading = "session/request_permission", "fs/read_text_file"
        assert methods == [*((question, reading) if picked == "allow" else (question,)) * len(ways), reading]
        offered = [each["params"]["options"] for each in editor.asked if each["method"] == question]
        assert {option["name"] for options in offered for option in options} == {"Read the file", "Reject"}
    told = [message.text for message in provider.requests[-1].messages if isinstance(message, ToolMessage)]
    assert ["its words" in text for text in told] == [picked == "allow"] * len(ways) + [True]


async def test_a_cancelled_prompt_ends_as_cancelled(tmp_path: Path) -> None:
    workshop, _ = workshop_at(tmp_path, Turn(chunks=tuple(Chunk(f"w{n} ", 20) for n in range(3_000))))
    async with serve(workshop) as served, editing(served, tmp_path) as editor:
        session_id = await editor.begin()
        params = {"sessionId": session_id, "prompt": prompt("hello")}
        editor.send({"id": "p", "method": "session/prompt", "params": params})
        while not editor.updates:
            editor.hear(await editor.next())
        editor.send({"method": "session/cancel", "params": {"sessionId": session_id}})
        while (message := await editor.next()).get("id") != "p":
            editor.hear(message)
        assert message["result"] == {"stopReason": "cancelled"}


async def test_nonsense_is_refused_and_the_connection_goes_on(tmp_path: Path) -> None:
    workshop, _ = workshop_at(tmp_path)
    async with serve(workshop) as served, editing(served, tmp_path) as editor:
        assert editor._process.stdin is not None
        editor._process.stdin.write(b"nonsense\n[1]\n\n")
        assert [(await editor.next())["error"]["code"] for _ in range(2)] == [-32700, -32700]
        cases: list[tuple[str, Any, int]] = [
            ("nope", {}, -32601),
            ("session/prompt", {}, -32602),
            ("session/load", {"sessionId": "0" * 26}, -32602),
            ("session/prompt", {"sessionId": "../../etc", "prompt": prompt("x")}, -32602),
        ]
        for method, params, code in cases:
            editor.send({"id": 1, "method": method, "params": params})
            assert (await editor.next())["error"]["code"] == code
        assert await editor.begin()


async def test_the_protocols_own_library_is_served(tmp_path: Path) -> None:
    acp = pytest.importorskip("acp")
    workshop, _ = workshop_at(tmp_path, calls("mark.send", text="mail"), says("Sent."))
    heard: list[str] = []

    class Client(acp.Client):  # type: ignore[misc, name-defined]
        async def request_permission(self, options: Any, session_id: str, tool_call: Any, **_: Any) -> Any:
            from acp.schema import AllowedOutcome, RequestPermissionResponse

            outcome = AllowedOutcome(outcome="selected", option_id=options[0].option_id)
            return RequestPermissionResponse(outcome=outcome)

        async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
            if update.session_update == "agent_message_chunk":
                heard.append(update.content.text)

    async with serve(workshop) as served:
        command = (sys.executable, "-m", "palyra", "acp", "--url", served.address)
        async with acp.spawn_agent_process(Client(), *command, env=environment(tmp_path)) as (connection, _):
            await connection.initialize(protocol_version=1)
            session = await connection.new_session(cwd="/", mcp_servers=[])
            done = await connection.prompt(session_id=session.session_id, prompt=[acp.text_block("send it")])
            assert done.stop_reason == "end_turn"
        assert (await served.engine.sessions.get(OWNER, session.session_id)).owner == OWNER
    assert "".join(heard) == "Sent."
    assert len(workshop.executed()) == 1
