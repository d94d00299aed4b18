"""A stand-in for the daemon: enough of its HTTP API for the command line, with one tape and scripted runs.

A word in the text of a run chooses what it does. `approval` asks, and with `settled` somebody answers at once. `slow`
continues until it is cancelled or steered. `fail` fails. `drop` breaks every stream once in the middle. `tokens`
streams `TOKENS` one by one, also while `approval` asks. Each answer of the client is kept in `calls`.
"""

import asyncio
import hashlib
import json
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from tests.support.waiting import WAIT_S, until, wait_until

SESSION = "01JZ0000000000000000SESS01"
APPROVAL = "0Q3K5TB1V9C7XZ2M8N4R6S0W1Y"
CHILD = "01JZ0000000000000000CH1D01"
GRANT = "0G3K5TB1V9C7XZ2M8N4R6S0W1Y"
TOKEN = "stand-in-token"
START_MS = 1_750_000_000_000
OPTIONS = [
    {"scope": "once", "constraints": [], "text": "this call"},
    {"scope": "session", "constraints": [], "text": "commands that begin with make"},
    {"scope": "timeboxed", "constraints": [], "text": "commands that begin with make"},
]
TOKENS = [f"w{number:03}-" for number in range(200)]
ENDS = ("run.done", "run.failed", "run.cancelled")
Json = dict[str, Any]


