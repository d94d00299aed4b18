"""The tool `prompt`: a run, told of as it goes on.

Owns: its progress notifications and its result. Does not own: following the run (gateway.openai.segment).
"""

import msgspec

from palyra.core.errors import PalyraError
from palyra.core.events.base import JsonObject
from palyra.core.ids import parse_session_id
from palyra.engine.api.requests import RunRequest
from palyra.engine.hub import Frame, LiveFrame
from palyra.gateway.access.caller import Caller
from palyra.gateway.mcp.messages import RpcMessage, answered, tool_failure, tool_result
from palyra.gateway.mcp.tools import PromptArguments
from palyra.gateway.openai.errors import failure_of
from palyra.gateway.openai.exchange import RunExchange, Segment
from palyra.gateway.openai.segment import TEXT, SegmentEnd

ORIGIN = "mcp"
_encode = msgspec.json.Encoder().encode


def request_of(given: PromptArguments, caller: Caller) -> RunRequest:
    return RunRequest(
        text=given.text,
        origin=ORIGIN,
        trust=caller.trust,
        client=caller.client,
        session_id=parse_session_id(given.session_id) if given.session_id is not None else None,
        session_key=given.session_key,
        agent=given.agent,
        model=given.model,
    )


async def begin(exchange: RunExchange, given: PromptArguments, caller: Caller) -> Segment:
    return await exchange.start(request_of(given, caller))


def result_of(segment: Segment, end: SegmentEnd) -> JsonObject:
    if end.error is not None:
        error: PalyraError = failure_of(end.error)
        return tool_failure(error)
    text = "\n\n".join(part for part in (end.text, end.notice) if part)
    value = {
        "run_id": segment.run_id,
        "session_id": segment.session_id,
        "state": "waiting" if end.notice else "done",
        "answer": end.text,
        "approval_ids": end.approval_ids,
    }
    return tool_result(value, text)


class ProgressEvents:
    """The events of one prompt as bytes: its text as progress, then its result."""

    def __init__(self, message: RpcMessage, token: str | int, segment: Segment) -> None:
        self._message = message
        self._token = token
        self._segment = segment
        self._chars = 0

    def encode(self, frame: Frame) -> bytes:
        if not isinstance(frame, LiveFrame):
            return b""
        if frame.type == TEXT:
            text = str(frame.data["text"])
            self._chars += len(text)
            params = {"progressToken": self._token, "progress": self._chars, "message": text}
            return _event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        end = frame.data["end"]
        assert isinstance(end, SegmentEnd)
        return _event(answered(self._message.id, result_of(self._segment, end)))


def _event(value: object) -> bytes:
    return b"event: message\ndata: %b\n\n" % _encode(value)
