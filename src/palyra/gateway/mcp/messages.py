"""JSON-RPC messages as MCP has them.

Owns: their records, error codes and versions. Does not own: methods (methods), tools (tools), HTTP (route).
"""

import msgspec

from palyra.core.errors import PalyraError
from palyra.core.events.base import JsonObject

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
VERSION_HEADER = "mcp-protocol-version"
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
RESOURCE_NOT_FOUND = -32002
VERSION_UNSUPPORTED = -32022


class RpcMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A request, a notification (without an id), or a client's answer (without a method)."""

    jsonrpc: str = "2.0"
    id: str | int | None = None
    method: str | None = None
    params: JsonObject = {}


class RpcError(msgspec.Struct, frozen=True, omit_defaults=True):
    code: int
    message: str
    data: JsonObject | None = None


class RpcAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Has either a result or an error."""

    id: str | int | None
    jsonrpc: str
    result: JsonObject | None = None
    error: RpcError | None = None


class RpcFailure(Exception):
    """The method could not be answered; a tool that failed is an answer."""

    def __init__(self, code: int, message: str, data: JsonObject | None = None) -> None:
        super().__init__(message)
        self.error = RpcError(code, message, data)


def answered(message_id: str | int | None, result: JsonObject) -> RpcAnswer:
    return RpcAnswer(id=message_id, jsonrpc="2.0", result=result)


def failed(message_id: str | int | None, error: RpcError) -> RpcAnswer:
    return RpcAnswer(id=message_id, jsonrpc="2.0", error=error)


def tool_result(value: object, text: str | None = None) -> JsonObject:
    """Returns what a tool gave, as text for a model and as data for a program."""
    structured = msgspec.to_builtins(value)
    shown = text if text is not None else msgspec.json.encode(structured).decode()
    return {"content": [{"type": "text", "text": shown}], "structuredContent": structured, "isError": False}


def tool_failure(error: PalyraError) -> JsonObject:
    """A failed call is told to the model, which may do better."""
    return {"content": [{"type": "text", "text": f"{error.code}: {error.message}"}], "isError": True}
