"""The methods of ACP that an editor calls.

Owns: sessions and prompts of one editor. Does not own: showing a run (turn), the connection (stdio_rpc).
"""

import asyncio
import uuid

from palyra import __version__
from palyra.cli.acp.content import read_prompt, tell_folder, text_block
from palyra.cli.acp.editor_files import EditorFiles
from palyra.cli.acp.embedded import is_own
from palyra.cli.acp.turn import PromptTurn
from palyra.cli.daemon_call import Client
from palyra.cli.stdio_rpc import Lines, RpcPeer, unknown_method
from palyra.core.errors import Conflict, Invalid
from palyra.core.events.base import JsonObject

PROTOCOL_VERSION = 1
REPLAYED_EVENTS_MAX = 2_000
_SHOWN = {"message.user": "user_message_chunk", "message.assistant": "agent_message_chunk"}


class AcpAgent:
    """`agent` is the daemon's agent for new sessions; None for its default."""

    def __init__(self, client: Client, lines: Lines, agent: str | None = None) -> None:
        self._client = client
        self._agent = agent
        self._peer = RpcPeer(lines, self._handle)
        self._turns: dict[str, PromptTurn] = {}
        self._fs: JsonObject = {}
        self._folders: dict[str, str] = {}

    async def serve(self) -> None:
        await self._peer.serve()

    async def _handle(self, method: str, params: JsonObject) -> JsonObject | None:
        match method:
            case "initialize":
                return self._initialize(params)
            case "authenticate":
                return {}
            case "session/new":
                return await self._open(params)
            case "session/load":
                return await self._load(params)
            case "session/prompt":
                return await self._prompt(params)
            case "session/cancel":
                await self._cancel(params)
                return None
            case _:
                raise unknown_method(method)

    def _initialize(self, params: JsonObject) -> JsonObject:
        match params.get("clientCapabilities"):
            case {"fs": dict() as fs}:
                self._fs = fs
            case _:
                self._fs = {}
        return {
            "protocolVersion": PROTOCOL_VERSION,
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
            },
            "agentInfo": {"name": "palyra", "title": "Palyra", "version": __version__},
            "authMethods": [],
        }

    async def _open(self, params: JsonObject) -> JsonObject:
        body: JsonObject = {} if self._agent is None else {"agent": self._agent}
        session_id = str((await self._client.post("/sessions", body))["id"])
        self._folders[session_id] = str(params.get("cwd", ""))
        return {"sessionId": session_id}

    async def _load(self, params: JsonObject) -> JsonObject:
        """Shows again what was said in a session."""
        session_id = _session_id(params)
        await self._client.get(f"/sessions/{session_id}")
        self._folders[session_id] = str(params.get("cwd", ""))
        for event in await self._client.items(f"/sessions/{session_id}/tape", REPLAYED_EVENTS_MAX):
            kind, data = _SHOWN.get(str(event.get("type"))), event.get("data")
            if kind is not None and isinstance(data, dict) and data.get("text"):
                update = {"sessionUpdate": kind, "content": text_block(str(data["text"]))}
                self._peer.notify("session/update", {"sessionId": session_id, "update": update})
        return {}

    async def _prompt(self, params: JsonObject) -> JsonObject:
        session_id = _session_id(params)
        if session_id in self._turns:
            raise Conflict("session_busy", "the session answers another prompt; cancel it or wait")
        folder, blocks = self._folders.get(session_id), params.get("prompt")
        has_read, has_write = self._fs.get("readTextFile") is True, self._fs.get("writeTextFile") is True
        files = EditorFiles(self._peer, session_id, folder, has_read=has_read, has_write=has_write)
        turn = self._turns[session_id] = PromptTurn(self._peer, self._client, session_id, files)
        try:
            text, attachments = await asyncio.to_thread(
                read_prompt, blocks, lambda uri, body: is_own(uri, body, folder)
            )
            return await turn.perform(
                {
                    "session_id": session_id,
                    "text": text,
                    "attachments": attachments,
                    "idempotency_key": f"acp-{uuid.uuid4()}",
                    "tools": files.tools(),
                    "instructions": tell_folder(folder or ""),
                }
            )
        finally:
            del self._turns[session_id]

    async def _cancel(self, params: JsonObject) -> None:
        turn = self._turns.get(_session_id(params))
        if turn is not None:
            await turn.cancel()


def _session_id(params: JsonObject) -> str:
    session_id = params.get("sessionId")
    if not isinstance(session_id, str) or not session_id.isalnum():
        raise Invalid("session_unknown", "sessionId is missing, or not one of this agent")
    return session_id
