"""One prompt of an editor: a run of the daemon, told as session updates.

Owns: following the run, showing its text and its calls, asking the person through the editor, and executing the
editor's own tools. Does not own: what a question shows (question), sessions (agent), the connection (stdio_rpc).
Invariant: text that was shown is not shown again after a broken stream.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING

from palyra.cli.acp.content import kind_of, text_block
from palyra.cli.acp.editor_files import EditorFiles
from palyra.cli.acp.question import answer_of, options_of, shown_call
from palyra.cli.daemon_call import Client
from palyra.cli.stdio_rpc import RpcPeer
from palyra.cli.terminal.full_card import read_full
from palyra.core.errors import Conflict, PalyraError, Unavailable
from palyra.core.events.base import JsonObject

if TYPE_CHECKING:
    from palyra.cli.sse import SseFrame

ENDS = ("run.done", "run.failed", "run.cancelled")
OUTPUT_SHOWN_MAX = 4_000
_STOPS = {"max_turns": "max_turn_requests", "max_tool_calls": "max_turn_requests", "cancelled": "cancelled"}


class PromptTurn:
    """Shows one run to its end."""

    def __init__(self, peer: RpcPeer, client: Client, session_id: str, files: EditorFiles) -> None:
        self._peer = peer
        self._client = client
        self._session_id = session_id
        self._files = files
        self._lengths: dict[tuple[str, object], int] = {}
        self._calls: dict[str, JsonObject] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._executing = asyncio.Lock()
        self._is_cancelled = False
        self._run_id = ""

    async def perform(self, body: JsonObject) -> JsonObject:
        """Returns the stop reason."""
        record = await self._client.start_run(body)
        self._run_id = str(record["id"])
        try:
            if self._is_cancelled:
                await self.cancel()
            self._spawn(self._tell_waiting())
            async for frame in self._client.follow(f"/runs/{self._run_id}/events", None, lambda _: None):
                self._show(frame)
                if frame.type in ENDS:
                    return self._stopped(frame)
        finally:
            for task in self._tasks:
                task.cancel()
        raise Unavailable("stream_ended", "the run's stream ended before the run")

    async def cancel(self) -> None:
        """Cancels the run; one that has not begun is cancelled as soon as it has."""
        self._is_cancelled = True
        if self._run_id:
            await self._client.post(f"/runs/{self._run_id}/cancel")

    def _show(self, frame: "SseFrame") -> None:
        data = frame.data
        match frame.type:
            case "model.delta":
                self._text("agent_message_chunk", data)
            case "reasoning.delta":
                self._text("agent_thought_chunk", data)
            case "model.output":
                self._text("agent_thought_chunk", {**data, "offset": 0, "text": data.get("reasoning")})
                self._text("agent_message_chunk", {**data, "offset": 0})
            case "tool.proposed":
                self._propose(data)
            case "tool.started":
                self._update_call(data, "in_progress")
            case "tool.finished":
                self._finish_call(data)
            case "approval.requested":
                self._spawn(self._ask(str(data.get("approval_id"))))
            case "run.waiting" if data.get("call_ids"):
                self._spawn(self._execute_owed())
            case _:
                pass

    def _text(self, kind: str, data: JsonObject) -> None:
        offset, text, key = data.get("offset"), data.get("text"), (kind, data.get("turn"))
        known = self._lengths.get(key, 0)
        if not isinstance(offset, int) or not isinstance(text, str) or offset > known:
            return
        fresh = text[known - offset :]
        if fresh:
            self._lengths[key] = known + len(fresh)
            self._update({"sessionUpdate": kind, "content": text_block(fresh)})

    def _propose(self, data: JsonObject) -> None:
        call_id, tool = str(data.get("call_id")), str(data.get("tool"))
        shown: JsonObject = {
            "toolCallId": call_id,
            "title": tool,
            "kind": kind_of(tool),
            "status": "pending",
            "rawInput": data.get("arguments"),
        }
        self._calls[call_id] = shown
        self._update({"sessionUpdate": "tool_call", **shown})

    def _update_call(self, data: JsonObject, status: str, **more: object) -> None:
        update = {"sessionUpdate": "tool_call_update", "toolCallId": data.get("call_id"), "status": status}
        self._update({**update, **more})

    def _finish_call(self, data: JsonObject) -> None:
        error = data.get("error")
        said = error.get("message") if isinstance(error, dict) else data.get("output")
        content = [{"type": "content", "content": text_block(str(said or "")[:OUTPUT_SHOWN_MAX])}]
        self._update_call(data, "completed" if data.get("outcome") == "ok" else "failed", content=content)

    async def _tell_waiting(self) -> None:
        """Says what holds up the prompt: an earlier run of the session may wait for an editor that is gone."""
        with suppress(PalyraError):
            for run in await self._client.items("/runs", 10, session_id=self._session_id, state="waiting"):
                if run["id"] != self._run_id:
                    said = (
                        f"[Run {run['id']} of this session waits for an answer, and this prompt waits for that run. "
                        f"palyra approvals shows open questions, palyra runs cancel {run['id']} ends it.]\n"
                    )
                    self._update({"sessionUpdate": "agent_thought_chunk", "content": text_block(said)})

    async def _ask(self, approval_id: str) -> None:
        """Puts a question to the person in the editor. One that is answered elsewhere meanwhile is left at that."""
        try:
            card = await self._client.get(f"/approvals/{approval_id}")
            if card.get("kind") == "uncertain":
                return
            if card.get("is_cut") is True:
                card = {**card, "preview": await read_full(self._client, approval_id)}
            asked: JsonObject = {
                "sessionId": self._session_id,
                "toolCall": shown_call(card),
                "options": options_of(card),
            }
            answer = answer_of(card, await self._peer.ask("session/request_permission", asked))
            if answer is not None:
                await self._client.post(f"/approvals/{approval_id}", answer)
        except Conflict:
            return
        except PalyraError as error:
            self._update({"sessionUpdate": "agent_thought_chunk", "content": text_block(f"[{error.message}]\n")})

    async def _execute_owed(self) -> None:
        """Executes the editor's own tools, and gives their results to the run.

        A run may wait again for a call that is still being executed, so this is done once at a time.
        """
        try:
            async with self._executing:
                for call in await self._owed():
                    result = await self._files.execute(call, self._calls.get(str(call["call_id"]), {}), self._owed)
                    await self._client.post(f"/runs/{self._run_id}/results", {"results": [result]})
        except PalyraError as error:
            self._update({"sessionUpdate": "agent_thought_chunk", "content": text_block(f"[{error.message}]\n")})

    async def _owed(self) -> list[JsonObject]:
        """Returns the calls whose results the run still waits for."""
        owed = (await self._client.get(f"/runs/{self._run_id}/calls")).get("items")
        return owed if isinstance(owed, list) else []

    def _stopped(self, frame: "SseFrame") -> JsonObject:
        reason = str(frame.data.get("reason"))
        if frame.type == "run.done":
            return {"stopReason": "end_turn"}
        if frame.type == "run.cancelled" or reason in _STOPS:
            return {"stopReason": _STOPS.get(reason, "cancelled")}
        raise Unavailable(f"run_{reason}", str(frame.data.get("message")) or "the run failed")

    def _update(self, update: JsonObject) -> None:
        self._peer.notify("session/update", {"sessionId": self._session_id, "update": update})

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
