"""The MCP handshake: agrees with a server on a protocol version, and says what each message then carries.

Does not own: the requests after it (connection).
The handshake is tried first, because nearly every server supports it. A server that has none is asked what it offers
instead.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from palyra import __version__
from palyra.adapters.runtimes.mcp.failures import Unfit

if TYPE_CHECKING:
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

CLIENT: dict[str, object] = {"name": "palyra", "version": __version__}


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What was agreed. `is_enveloped` means that every request names the client and the version again."""

    version: str
    capabilities: Mapping[str, object]
    is_enveloped: bool = False

    def offers(self, kind: str) -> bool:
        return self.capabilities.get(kind) is not None


async def shake_hands(dispatcher: "JSONRPCDispatcher", timeout_s: float) -> Terms:
    """Agrees on a version.

    Raises the package's MCPError if the server refuses, and Unfit if there is no common version.
    """
    from mcp.shared.exceptions import MCPError
    from mcp_types import METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION

    asked = {"protocolVersion": LATEST_HANDSHAKE_VERSION, "capabilities": {}, "clientInfo": CLIENT}
    try:
        answer = await dispatcher.send_raw_request(
            "initialize", asked, {"timeout": timeout_s, "cancel_on_abandon": False}
        )
    except MCPError as refusal:
        if refusal.code not in (METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION):
            raise
        return await _discover(dispatcher, timeout_s)
    version = answer.get("protocolVersion")
    if version not in HANDSHAKE_PROTOCOL_VERSIONS:
        raise Unfit("it speaks a version of the protocol that is not known here")
    terms = _terms(str(version), answer)
    await dispatcher.notify("notifications/initialized", None, {"headers": headers_of(terms, "", {})})
    return terms


def stamp(terms: Terms, params: Mapping[str, object]) -> dict[str, object]:
    """Returns the parameters in the form that this version wants."""
    if not terms.is_enveloped:
        return dict(params)
    return {**params, "_meta": {**_envelope(terms.version)}}


def headers_of(terms: Terms, method: str, params: Mapping[str, object]) -> dict[str, str]:
    """Returns the headers of a request, for transports that have headers."""
    from mcp.shared.inbound import (
        MCP_METHOD_HEADER,
        MCP_NAME_HEADER,
        MCP_PROTOCOL_VERSION_HEADER,
        NAME_BEARING_METHODS,
        encode_header_value,
    )

    headers = {MCP_PROTOCOL_VERSION_HEADER: terms.version}
    if terms.is_enveloped and method:
        headers[MCP_METHOD_HEADER] = method
        named = params.get(NAME_BEARING_METHODS.get(method, ""))
        if isinstance(named, str):
            headers[MCP_NAME_HEADER] = encode_header_value(named)
    return headers


async def _discover(dispatcher: "JSONRPCDispatcher", timeout_s: float) -> Terms:
    from mcp_types.version import LATEST_MODERN_VERSION

    draft = Terms(version=LATEST_MODERN_VERSION, capabilities={}, is_enveloped=True)
    answer = await dispatcher.send_raw_request(
        "server/discover",
        stamp(draft, {}),
        {"timeout": timeout_s, "cancel_on_abandon": False, "headers": headers_of(draft, "server/discover", {})},
    )
    supported = answer.get("supportedVersions")
    if not isinstance(supported, list) or LATEST_MODERN_VERSION not in supported:
        raise Unfit("it speaks a version of the protocol that is not known here")
    return msgspec.structs.replace(_terms(LATEST_MODERN_VERSION, answer), is_enveloped=True)


def _envelope(version: str) -> dict[str, object]:
    from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY

    return {PROTOCOL_VERSION_META_KEY: version, CLIENT_INFO_META_KEY: CLIENT, CLIENT_CAPABILITIES_META_KEY: {}}


def _terms(version: str, answer: Mapping[str, Any]) -> Terms:
    capabilities = answer.get("capabilities")
    return Terms(version=version, capabilities=capabilities if isinstance(capabilities, dict) else {})
