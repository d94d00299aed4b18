"""One run over a stream of gRPC: what it says comes out, and input, answers and cancelling go in.

Owns: the stream. Does not own: opening it (grpc_client).
Leaving the stream does not cancel the run. `cancel` does.
"""

from collections.abc import AsyncIterator
from typing import Any

import grpc

from palyra.client.grpc_messages import answer_message, failure, read_event, read_frame
from palyra.client.records import RequestFailed, RunUpdate
from palyra.gateway.v1 import runs_pb2


class RunConversation:
    """Iterate over it for events and live text, to the run's end.

    What you say is acknowledged while you iterate; a refusal is in `refusals`, by the number that the call returned.
    """

    def __init__(self, call: Any, run_id: str, session_id: str) -> None:
        self.run_id = run_id
        self.session_id = session_id
        self.refusals: dict[int, RequestFailed] = {}
        self._call = call
        self._said_count = 0

    async def __aiter__(self) -> AsyncIterator[RunUpdate]:
        while (message := await read_message(self._call)) is not None:
            match message.WhichOneof("message"):
                case "event":
                    yield read_event(message.event)
                case "frame":
                    yield read_frame(message.frame)
                case "refused":
                    refused = message.refused
                    error = RequestFailed(refused.code, refused.message, is_retryable=refused.retryable)
                    self.refusals[message.request_id] = error
                case _:
                    pass

    async def send_input(self, text: str) -> int:
        return await self._say(runs_pb2.RunStreamRequest(input=runs_pb2.RunInput(text=text)))

    async def answer_approval(self, approval_id: str, decision: str, scope: str = "once") -> int:
        return await self._say(runs_pb2.RunStreamRequest(answer=answer_message(approval_id, decision, scope)))

    async def cancel(self) -> int:
        return await self._say(runs_pb2.RunStreamRequest(cancel=runs_pb2.RunCancel()))

    def leave(self) -> None:
        """Ends the stream, and nothing else."""
        self._call.cancel()

    async def _say(self, message: runs_pb2.RunStreamRequest) -> int:
        self._said_count += 1
        message.request_id = self._said_count
        try:
            await self._call.write(message)
        except grpc.aio.AioRpcError as error:
            raise failure(error) from error
        return self._said_count


async def read_message(call: Any) -> runs_pb2.RunStreamResponse | None:
    """The next message, None at a clean end. RequestFailed at any other."""
    try:
        message = await call.read()
    except grpc.aio.AioRpcError as error:
        raise failure(error) from error
    read: runs_pb2.RunStreamResponse | None = message if message is not grpc.aio.EOF else None
    return read
