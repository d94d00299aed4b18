"""The route `/mcp`: MCP over streamable HTTP.

Owns: which method of a message is answered by what, and in which form. Does not own: tools (tools, prompt), resources
(resources), who may ask (gateway.access): the same checks as for every route come first.
A caller is a program there (access.caller).
There are no sessions of the transport: each request stands alone, so a restart of the daemon loses none.
"""

from dataclasses import replace

from starlette.responses import Response
from starlette.types import ASGIApp

from palyra import __version__
from palyra.core.errors import PalyraError, Unauthorized
from palyra.core.events.base import JsonObject
from palyra.gateway.access.caller import over_mcp
from palyra.gateway.http.responses import BASE_HEADERS, JSON_TYPE, answer_json
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute
from palyra.gateway.http.sse import EVENT_STREAM_TYPE
from palyra.gateway.mcp import prompt, resources, tools
from palyra.gateway.mcp.messages import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    VERSION_HEADER,
    VERSION_UNSUPPORTED,
    VERSIONS,
    RpcAnswer,
    RpcError,
    RpcFailure,
    RpcMessage,
    answered,
    failed,
    tool_failure,
)
from palyra.gateway.openai.answers import ANSWER_TIMEOUT_S, exchange_of, reserved, streamed, waited
from palyra.ports.tokens import Role

ACTION = "mcp.use"
INSTRUCTIONS = "Palyra runs agents whose tool calls are judged, recorded and resumable. Give them tasks with `prompt`."


async def receive(call: HttpCall[Empty, RpcMessage]) -> ASGIApp:
    call, message = replace(call, caller=over_mcp(call.caller)), call.body
    version = call.request.headers.get(VERSION_HEADER, VERSIONS[0])
    if version not in VERSIONS:
        data: JsonObject = {"supported": list(VERSIONS), "requested": version[:40]}
        return _refuse(message, RpcError(VERSION_UNSUPPORTED, "this version of MCP is not supported", data), 400)
    if message.jsonrpc != "2.0":
        return _refuse(message, RpcError(INVALID_REQUEST, "jsonrpc must be 2.0"), 400)
    if message.method is None or message.id is None:
        return Response(None, 202, BASE_HEADERS)  # A notification or an answer; nothing here waits for one.
    try:
        return await _answer(call, message, message.method)
    except RpcFailure as failure:
        return _refuse(message, failure.error)
    except Unauthorized as refused:
        return _refuse(message, RpcError(INVALID_REQUEST, f"{refused.code}: {refused.message}"))


async def _answer(call: HttpCall[Empty, RpcMessage], message: RpcMessage, method: str) -> ASGIApp:
    if method == "tools/call":
        return await _call_tool(call, message)
    return answer_json(answered(message.id, await _result(call, method, message.params)))


async def _result(call: HttpCall[Empty, RpcMessage], method: str, params: JsonObject) -> JsonObject:
    match method:
        case "initialize":
            return _initialized(params)
        case "ping":
            return {}
        case "tools/list":
            return {"tools": [tools.describe(tool) for tool in tools.offered(call)]}
        case "resources/list":
            return await resources.list_tapes(call, params)
        case "resources/templates/list":
            return resources.list_templates()
        case "resources/read":
            return await resources.read_tape(call, params)
        case _:
            raise RpcFailure(METHOD_NOT_FOUND, f"there is no method {method[:64]}")


def _initialized(params: JsonObject) -> JsonObject:
    wanted = params.get("protocolVersion")
    return {
        "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[0],
        "capabilities": {"tools": {"listChanged": False}, "resources": {"listChanged": False, "subscribe": False}},
        "serverInfo": {"name": "palyra", "title": "Palyra", "version": __version__},
        "instructions": INSTRUCTIONS,
    }


async def _call_tool(call: HttpCall[Empty, RpcMessage], message: RpcMessage) -> ASGIApp:
    name, given = message.params.get("name"), message.params.get("arguments", {})
    tool = next((tool for tool in tools.offered(call) if tool.name == name), None)
    if tool is None:
        raise RpcFailure(INVALID_PARAMS, f"there is no tool {str(name)[:64]} for this token")
    if tool is not tools.PROMPT:
        return answer_json(answered(message.id, await tools.perform(call, tool, given)))
    try:
        return await _prompt(call, message, tools.read_arguments(tool, given))
    except PalyraError as error:
        return answer_json(answered(message.id, tool_failure(error)))


async def _prompt(call: HttpCall[Empty, RpcMessage], message: RpcMessage, given: tools.PromptArguments) -> ASGIApp:
    call.services.require_open()
    token = _progress_token(message.params)
    with reserved(call) as slot:
        segment = await prompt.begin(exchange_of(call), given, call.caller)
        if token is not None and EVENT_STREAM_TYPE in call.request.headers.get("accept", "").lower():
            return streamed(call, slot, segment, prompt.ProgressEvents(message, token, segment).encode)
        end = await waited(call, slot, segment)
    return answer_json(answered(message.id, prompt.result_of(segment, end)))


def _progress_token(params: JsonObject) -> str | int | None:
    meta = params.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    return token if isinstance(token, str | int) else None


def _refuse(message: RpcMessage, error: RpcError, status: int = 200) -> Response:
    return answer_json(failed(message.id, error), status)


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("POST", "/mcp", "MCP over streamable HTTP: one JSON-RPC message",
              receive, action=ACTION, answer=RpcAnswer, role=Role.USER, media_types=(JSON_TYPE, EVENT_STREAM_TYPE),
              empty_statuses=(202,), refusal=RpcAnswer, timeout_s=ANSWER_TIMEOUT_S),
)  # fmt: skip
