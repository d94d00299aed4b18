"""The tools of the MCP server: one record each.

Owns: their names, arguments, and what each asks of the engine. Does not own: prompts, which may take long (prompt).
Invariant: a tool needs the same action as the route of the HTTP API that does the same, and is not listed without it.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from palyra.core.errors import Invalid, PalyraError, Unauthorized
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import ApprovalStatus, Decision, Scope
from palyra.core.ids import parse_approval_id, parse_run_id
from palyra.engine.api.requests import ApprovalAnswer, ApprovalsQuery, SessionRequest
from palyra.gateway.decode_errors import decode_error_words
from palyra.gateway.http.route import HttpCall
from palyra.gateway.mcp.messages import tool_failure, tool_result

PAGE_MAX = 100
HITS_MAX = 50
Limit = Annotated[int, Meta(ge=1, le=PAGE_MAX)]


class ListArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    after: str = ""
    limit: Limit = 20


class OpenArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Without a key or a label a new session is made."""

    key: str | None = None
    label: str | None = None
    agent: str | None = None


class RunArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    run_id: str


class PromptArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Names the session by its id or its key, or begins a new one."""

    text: str
    session_id: str | None = None
    session_key: str | None = None
    agent: str | None = None
    model: str | None = None


class AnswerArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    approval_id: str
    decision: Decision
    scope: Scope = Scope.ONCE
    reason: str = ""


class ShowArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    approval_id: str
    offset: Annotated[int, Meta(ge=0)] = 0


class SearchArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    query: Annotated[str, Meta(min_length=1, max_length=4_000)]
    k: Annotated[int, Meta(ge=1, le=HITS_MAX)] = 10


Call = HttpCall[Any, Any]


class ServedTool(msgspec.Struct, frozen=True, kw_only=True):
    """`action` is what a caller needs to be permitted. `perform` is None for prompts."""

    name: str
    description: str
    arguments: type[msgspec.Struct]
    action: str
    perform: Callable[[Call, Any], Awaitable[object]] | None
    is_read_only: bool = False


async def list_sessions(call: Call, given: ListArguments) -> object:
    rows = await call.services.engine.sessions.list(call.principal, given.after, given.limit)
    return {"sessions": [_shown_session(row) for row in rows]}


async def open_session(call: Call, given: OpenArguments) -> object:
    call.services.require_open()
    wanted = SessionRequest(key=given.key, label=given.label, agent=given.agent)
    return _shown_session(await call.services.engine.sessions.resolve(call.principal, wanted))


async def show_run(call: Call, given: RunArguments) -> object:
    return await call.services.engine.runs.get(call.principal, parse_run_id(given.run_id))


async def cancel_run(call: Call, given: RunArguments) -> object:
    return await call.services.engine.runs.cancel(call.principal, parse_run_id(given.run_id))


async def list_approvals(call: Call, given: ListArguments) -> object:
    query = ApprovalsQuery(status=ApprovalStatus.PENDING, after=given.after, limit=given.limit)
    return {"approvals": await call.services.engine.approvals.list(call.principal, query)}


async def answer_approval(call: Call, given: AnswerArguments) -> object:
    answer = ApprovalAnswer(
        decision=given.decision,
        scope=given.scope,
        reason=given.reason,
        role_max=call.caller.role.value,
        client=call.caller.client,
    )
    return await call.services.engine.approvals.answer(call.principal, parse_approval_id(given.approval_id), answer)


async def show_approval(call: Call, given: ShowArguments) -> object:
    approval_id, client = parse_approval_id(given.approval_id), call.caller.client
    return await call.services.engine.approvals.full(call.principal, approval_id, given.offset, client=client)


async def search_memory(call: Call, given: SearchArguments) -> object:
    hits = await call.services.engine.memory.search(call.principal, given.query, given.k)
    return {"items": [{"id": hit.item.id, "content": hit.item.content, "score": hit.score} for hit in hits]}


def _shown_session(row: Any) -> JsonObject:
    return {"id": row.id, "key": row.key, "label": row.label, "agent": row.agent}


PROMPT = ServedTool(
    name="prompt",
    description="Gives an agent a task and returns its answer. A call that needs a person is reported with a link.",
    arguments=PromptArguments,
    action="runs.start",
    perform=None,
)
TOOLS: tuple[ServedTool, ...] = (
    PROMPT,
    ServedTool(
        name="list_sessions",
        description="Lists your sessions: conversations with agents.",
        arguments=ListArguments,
        action="sessions.list",
        perform=list_sessions,
        is_read_only=True,
    ),
    ServedTool(
        name="open_session",
        description="Finds a session by its key or label, or makes it.",
        arguments=OpenArguments,
        action="sessions.resolve",
        perform=open_session,
    ),
    ServedTool(
        name="show_run",
        description="Shows a run: its state, its answer, and what it cost.",
        arguments=RunArguments,
        action="runs.read",
        perform=show_run,
        is_read_only=True,
    ),
    ServedTool(
        name="cancel_run",
        description="Cancels a run, whatever it waits for.",
        arguments=RunArguments,
        action="runs.cancel",
        perform=cancel_run,
    ),
    ServedTool(
        name="list_approvals",
        description="Lists the tool calls that wait for a person's answer.",
        arguments=ListArguments,
        action="approvals.list",
        perform=list_approvals,
        is_read_only=True,
    ),
    ServedTool(
        name="show_approval",
        description="Shows all that an answer would allow, page by page. Show it to the person you work for.",
        arguments=ShowArguments,
        action="approvals.read",
        perform=show_approval,
        is_read_only=True,
    ),
    ServedTool(
        name="answer_approval",
        description="Says no to a question. Only a person says yes: tell them to answer it with `palyra approvals`.",
        arguments=AnswerArguments,
        action="approvals.answer",
        perform=answer_approval,
    ),
    ServedTool(
        name="search_memory",
        description="Finds what was remembered about a question.",
        arguments=SearchArguments,
        action="memory.search",
        perform=search_memory,
        is_read_only=True,
    ),
)


def offered(call: Call) -> tuple[ServedTool, ...]:
    """Returns the tools that this caller may use."""
    return tuple(tool for tool in TOOLS if _is_permitted(call, tool))


def describe(tool: ServedTool) -> JsonObject:
    schema: dict[str, Any] = msgspec.json.schema(tool.arguments)
    definitions = schema.pop("$defs", {})
    name = str(schema.pop("$ref", "")).rpartition("/")[2]
    arguments = definitions.pop(name, schema)
    arguments.pop("title", None)
    return {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": {"properties": {}, **arguments, **({"$defs": definitions} if definitions else {})},
        "annotations": {"readOnlyHint": tool.is_read_only},
    }


def read_arguments(tool: ServedTool, given: object) -> Any:
    try:
        return msgspec.convert(given, tool.arguments)
    except msgspec.ValidationError as cause:
        raise Invalid("arguments_invalid", decode_error_words(cause, "the arguments")) from cause


async def perform(call: Call, tool: ServedTool, given: object) -> JsonObject:
    """Performs a tool that answers at once."""
    assert tool.perform is not None
    try:
        return tool_result(await tool.perform(call, read_arguments(tool, given)))
    except PalyraError as error:
        return tool_failure(error)


def _is_permitted(call: Call, tool: ServedTool) -> bool:
    try:
        call.require_also(tool.action)
    except Unauthorized:
        return False
    return True
