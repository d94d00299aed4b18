"""Tapes as MCP resources.

Owns: their addresses, listing them and reading them. Does not own: events (core.events), whose they are (engine).
"""

import re

import msgspec

from palyra.core.errors import Invalid, NotFound
from palyra.core.events.base import JsonObject
from palyra.core.ids import SessionId, parse_session_id
from palyra.gateway.http.frames import wire_event
from palyra.gateway.mcp.messages import INVALID_PARAMS, RESOURCE_NOT_FOUND, RpcFailure
from palyra.gateway.mcp.tools import Call

TEMPLATE = "palyra://sessions/{session_id}/tape{?after}"
EVENTS_MAX = 200  # Of one reading; `after` reads on.
LISTED_MAX = 50
_URI = re.compile(r"palyra://sessions/([0-9A-Z]{26})/tape(?:\?after=([0-9]{1,15}))?")
_TYPE = "application/x-ndjson"


async def list_tapes(call: Call, params: JsonObject) -> JsonObject:
    """Lists a page of sessions; the cursor is the last id of the page before."""
    cursor = params.get("cursor", "")
    call.require_also("sessions.list")
    rows = await call.services.engine.sessions.list(call.principal, str(cursor), LISTED_MAX + 1)
    listed = [
        {
            "uri": f"palyra://sessions/{row.id}/tape",
            "name": row.label or row.key or row.id,
            "description": f"Everything recorded in session {row.id}, one event a line",
            "mimeType": _TYPE,
        }
        for row in rows[:LISTED_MAX]
    ]
    more: JsonObject = {"nextCursor": rows[LISTED_MAX - 1].id} if len(rows) > LISTED_MAX else {}
    return {"resources": listed, **more}


def list_templates() -> JsonObject:
    template = {
        "uriTemplate": TEMPLATE,
        "name": "tape",
        "description": f"The events of a session, {EVENTS_MAX} at a time, after a seq",
        "mimeType": _TYPE,
    }
    return {"resourceTemplates": [template]}


async def read_tape(call: Call, params: JsonObject) -> JsonObject:
    uri = params.get("uri")
    if not isinstance(uri, str):
        raise RpcFailure(INVALID_PARAMS, "resources/read needs a uri")
    session_id, after = _parse(uri)
    call.require_also("sessions.read")
    try:
        events = await call.services.engine.sessions.tape(call.principal, session_id, after, EVENTS_MAX)
    except NotFound as missing:
        raise RpcFailure(RESOURCE_NOT_FOUND, missing.message, {"uri": uri}) from missing
    text = "".join(f"{msgspec.json.encode(wire_event(event)).decode()}\n" for event in events)
    return {"contents": [{"uri": uri, "mimeType": _TYPE, "text": text}]}


def _parse(uri: str) -> tuple[SessionId, int]:
    match = _URI.fullmatch(uri)
    if match is None:
        raise RpcFailure(RESOURCE_NOT_FOUND, f"a resource here is {TEMPLATE}", {"uri": uri[:200]})
    try:
        return parse_session_id(match.group(1)), int(match.group(2) or 0)
    except Invalid as cause:
        raise RpcFailure(RESOURCE_NOT_FOUND, "there is no such session", {"uri": uri}) from cause
