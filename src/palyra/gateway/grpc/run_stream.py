"""RunStream: one run over a bidirectional stream.

Owns: the first message, acknowledging later ones, writing frames, and the end of the stream.
Does not own: the frames' bytes (frames), following (engine.hub), how many streams there may be (gateway.http.sse).
Invariants: a stream that ends, breaks or is too slow changes nothing about its run. A message counts only with a token
that is valid when it comes. Only one task writes. Frames are taken when those before them are written, so what a client
does not read stays with the hub and the tape. A client that takes nothing for a while is cut. At most a few
acknowledgements wait; beyond that no more of its messages are read.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

import grpc

from palyra.core.errors import Invalid, PalyraError, Unavailable
from palyra.core.ids import RunId
from palyra.engine.api.requests import StartedRun
from palyra.engine.hub import Frames
from palyra.gateway.access.caller import Caller
from palyra.gateway.access.resources import APPROVAL, RUN, ResourceRef
from palyra.gateway.grpc.call_edge import AnyContext, CallEdge, is_refusal
from palyra.gateway.grpc.frames import StreamBytes
from palyra.gateway.grpc.messages import parse, read, read_answer, read_run
from palyra.gateway.grpc.settings import ANSWERS_WAITING_MAX, FIRST_MESSAGE_S, LATE_ANSWER_S, WRITE_TIMEOUT_S
from palyra.gateway.http.sse import StreamSlot
from palyra.gateway.routes.bodies import FeedQuery
from palyra.gateway.routes.runs import InputBody
from palyra.gateway.v1 import approvals_pb2, runs_pb2


class RunStreams:
    """Serves every RunStream; `serve` is one of them from its begin to its end."""

    def __init__(self, edge: CallEdge) -> None:
        self._edge = edge
        self._bytes = StreamBytes()

    async def serve(self, context: AnyContext) -> None:
        caller = await self._edge.admit(context)
        slots = self._edge.services.slots
        with slots.reserved(caller.token_id) as slot:
            started, frames = await self._open(caller, await _read_first(context))
        stream = _OpenStream(self._edge, context, started.id)
        try:
            await self._run(stream, slot, frames, started)
        finally:
            frames.close()
            slots.leave(slot)

    async def _open(self, caller: Caller, first: runs_pb2.RunStreamRequest) -> tuple[StartedRun, Frames]:
        runs = self._edge.services.engine.runs
        match first.WhichOneof("message"):
            case "start":
                principal = await self._edge.viewer_for(caller, "runs.start")
                self._edge.services.require_open()
                return await runs.start_and_follow(principal, read_run(first.start, caller))
            case "follow":
                asked = first.follow
                viewer = await self._edge.viewer_for(caller, "runs.read", ResourceRef(RUN, asked.run_id))
                after = asked.after_seq if asked.HasField("after_seq") else None
                cursor = read(asked, FeedQuery, run_id=None, after_seq=None, after=after).after
                run_id = RUN.read_id(asked.run_id)
                record = await runs.get(viewer, run_id)
                started = StartedRun(id=record.id, session_id=record.session_id)
                return started, await runs.follow(viewer, run_id, cursor)
            case _:
                raise Invalid("stream_unstarted", "the first message of a stream is `start` or `follow`")

    async def _run(self, stream: "_OpenStream", slot: StreamSlot, frames: Frames, started: StartedRun) -> None:
        slot.taken_by(frames.wake)
        told = runs_pb2.RunStarted(run_id=started.id, session_id=started.session_id)
        await stream.write([runs_pb2.RunStreamResponse(started=told).SerializeToString()])
        hearing = asyncio.ensure_future(stream.hear(frames.wake))
        try:
            while not (frames.is_over or slot.is_ended):
                taken = await frames.take()
                await stream.write_answers()
                await stream.write(self._bytes.encode(taken))
                if hearing.done():
                    hearing.result()  # Raises what ended it; a client that has said everything ends nothing.
            if frames.is_over:
                await stream.finish_answers()
                return
        finally:
            hearing.cancel()
        raise Unavailable("stream_ended", "the daemon ended this stream; follow the run again with the last seq")


class _OpenStream:
    """One client's side: its messages as they come, and the answers that wait for it."""

    def __init__(self, edge: CallEdge, context: AnyContext, run_id: RunId) -> None:
        self._edge = edge
        self._context = context
        self._run_id = run_id
        self._answers: deque[runs_pb2.RunStreamResponse] = deque()
        self._has_room = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._has_room.set()
        self._is_idle.set()

    async def hear(self, wake: Callable[[], None]) -> None:
        """Performs the client's messages one after the other, until it has said everything."""
        try:
            while (message := await _read_one(self._context)) is not None:
                self._is_idle.clear()
                self._answers.append(await self._answer(message))
                self._is_idle.set()
                if len(self._answers) >= ANSWERS_WAITING_MAX:
                    self._has_room.clear()
                wake()
                await self._has_room.wait()
        finally:
            self._is_idle.set()
            wake()

    async def write(self, messages: Iterable[bytes]) -> None:
        for message in messages:
            try:
                async with asyncio.timeout(WRITE_TIMEOUT_S):
                    await self._context.write(message)
            except TimeoutError as cause:
                what = f"the client took nothing for {WRITE_TIMEOUT_S:g} s; follow the run again with the last seq"
                raise Unavailable("stream_stalled", what) from cause

    async def write_answers(self) -> None:
        while self._answers:
            await self.write([self._answers.popleft().SerializeToString()])
        self._has_room.set()

    async def finish_answers(self) -> None:
        """A request that is under way when the run ends is still acknowledged."""
        try:
            async with asyncio.timeout(LATE_ANSWER_S):
                await self._is_idle.wait()
        except TimeoutError:
            return
        await self.write_answers()

    async def _answer(self, message: runs_pb2.RunStreamRequest) -> runs_pb2.RunStreamResponse:
        caller = await self._edge.authenticate(self._context)  # A token that holds no more ends the stream.
        try:
            self._edge.check_rate(self._context, caller)
            await self._perform(caller, message)
        except PalyraError as error:
            if not is_refusal(error):
                raise
            refused = runs_pb2.RequestRefused(code=error.code, message=error.message, retryable=error.is_retryable)
            return runs_pb2.RunStreamResponse(refused=refused, request_id=message.request_id)
        return runs_pb2.RunStreamResponse(accepted=runs_pb2.RequestAccepted(), request_id=message.request_id)

    async def _perform(self, caller: Caller, message: runs_pb2.RunStreamRequest) -> None:
        match message.WhichOneof("message"):
            case "input":
                await self._send_input(caller, message.input)
            case "answer":
                await self._resolve(caller, message.answer)
            case "cancel":
                viewer = await self._edge.viewer_for(caller, "runs.cancel", ResourceRef(RUN, self._run_id))
                await self._edge.services.engine.runs.cancel(viewer, self._run_id, by=caller.principal)
            case "start" | "follow":
                raise Invalid("stream_started", "this stream has its run already; open another one")
            case _:
                raise Invalid("message_empty", "the message says nothing")

    async def _send_input(self, caller: Caller, message: runs_pb2.RunInput) -> None:
        principal = await self._edge.viewer_for(caller, "runs.input", ResourceRef(RUN, self._run_id))
        self._edge.services.require_open()
        said, runs = read(message, InputBody), self._edge.services.engine.runs
        await runs.send_input(principal, self._run_id, said.text, caller.trust, said.typed, caller.client)

    async def _resolve(self, caller: Caller, message: approvals_pb2.ResolveApprovalRequest) -> None:
        viewer = await self._edge.viewer_for(caller, "approvals.answer", ResourceRef(APPROVAL, message.approval_id))
        may_trust = self._edge.services.viewers.may_trust(caller)
        given = read_answer(message, caller, may_trust=may_trust)
        approval_id = APPROVAL.read_id(message.approval_id)
        await self._edge.services.engine.approvals.answer(viewer, approval_id, given, by=caller.principal)


async def _read_first(context: AnyContext) -> runs_pb2.RunStreamRequest:
    try:
        async with asyncio.timeout(FIRST_MESSAGE_S):
            first = await _read_one(context)
    except TimeoutError as cause:
        raise Unavailable("timeout", f"no message came within {FIRST_MESSAGE_S:g} s") from cause
    if first is None:
        raise Invalid("stream_empty", "the first message of a stream is `start` or `follow`")
    return first


async def _read_one(context: AnyContext) -> runs_pb2.RunStreamRequest | None:
    """The next message, or None if the client has said everything."""
    body = await context.read()
    return None if body is grpc.aio.EOF else parse(runs_pb2.RunStreamRequest, body)
