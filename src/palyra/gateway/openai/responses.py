"""The routes of responses.

Owns: making, showing and cancelling them over HTTP. Does not own: their wire form (response_events), reading the
request (response_items), the run behind them (exchange, segment).
"""

import re

from starlette.responses import Response
from starlette.types import ASGIApp

from palyra.core.errors import Invalid, NotFound
from palyra.core.ids import RunId
from palyra.core.run.states import RunState
from palyra.engine.api.requests import RunRecord
from palyra.gateway.http.responses import JSON_TYPE, answer_json
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute, Unread
from palyra.gateway.http.sse import EVENT_STREAM_TYPE
from palyra.gateway.openai.answers import (
    ANSWER_TIMEOUT_S,
    BODY_BYTES_MAX,
    exchange_of,
    headers_of,
    key_of,
    reserved,
    session_of,
    streamed,
    whole,
)
from palyra.gateway.openai.chat_messages import chosen_tools
from palyra.gateway.openai.exchange import SessionName, Wish, session_named
from palyra.gateway.openai.response_events import ResponseEvents, ResponseHead, ResponseRecord, begun, ended
from palyra.gateway.openai.response_items import (
    ConversationName,
    ResponseBody,
    ResponseToolChoice,
    read_input,
    read_response_tools,
    schema_in,
)
from palyra.gateway.openai.segment import read_end
from palyra.ports.tokens import Role

_ID = re.compile(r"resp_([0-9A-Z]{26})(?:_([0-9]{1,15}))?")
_SETTLED = frozenset({state.value for state in (RunState.DONE, RunState.FAILED, RunState.CANCELLED, RunState.WAITING)})


async def create(call: HttpCall[Empty, ResponseBody]) -> ASGIApp:
    call.services.require_open()
    if call.body.background and not call.body.stream:
        head = await _begin(call)
        head.segment.frames.close()
        return answer_json(begun(head, "queued"), 200, headers_of(head.segment))
    with reserved(call) as slot:
        head = await _begin(call)
        if call.body.stream:
            events = ResponseEvents(head)
            return streamed(call, slot, head.segment, events.encode, events.opening())
        end = await whole(call, slot, head.segment)
    return answer_json(ended(head, end), 200, headers_of(head.segment))


async def _begin(call: HttpCall[Empty, ResponseBody]) -> ResponseHead:
    body = call.body
    return ResponseHead(
        segment=await exchange_of(call).begin(await _wish(call)),
        model=body.model,
        created_at=call.services.credentials.clock.now_ms() // 1000,
        previous_response_id=body.previous_response_id,
        metadata=body.metadata or {},
    )


async def show(call: HttpCall[Empty, Unread]) -> Response:
    """A response as far as it has come."""
    run_id, after_seq = _read_id(call.path["response_id"])
    record = await call.services.engine.runs.get(call.principal, run_id)
    return answer_json(await _shown(call, record, after_seq))


async def cancel(call: HttpCall[Empty, Empty]) -> Response:
    run_id, after_seq = _read_id(call.path["response_id"])
    record = await call.services.engine.runs.cancel(call.principal, run_id)
    return answer_json(await _shown(call, record, after_seq))


async def _shown(call: HttpCall, record: RunRecord, after_seq: int) -> ResponseRecord:  # type: ignore[type-arg]
    segment = await exchange_of(call).reopen(record.id, after_seq)
    head = ResponseHead(segment=segment, model=record.agent, created_at=record.created_at_ms // 1000)
    if record.state == RunState.CANCELLED.value:
        segment.frames.close()
        return begun(head, "cancelled")
    if record.state not in _SETTLED:
        segment.frames.close()
        return begun(head, "queued" if record.state == RunState.ACCEPTED.value else "in_progress")
    return ended(head, await read_end(segment.frames))


async def _wish(call: HttpCall[Empty, ResponseBody]) -> Wish:
    body = call.body
    choice = body.tool_choice
    named = choice.name if isinstance(choice, ResponseToolChoice) and choice.type == "function" else None
    tools, must_call, hint = chosen_tools(
        read_response_tools(body.tools or ()), choice if isinstance(choice, str) else None, named
    )
    return Wish(
        model=body.model,
        conversation=read_input(body.input, body.instructions),
        session=await _session(call),
        tools=tools,
        must_call=must_call,
        hint=hint,
        answer_schema=schema_in(body.text),
        output_tokens_max=body.max_output_tokens,
        idempotency_key=key_of(call),
    )


async def _session(call: HttpCall[Empty, ResponseBody]) -> SessionName:
    body = call.body
    if body.previous_response_id is not None:
        if body.conversation is not None:
            raise Invalid("session_ambiguous", "send previous_response_id or conversation, not both")
        run_id, _ = _read_id(body.previous_response_id)
        record = await call.services.engine.runs.get(call.principal, run_id)
        return SessionName(session_id=record.session_id)
    if body.conversation is not None:
        named = body.conversation
        return session_named(named.id if isinstance(named, ConversationName) else named)
    return session_of(call, body.metadata, body.user)


def _read_id(text: str) -> tuple[RunId, int]:
    match = _ID.fullmatch(text)
    if match is None:
        raise NotFound("response_unknown", "there is no such response")
    return RunId(match.group(1)), int(match.group(2) or 0)


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("POST", "/v1/responses", "OpenAI-compatible: make a response; with stream the answer is events",
              create, action="runs.start", answer=ResponseRecord, role=Role.USER,
              media_types=(JSON_TYPE, EVENT_STREAM_TYPE), errors=(404, 409), timeout_s=ANSWER_TIMEOUT_S,
              body_bytes_max=BODY_BYTES_MAX),
    HttpRoute("GET", "/v1/responses/{response_id}", "OpenAI-compatible: show a response",
              show, action="responses.read", answer=ResponseRecord),
    HttpRoute("POST", "/v1/responses/{response_id}/cancel", "OpenAI-compatible: cancel the run of a response",
              cancel, action="responses.cancel", answer=ResponseRecord, role=Role.USER),
)  # fmt: skip
