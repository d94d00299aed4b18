"""The client over HTTP.

Owns: one method for each route it uses, errors as RequestFailed, and following a run over broken connections.
Does not own: the records (records), other routes: `request` reaches those.
"""

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import msgspec

from palyra.client.records import (
    ApprovalText,
    LiveUpdate,
    RemoteApproval,
    RemoteRun,
    RemoteSession,
    RequestFailed,
    ResultPage,
    RunUpdate,
    RunWish,
    TapeEvent,
)

if TYPE_CHECKING:
    from ssl import SSLContext

    import httpx2

CONNECT_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 60.0
SILENCE_S = 45.0  # Three heartbeats of the daemon. A stream that is silent for longer is opened again.
RECONNECTS_MAX = 10  # In a row, without an event in between.
RECONNECT_PAUSE_S = 0.5
ENDED_STATES = frozenset({"done", "failed", "cancelled"})

Shape = TypeVar("Shape")


class _TapePage(msgspec.Struct, frozen=True):
    events: tuple[TapeEvent, ...]
    next_after: int | None


class _ErrorBody(msgspec.Struct, frozen=True):
    code: str
    message: str
    retryable: bool = False


class _ErrorAnswer(msgspec.Struct, frozen=True):
    error: _ErrorBody


class HttpGatewayClient:
    """`ca_file` is a PEM file with the daemon's own certificate, or that of the authority that signed it."""

    def __init__(self, url: str, token: str, *, ca_file: str | None = None) -> None:
        import httpx2

        self._client = httpx2.AsyncClient(
            base_url=url,
            headers={"authorization": f"Bearer {token}"},
            timeout=httpx2.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            verify=True if ca_file is None else _trust(ca_file),
            trust_env=False,
        )
        self._lost = httpx2.TransportError

    async def __aenter__(self) -> "HttpGatewayClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._client.aclose()

    async def request(self, method: str, path: str, shape: type[Shape], body: object = None) -> Shape:
        """Any route: its answer as the given type. RequestFailed with the daemon's code, or `unreachable`."""
        content = msgspec.json.encode(body) if body is not None else None
        try:
            answer = await self._client.request(method, path, content=content)
        except self._lost as cause:
            raise RequestFailed("unreachable", f"the daemon does not answer: {cause}", is_retryable=True) from cause
        if answer.is_error:
            raise _failure(answer.status_code, answer.content)
        return msgspec.json.decode(answer.content, type=shape)

    async def resolve_session(self, *, key: str | None = None, label: str | None = None) -> RemoteSession:
        """Finds the session of that key or label, or creates it. Without both it creates one."""
        named = {name: value for name, value in (("key", key), ("label", label)) if value is not None}
        return await self.request("POST", "/api/v1/sessions", RemoteSession, named)

    async def list_sessions(self, after: str = "", limit: int = 100) -> ResultPage[RemoteSession]:
        path = f"/api/v1/sessions?after={after}&limit={limit}"
        return await self.request("GET", path, ResultPage[RemoteSession])

    async def start_run(self, wish: RunWish) -> RemoteRun:
        return await self.request("POST", "/api/v1/runs", RemoteRun, wish)

    async def get_run(self, run_id: str) -> RemoteRun:
        return await self.request("GET", f"/api/v1/runs/{run_id}", RemoteRun)

    async def send_input(self, run_id: str, text: str) -> RemoteRun:
        return await self.request("POST", f"/api/v1/runs/{run_id}/input", RemoteRun, {"text": text})

    async def cancel_run(self, run_id: str) -> RemoteRun:
        return await self.request("POST", f"/api/v1/runs/{run_id}/cancel", RemoteRun, {})

    async def list_approvals(self, status: str = "pending", after: str = "") -> ResultPage[RemoteApproval]:
        path = f"/api/v1/approvals?status={status}&after={after}"
        return await self.request("GET", path, ResultPage[RemoteApproval])

    async def read_approval(self, approval_id: str) -> str:
        """Reads all that the approval would allow, page by page."""
        offset: int | None = 0
        pages: list[str] = []
        while offset is not None:
            page = await self.request("GET", f"/api/v1/approvals/{approval_id}/full?offset={offset}", ApprovalText)
            pages.append(page.text)
            offset = page.next_offset
        return "".join(pages)

    async def answer_approval(self, approval_id: str, decision: str, scope: str = "once") -> RemoteApproval:
        body = {"decision": decision, "scope": scope}
        return await self.request("POST", f"/api/v1/approvals/{approval_id}", RemoteApproval, body)

    async def read_tape(self, session_id: str, after: int = 0) -> AsyncIterator[TapeEvent]:
        """Every event of a session after that seq, page by page."""
        cursor: int | None = after
        while cursor is not None:
            page = await self.request("GET", f"/api/v1/sessions/{session_id}/tape?after={cursor}", _TapePage)
            for event in page.events:
                yield event
            cursor = page.next_after

    async def follow(self, run_id: str, after_seq: int | None = None) -> AsyncIterator[RunUpdate]:
        """The run's events and live text, to its end. A broken connection goes on behind the last event."""
        progress = _FollowProgress(after_seq)
        while not progress.is_over:
            progress.is_empty = True
            try:
                async for update in self._follow_once(run_id, progress.cursor):
                    progress.note(update)
                    yield update
            except self._lost as cause:
                progress.note_loss(run_id, cause)
                await asyncio.sleep(RECONNECT_PAUSE_S)
            else:
                await self._rest(run_id, progress)

    async def _rest(self, run_id: str, progress: "_FollowProgress") -> None:
        """After a stream that ended by itself: nothing more comes of a run that is over."""
        if progress.is_over:
            return
        is_ended = (await self.get_run(run_id)).state in ENDED_STATES
        progress.is_over = is_ended and progress.is_empty
        await asyncio.sleep(RECONNECT_PAUSE_S)

    async def _follow_once(self, run_id: str, cursor: int | None) -> AsyncIterator[RunUpdate]:
        headers = {"accept": "text/event-stream"}
        if cursor is not None:
            headers["last-event-id"] = str(cursor)
        path = f"/api/v1/runs/{run_id}/events"
        async with self._client.stream("GET", path, headers=headers, timeout=self._stream_timeout()) as answer:
            if answer.is_error:
                raise _failure(answer.status_code, await answer.aread())
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    yield _update(line[6:])

    def _stream_timeout(self) -> "httpx2.Timeout":
        import httpx2

        return httpx2.Timeout(SILENCE_S, connect=CONNECT_TIMEOUT_S)