class StandIn:
    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Json]] = []
        self.cursors: list[str | None] = []
        self.objectives: list[Json] = []
        self.other_sessions: list[Json] = []
        self.sources: list[str | None] = []
        self.tape: list[Json] = []
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._queues: set[asyncio.Queue[Json | None]] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._answers: asyncio.Queue[Json] = asyncio.Queue()
        self._inputs: asyncio.Queue[str] = asyncio.Queue()
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> "StandIn":
        self._thread.start()
        self._do(self._open())
        return self

    def stop(self) -> None:
        self._do(self._close())
        self._do(self._end_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def go_away(self) -> None:
        self._do(self._close())

    def begin_again(self) -> None:
        """Returns at the same address with the same tape."""
        self._do(self._open())

    def wait_for_stream(self, count: int) -> None:
        """Waits until this many streams were opened."""
        wait_until(lambda: len(self.cursors) >= count, "a stream")

    def answer_elsewhere(self, number: str, decision: str) -> None:
        """Records the answer of somebody else to one of several questions."""

        async def record() -> None:
            status = "allowed" if decision == "allow" else "denied"
            data = {"approval_id": number, "status": status, "decision": decision, "decided_by": "user:other"}
            self._record(self.run_ids()[-1], "approval.resolved", **data, reason="")
            self._answers.put_nowait({"decision": decision})

        self._do(record())

    def sent(self, path: str) -> list[Json]:
        return [body for _, called, body in self.calls if called == path]

    def _do(self, act: Awaitable[Any]) -> Any:
        async def wait() -> Any:
            return await act

        return asyncio.run_coroutine_threadsafe(wait(), self._loop).result(WAIT_S)

    async def _open(self) -> None:
        app = web.Application(middlewares=[self._guard], client_max_size=64 << 20)
        for method, path, answer in self._routes():
            app.router.add_route(method, path, answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _close(self) -> None:
        self._cut()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _end_tasks(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _cut(self) -> None:
        for queue in self._queues:
            queue.put_nowait(None)

    def _routes(self) -> list[tuple[str, str, Callable[[web.Request], Awaitable[web.StreamResponse]]]]:
        api = "/api/v1"
        return [
            ("GET", "/healthz", self._health),
            ("POST", f"{api}/sessions", self._session),
            ("GET", f"{api}/sessions", self._sessions),
            ("GET", f"{api}/sessions/{SESSION}", self._session),
            ("PATCH", f"{api}/sessions/{SESSION}", self._session),
            ("DELETE", f"{api}/sessions/{SESSION}", self._nothing),
            ("POST", f"{api}/sessions/{SESSION}/reset", self._session),
            ("POST", f"{api}/sessions/{SESSION}/branch", self._session),
            ("GET", f"{api}/sessions/{SESSION}/taint", self._taint),
            ("POST", f"{api}/sessions/{SESSION}/trust", self._taint),
            ("DELETE", f"{api}/sessions/{SESSION}/trust", self._taint),
            ("GET", f"{api}/sessions/{SESSION}/tape", self._page),
            ("GET", f"{api}/sessions/{SESSION}/events", self._events),
            ("POST", f"{api}/artifacts", self._artifact),
            ("POST", f"{api}/runs", self._start),
            ("GET", f"{api}/runs", self._runs),
            ("GET", f"{api}/runs/{{run}}", self._run),
            ("GET", f"{api}/runs/{{run}}/tree", self._tree),
            ("GET", f"{api}/runs/{{run}}/events", self._events),
            ("POST", f"{api}/runs/{{run}}/input", self._input),
            ("POST", f"{api}/runs/{{run}}/cancel", self._cancel),
            ("GET", f"{api}/approvals", self._approvals),
            ("GET", f"{api}/approvals/{APPROVAL}", self._approval),
            ("POST", f"{api}/approvals/{APPROVAL}", self._answer),
            ("POST", f"{api}/approvals/{{number:[0-9]}}", self._answer_one),
            ("GET", f"{api}/grants", self._grants),
            ("DELETE", f"{api}/grants/{GRANT}", self._nothing),
        ]

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        body = await self._read(request)
        self.calls.append((request.method, request.path.removeprefix("/api/v1"), body))
        if request.path != "/healthz" and request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return _error(401, "token_invalid", "the token is unknown")
        try:
            return await handler(request)
        except web.HTTPNotFound:
            return _error(404, "run_unknown", "there is no such thing")

    async def _read(self, request: web.Request) -> Json:
        if not request.can_read_body:
            return {}
        if request.path.endswith("/artifacts"):
            return {"media_type": request.content_type, "body": await request.read()}
        return await request.json()

    async def _artifact(self, request: web.Request) -> web.Response:
        body = self.calls[-1][2]["body"]
        artifact_id = hashlib.sha256(body).hexdigest()
        return web.json_response(
            {"id": artifact_id, "bytes": len(body), "media_type": request.content_type}, status=201
        )

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _nothing(self, request: web.Request) -> web.Response:
        return web.Response(status=204)

    async def _session(self, request: web.Request) -> web.Response:
        return web.json_response(self.session())

    async def _sessions(self, request: web.Request) -> web.Response:
        return web.json_response({"items": [self.session(), *self.other_sessions], "next_after": None})

    async def _taint(self, request: web.Request) -> web.Response:
        self.sources.append(request.query.get("source"))
        item = {"source": "http:a", "since_seq": 4, "call_id": "c1", "tool": "http.fetch", "is_trusted": False}
        return web.json_response({"items": [item], "next_after": None})

    def session(self) -> Json:
        active = next((run for run in reversed(self.run_ids()) if not self._is_ended(run)), None)
        return {"id": SESSION, "key": "cli", "label": None, "owner": "user:owner", "agent": "main", "seq": len(self.tape),
                "parent_id": None, "active_run_id": active, "created_at_ms": START_MS, "updated_at_ms": START_MS}  # fmt: skip

    async def _page(self, request: web.Request) -> web.Response:
        after, limit = int(request.query.get("after", 0)), int(request.query.get("limit", 100))
        events = self.tape[after : after + limit]
        last = after + limit if len(self.tape) > after + limit else None
        return web.json_response({"events": events, "next_after": last})

    async def _start(self, request: web.Request) -> web.Response:
        body = await request.json()
        key = body.get("idempotency_key")
        known = [event["run_id"] for event in self.tape if event["data"].get("idempotency_key") == key]
        run = known[0] if known else f"01JZ0000000000000000RVN{len(self.run_ids()) + 1:03}"
        if not known:
            self._record(run, "run.accepted", agent="main", origin="http", can_ask=True, idempotency_key=key)
            self._record(run, "message.user", text=body["text"])
            self._tasks[run] = asyncio.create_task(self._play(run, body["text"]))
        return web.json_response(self.run(run), status=202)

    async def _runs(self, request: web.Request) -> web.Response:
        return web.json_response({"items": [self.run(run) for run in self.run_ids()], "next_after": None})

    async def _run(self, request: web.Request) -> web.Response:
        return web.json_response(self.run(request.match_info["run"]))

    async def _tree(self, request: web.Request) -> web.Response:
        record = self.run(request.match_info["run"])
        node = {"task": "look at it", "depth": 0, "parent_run_id": None, **record, "children": []}
        children = [{**node, "id": CHILD, "depth": 1, "task": "a part\x1b[2J of it", "parent_run_id": record["id"]}]
        total = {"input_tokens": 20, "output_tokens": 10, "cost_usd": 0.002}
        return web.json_response(
            {"root": {**node, "children": children}, "runs_count": 2, "total": total, "is_cut": False}
        )

    def run_ids(self) -> list[str]:
        return [event["run_id"] for event in self.tape if event["type"] == "run.accepted"]

    def run(self, run: str) -> Json:
        events = [event for event in self.tape if event["run_id"] == run]
        if not events:
            raise web.HTTPNotFound
        end = next((event for event in events if event["type"] in ENDS), None)
        answer = next((event["data"]["text"] for event in events if event["type"] == "message.assistant"), None)
        failed = end is not None and end["type"] != "run.done"
        return {
            "id": run, "session_id": SESSION, "state": end["type"][4:] if end else "in_progress",
            "reason": end["data"]["reason"] if end else None, "answer": answer,
            "error": {"code": end["data"]["reason"], "message": "it failed"} if end and failed else None,
            "usage": {"input_tokens": 10, "output_tokens": 5, "cost_usd": 0.001}, "agent": "main", "origin": "http",
            "principal": "user:owner", "accepted_seq": events[0]["seq"], "ended_seq": end["seq"] if end else None,
            "created_at_ms": events[0]["at_ms"], "updated_at_ms": events[-1]["at_ms"], "objectives": self.objectives,
        }  # fmt: skip

    async def _input(self, request: web.Request) -> web.Response:
        run, body = request.match_info["run"], await request.json()
        if self._is_ended(run):
            return _error(409, "run_ended", "the run has ended")
        self._record(run, "message.user", text=body["text"])
        self._inputs.put_nowait(body["text"])
        return web.json_response(self.run(run), status=202)

    async def _cancel(self, request: web.Request) -> web.Response:
        run = request.match_info["run"]
        self._tasks[run].cancel()
        if not self._is_ended(run):
            self._record(run, "run.cancelled", reason="cancelled", message="asked to")
        return web.json_response(self.run(run), status=202)

    async def _approvals(self, request: web.Request) -> web.Response:
        is_decided = any(event["type"] == "approval.resolved" for event in self.tape)
        is_listed = self._is_asked() or (is_decided and "status" not in request.query)
        return web.json_response({"items": [self.approval()] if is_listed else [], "next_after": None})

    async def _approval(self, request: web.Request) -> web.Response:
        return web.json_response(self.approval())

    def approval(self) -> Json:
        return {"id": APPROVAL, "kind": "tool", "run_id": self.run_ids()[-1], "session_id": SESSION, "call_id": "c1",
                "tool": "shell.run", "arguments": {"command": "make test"}, "status": "pending", "rule": "shell_asks",
                "policies": ["shell"], "risk": "high", "taint": [], "digest": "0", "preview": None, "options": OPTIONS,
                "created_at_ms": START_MS, "expires_at_ms": START_MS, "decided_by": None}  # fmt: skip

    async def _answer(self, request: web.Request) -> web.Response:
        if not self._is_asked():
            return _error(409, "approval_decided", "it is decided already")
        body = await request.json()
        status = "allowed" if body["decision"] == "allow" else "denied"
        data = {"approval_id": APPROVAL, "status": status, "decision": body["decision"], "decided_by": "user:owner"}
        self._record(self.run_ids()[-1], "approval.resolved", **data, reason=body.get("reason", ""))
        self._answers.put_nowait(body)
        return web.json_response({**self.approval(), "status": status})

    async def _answer_one(self, request: web.Request) -> web.Response:
        """Answers one of the three questions that `several` asks."""
        number, body = request.match_info["number"], await request.json()
        status = "allowed" if body["decision"] == "allow" else "denied"
        data = {"approval_id": number, "status": status, "decision": body["decision"], "decided_by": "user:owner"}
        self._record(self.run_ids()[-1], "approval.resolved", **data, reason=body.get("reason", ""))
        self._answers.put_nowait(body)
        return web.json_response({"id": number, "status": status})

    async def _grants(self, request: web.Request) -> web.Response:
        constraint = {"argument": "command", "operator": "begins", "value": "make"}
        grant = {"id": GRANT, "session_id": SESSION, "tool": "shell.run", "scope": "session", "constraints": [constraint],
                 "principal": "user:owner", "agent": "main", "is_revoked": False, "expires_at_ms": None}  # fmt: skip
        refusal = {**grant, "id": GRANT[::-1], "kind": "refusal"}
        return web.json_response({"items": [{**grant, "kind": "grant"}, refusal], "next_after": None})

    def _is_ended(self, run: str) -> bool:
        return any(event["run_id"] == run and event["type"] in ENDS for event in self.tape)

    def _is_asked(self) -> bool:
        counts = [
            sum(event["type"] == name for event in self.tape) for name in ("approval.requested", "approval.resolved")
        ]
        return counts[0] > counts[1]

    async def _events(self, request: web.Request) -> web.StreamResponse:
        run = request.match_info.get("run")
        cursor = request.headers.get("Last-Event-ID")
        self.cursors.append(cursor)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        queue: asyncio.Queue[Json | None] = asyncio.Queue()
        for event in self.tape[int(cursor or 0) :]:
            queue.put_nowait(event)
        self._queues.add(queue)
        try:
            while (frame := await queue.get()) is not None:
                await response.write(_encoded(frame))
                if run is not None and frame["type"] in ENDS and frame["run_id"] == run:
                    break
        except ConnectionError:
            pass  # The client has disconnected.
        finally:
            self._queues.discard(queue)
        if request.transport is not None:
            request.transport.close()
        return response

    def _record(self, run: str, name: str, **data: Any) -> None:
        seq = len(self.tape) + 1
        event = {"seq": seq, "position": seq, "session_id": SESSION, "run_id": run, "type": name,
                 "at_ms": START_MS + seq * 100, "actor": "user:owner", "trust": "operator", "data": data}  # fmt: skip
        self.tape.append(event)
        for queue in self._queues:
            queue.put_nowait(event)

    def _live(self, run: str, name: str, **data: Any) -> None:
        for queue in self._queues:
            queue.put_nowait({"session_id": SESSION, "run_id": run, "type": name, "data": data})

    async def _play(self, run: str, text: str) -> None:
        self._record(run, "run.started")
        if "tokens" in text:
            await self._play_tokens(run, "approval" in text)
        elif "several" in text:
            await self._play_several(run)
        elif "approval" in text:
            await self._play_approval(run, "settled" in text)
        elif "slow" in text:
            await self._play_slow(run)
        elif "fail" in text:
            self._record(run, "model.failed", turn=1, code="network", message="no way out")
            self._record(run, "run.failed", reason="provider_error", message="the provider is down")
            return
        await self._finish(run, f"You said \x1b[2Jso: {text}", "drop" in text)

    async def _play_approval(self, run: str, is_settled: bool = False) -> None:
        self._record(run, "tool.proposed", call_id="c1", tool="shell.run", arguments={"command": "make test"})
        self._record(run, "tool.judged", call_id="c1", verdict="ask", rule="shell_asks", reason="it runs a program")
        self._record(
            run, "approval.requested", approval_id=APPROVAL, kind="tool", digest="0", rule="shell_asks",
            expires_at_ms=None, call_id="c1", tool="shell.run", risk="high", options=OPTIONS,
        )  # fmt: skip
        if is_settled:
            self._record(run, "approval.resolved", approval_id=APPROVAL, status="denied", decided_by="user:other")
            return
        self._record(run, "run.waiting", approval_ids=[APPROVAL])
        answer = await self._answers.get()
        self._record(run, "run.resumed", cause="approval")
        if answer["decision"] == "allow":
            self._record(run, "tool.started", call_id="c1", effect_id="e1")
            self._record(run, "tool.finished", call_id="c1", effect_id="e1", outcome="ok", error=None, output="fine")

    async def _play_several(self, run: str) -> None:
        """Asks three questions at once, and goes on when all are answered."""
        commands = ("make one", "make two", "rm -r three")
        for number, command in enumerate(commands, start=1):
            call_id, facts = f"c{number}", {"kind": "tool", "digest": "0", "rule": "shell_asks", "expires_at_ms": None}
            self._record(run, "tool.proposed", call_id=call_id, tool="shell.run", arguments={"command": command})
            self._record(run, "tool.judged", call_id=call_id, verdict="ask", rule="shell_asks", reason="it runs")
            self._record(
                run, "approval.requested", approval_id=str(number), call_id=call_id, tool="shell.run", risk="high",
                options=OPTIONS, **facts,
            )  # fmt: skip
        self._record(run, "run.waiting", approval_ids=["1", "2", "3"])
        for _ in commands:
            await self._answers.get()
        self._record(run, "run.resumed", cause="approval")

    async def _play_tokens(self, run: str, is_asked: bool) -> None:
        asking = asyncio.create_task(self._play_approval(run)) if is_asked else None
        for number, token in enumerate(TOKENS):
            self._live(run, "model.delta", turn=1, offset=5 * number, text=token)
            await asyncio.sleep(0.005)
        if asking is not None:
            await asking
        text = "".join(TOKENS)
        self._record(run, "model.output", turn=1, text=text, tool_calls=[], finish="tool_calls", usage=None)

    async def _play_slow(self, run: str) -> None:
        self._live(run, "model.delta", turn=1, offset=0, text="Thinking about it")
        said = await self._inputs.get()
        self._record(
            run, "model.output", turn=1, text="Thinking about it", tool_calls=[], finish="interrupted", usage=None
        )
        self._live(run, "model.delta", turn=2, offset=0, text=f"Steered to {said}. ")

    async def _finish(self, run: str, answer: str, is_dropped: bool) -> None:
        half = len(answer) // 2
        self._live(run, "model.delta", turn=3, offset=0, text=answer[:half])
        await asyncio.sleep(0.05)
        if is_dropped:
            await until(lambda: self._queues, "a stream that can be cut")
            self._cut()
            await asyncio.sleep(0.3)
            self._live(run, "model.delta", turn=3, offset=0, text=answer[:half])
        self._live(run, "model.delta", turn=3, offset=half, text=answer[half:])
        self._record(run, "model.output", turn=3, text=answer, tool_calls=[], finish="stop", usage=None)
        self._record(
            run, "usage.recorded", model="m", input_tokens=10, output_tokens=5, cached_tokens=0, cost_usd=0.001
        )
        self._record(run, "message.assistant", text=answer)
        self._record(run, "run.done", reason="final_answer", message="")


def _encoded(frame: Json) -> bytes:
    identity = f"id: {frame['seq']}\n" if "seq" in frame else ""
    return f": beat\n{identity}event: {frame['type']}\ndata: {json.dumps(frame)}\n\n".encode()


def _error(status: int, code: str, message: str) -> web.Response:
    return web.json_response({"error": {"code": code, "message": message, "retryable": False}}, status=status)
