"""The editor's files as tools of its own: what is open and unsaved there is read and written by the editor.

Owns: which tools an editor brings along, and executing them. Does not own: tools of the daemon, which work on the
agent's workspace.
Invariants: a file is written, and one outside the open folder is read, only after the person said yes in the editor:
these calls pass no policy of the daemon. A yes that comes after the run went on without the call does nothing.
"""

import os
from collections.abc import Awaitable, Callable
from typing import Any

from palyra.cli.stdio_rpc import RpcPeer
from palyra.core.errors import PalyraError
from palyra.core.events.base import JsonObject

READ, WRITE = "editor_read_file", "editor_write_file"
OUTPUT_CHARS_MAX = 190_000  # Below what the daemon takes as one result.
Owed = Callable[[], Awaitable[list[JsonObject]]]
IsAllowed = Callable[[str], Awaitable[bool]]
_PATH: JsonObject = {"type": "string", "description": "An absolute path"}


class EditorFiles:
    """`has_read` and `has_write` are the editor's capabilities. `folder` is the one that it has open, if it said so."""

    def __init__(self, peer: RpcPeer, session_id: str, folder: str | None, *, has_read: bool, has_write: bool) -> None:
        self._peer = peer
        self._session_id = session_id
        self._folder = folder
        self._names = [name for name, has in ((READ, has_read), (WRITE, has_write)) if has]

    def tools(self) -> list[JsonObject]:
        known: dict[str, JsonObject] = {
            READ: {
                "name": READ,
                "description": (
                    "Reads a file of the person's editor, with changes that are not saved yet. "
                    "The person is asked about one outside the open folder."
                ),
                "parameters": {"type": "object", "properties": {"path": _PATH}, "required": ["path"]},
            },
            WRITE: {
                "name": WRITE,
                "description": "Writes a whole file in the person's editor. The person is asked first.",
                "parameters": {
                    "type": "object",
                    "properties": {"path": _PATH, "content": {"type": "string"}},
                    "required": ["path", "content"],
                },
            },
        }
        return [known[name] for name in self._names]

    async def execute(self, call: Any, shown: JsonObject, owed: Owed) -> JsonObject:
        """Returns the result of one call, for the daemon. `owed` tells which calls the run still waits for."""

        async def is_allowed(act: str) -> bool:
            return await self._is_allowed(shown, act) and call.get("call_id") in [
                each.get("call_id") for each in await owed()
            ]

        try:
            output = await self._perform(call.get("tool"), call.get("arguments"), is_allowed)
        except PalyraError as error:
            return {"call_id": call.get("call_id"), "output": error.message, "is_error": True}
        is_refused = output is None
        text = "The person said no, or the arguments do not fit." if output is None else output
        return {"call_id": call.get("call_id"), "output": text[:OUTPUT_CHARS_MAX], "is_error": is_refused}

    async def _perform(self, tool: object, arguments: object, is_allowed: IsAllowed) -> str | None:
        match tool, arguments:
            case "editor_read_file", {"path": str() as path}:
                if not self._is_open(path) and not await is_allowed("Read"):
                    return None
                read = await self._peer.ask("fs/read_text_file", {"sessionId": self._session_id, "path": path})
                return str(read.get("content", ""))
            case "editor_write_file", {"path": str() as path, "content": str() as content}:
                if not await is_allowed("Write"):
                    return None
                written: JsonObject = {"sessionId": self._session_id, "path": path, "content": content}
                await self._peer.ask("fs/write_text_file", written)
                return "Written."
            case _:
                return None

    def _is_open(self, path: str) -> bool:
        """Tells whether a file lies in the open folder, wherever links lead: not every editor looks at that itself."""
        if not self._folder or "\0" in path:
            return False
        folder = os.path.realpath(self._folder)
        return os.path.isabs(path) and os.path.commonpath((folder, os.path.realpath(path))) == folder

    async def _is_allowed(self, shown: JsonObject, act: str) -> bool:
        options = [
            {"optionId": "allow", "name": f"{act} the file", "kind": "allow_once"},
            {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
        ]
        question: JsonObject = {"sessionId": self._session_id, "toolCall": shown, "options": options}
        outcome = (await self._peer.ask("session/request_permission", question)).get("outcome")
        return isinstance(outcome, dict) and outcome.get("optionId") == "allow"