class _FollowProgress:
    """How far a run was followed. `is_empty` says that the stream under way has given nothing yet."""

    def __init__(self, cursor: int | None) -> None:
        self.cursor = cursor
        self.is_over = False
        self.is_empty = True
        self._failed_count = 0

    def note(self, update: RunUpdate) -> None:
        self.is_empty, self._failed_count = False, 0
        if isinstance(update, TapeEvent):
            self.cursor, self.is_over = update.seq, update.is_terminal

    def note_loss(self, run_id: str, cause: Exception) -> None:
        self._failed_count += 1
        if self._failed_count > RECONNECTS_MAX:
            raise RequestFailed("unreachable", f"the stream of run {run_id} is lost", is_retryable=True) from cause


def _update(text: str) -> RunUpdate:
    """A frame with a seq is a recorded event."""
    members = msgspec.json.decode(text, type=dict[str, object])
    return msgspec.convert(members, TapeEvent) if "seq" in members else msgspec.convert(members, LiveUpdate)


def _failure(status: int, content: bytes) -> RequestFailed:
    try:
        error = msgspec.json.decode(content, type=_ErrorAnswer).error
    except msgspec.DecodeError:
        return RequestFailed("answer_invalid", f"status {status} without an error that this client knows")
    return RequestFailed(error.code, error.message, is_retryable=error.retryable)


def _trust(ca_file: str) -> "SSLContext":
    import ssl

    context = ssl.create_default_context(cafile=ca_file)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # A daemon's own certificate need not be an authority's.
    return context
