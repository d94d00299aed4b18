"""Routes of runs.

Owns: starting, following, steering and cancelling runs over HTTP.
Does not own: how they run (engine).
"""

import base64
import binascii
from operator import attrgetter
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response
from starlette.types import ASGIApp

from palyra.core.caller_tools import CALLER_TOOLS_MAX
from palyra.core.errors import Invalid
from palyra.core.events.base import JsonObject
from palyra.core.events.run import CallerTool
from palyra.core.ids import ArtifactId, SessionId, StreamId
from palyra.core.run.objectives import OBJECTIVE_LENGTH_MAX, OBJECTIVES_MAX
from palyra.core.run.states import RunState
from palyra.core.taint import label
from palyra.core.trust import Trust
from palyra.engine.api.requests import (
    ATTACHMENTS_MAX,
    TEXT_LENGTH_MAX,
    GivenAttachment,
    RunRecord,
    RunRequest,
    RunsQuery,
    StartedRun,
    WhenBusy,
)
from palyra.engine.api.run_tree import RunTree
from palyra.gateway.access.caller import Caller
from palyra.gateway.access.resources import RUN
from palyra.gateway.http.frames import WireEvent
from palyra.gateway.http.request_reader import read_cursor
from palyra.gateway.http.responses import JSON_TYPE, answer_json
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute, Unread
from palyra.gateway.http.settings import JSON_BYTES_MAX
from palyra.gateway.http.sse import EVENT_STREAM_TYPE
from palyra.gateway.routes.bodies import (
    FeedQuery,
    Key,
    MediaType,
    Name,
    PageQuery,
    RequestBody,
    Sha256Text,
    Text,
    UlidText,
    cut_page,
    page_size,
)
from palyra.ports.tokens import Role

MUST_CALL_MAX = 64
PATHS_MAX = 256  # Of one attachment: more files than an editor embeds at once.
SOURCE_LENGTH_MAX = 1_000  # Of an attachment, as a client names it: an address, or who wrote it.
ORIGIN = (
    "http"  # Of runs started here: by the console, the CLI or a client, behind each of which a person can be asked.
)


TypedText = Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)]
ObjectiveText = Annotated[str, Meta(min_length=1, max_length=OBJECTIVE_LENGTH_MAX)]
FilePath = Annotated[str, Meta(min_length=1, max_length=4096)]


class AttachmentBody(RequestBody, frozen=True, kw_only=True):
    """Either the id of an artifact, or the bytes themselves.

    `trust` is `local` or `external` where somebody else than the sender wrote it, and `source` says who. `paths` are the
    files of this machine that it is from, so that what a tainted session wrote there stays from outside.
    """

    name: Name
    media_type: MediaType
    artifact_id: Sha256Text | None = None
    data_base64: Annotated[str, Meta(max_length=JSON_BYTES_MAX)] | None = None
    trust: Literal["local", "external"] | None = None
    source: Annotated[str, Meta(min_length=1, max_length=SOURCE_LENGTH_MAX)] | None = None
    paths: Annotated[tuple[FilePath, ...], Meta(max_length=PATHS_MAX)] = ()


class ToolBody(RequestBody, frozen=True, kw_only=True):
    """A tool that the caller executes itself: the run waits for its results."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    description: Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)] = ""
    parameters: JsonObject | None = None


class RunBody(RequestBody, frozen=True, kw_only=True):
    """`typed` are the words of the text that a person typed, if others were pasted: one piece a line, in order."""

    text: Text
    typed: TypedText | None = None
    session_id: UlidText | None = None
    session_key: Key | None = None
    attachments: Annotated[tuple[AttachmentBody, ...], Meta(max_length=ATTACHMENTS_MAX)] = ()
    agent: Name | None = None
    model: Name | None = None
    idempotency_key: Key | None = None
    answer_schema: JsonObject | None = None
    must_call: Annotated[tuple[Name, ...], Meta(max_length=MUST_CALL_MAX)] = ()
    objectives: Annotated[tuple[ObjectiveText, ...], Meta(max_length=OBJECTIVES_MAX)] = ()
    when_busy: WhenBusy = WhenBusy.QUEUE
    tools: Annotated[tuple[ToolBody, ...], Meta(max_length=CALLER_TOOLS_MAX)] = ()
    instructions: Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)] = ""


class InputBody(RequestBody, frozen=True, kw_only=True):
    text: Text
    typed: TypedText | None = None


class RunsPageQuery(PageQuery, frozen=True, kw_only=True):
    session_id: UlidText | None = None
    state: RunState | None = None
    service: bool = False
    delegated: bool = False


class RunPage(msgspec.Struct, frozen=True):
    items: tuple[RunRecord, ...]
    next_after: str | None


async def start(call: HttpCall[Empty, RunBody]) -> ASGIApp:
    services = call.services
    services.require_open()
    request = make_run_request(call.body, ORIGIN, call.caller)
    if EVENT_STREAM_TYPE not in call.request.headers.get("accept", "").lower():
        record = await services.engine.runs.start(call.principal, request)
        return answer_json(record, 202, {"location": _path_of(record)})
    with services.slots.reserved(call.caller.token_id) as slot:
        started, frames = await services.engine.runs.start_and_follow(call.principal, request)
        return services.stream(slot, frames, services.frame_bytes.by_seq).with_location(_path_of(started))


async def list_runs(call: HttpCall[RunsPageQuery, Unread]) -> Response:
    query, size = call.query, page_size(call.query.limit)
    asked = RunsQuery(
        session_id=SessionId(StreamId(query.session_id)) if query.session_id is not None else None,
        state=query.state,
        has_services=query.service,
        has_delegated=query.delegated,
        after=query.after,
        limit=size + 1,
    )
    found = await call.services.engine.runs.list(call.reader(query.everyone), asked)
    return answer_json(RunPage(*cut_page(found, size, attrgetter("id"))))


async def show(call: HttpCall[Empty, Unread]) -> Response:
    return answer_json(await call.services.engine.runs.get(call.viewer, call.id_of(RUN)))


async def tree(call: HttpCall[Empty, Unread]) -> Response:
    return answer_json(await call.services.engine.trees.get(call.viewer, call.id_of(RUN)))


async def events(call: HttpCall[FeedQuery, Unread]) -> ASGIApp:
    after_seq = read_cursor(call.request, call.query.after)
    services = call.services
    with services.slots.reserved(call.caller.token_id) as slot:
        frames = await services.engine.runs.follow(call.viewer, call.id_of(RUN), after_seq)
        return services.stream(slot, frames, services.frame_bytes.by_seq)


async def send_input(call: HttpCall[Empty, InputBody]) -> Response:
    call.services.require_open()
    body, caller, run_id = call.body, call.caller, call.id_of(RUN)
    record = await call.services.engine.runs.send_input(
        call.principal, run_id, body.text, caller.trust, body.typed, caller.client
    )
    return answer_json(record, 202)


async def cancel(call: HttpCall[Empty, Empty]) -> Response:
    cancelled = await call.services.engine.runs.cancel(call.viewer, call.id_of(RUN), by=call.principal)
    return answer_json(cancelled, 202)


def make_run_request(body: RunBody, origin: str, caller: Caller) -> RunRequest:
    """What the engine is asked for, whichever protocol carried the body."""
    if body.session_id is not None and body.session_key is not None:
        raise Invalid("session_ambiguous", "name the session by session_id or by session_key, not by both")
    return RunRequest(
        text=body.text,
        typed=body.typed,
        origin=origin,
        trust=caller.trust,
        client=caller.client,
        session_id=SessionId(StreamId(body.session_id)) if body.session_id is not None else None,
        session_key=body.session_key,
        attachments=tuple(_attachment(item, at) for at, item in enumerate(body.attachments, 1)),
        agent=body.agent,
        model=body.model,
        idempotency_key=body.idempotency_key,
        answer_schema=body.answer_schema,
        must_call=body.must_call,
        objectives=body.objectives,
        when_busy=body.when_busy,
        caller_tools=tuple(
            CallerTool(name=tool.name, description=tool.description, parameters=tool.parameters or {})
            for tool in body.tools
        ),
        instructions=body.instructions,
    )


def _attachment(item: AttachmentBody, at: int) -> GivenAttachment:
    if (item.artifact_id is None) == (item.data_base64 is None):
        raise Invalid("attachment_invalid", f"attachment {at}: it has either artifact_id or data_base64")
    return GivenAttachment(
        name=item.name,
        media_type=item.media_type,
        artifact_id=ArtifactId(item.artifact_id) if item.artifact_id is not None else None,
        body=_decoded(item.data_base64, at) if item.data_base64 is not None else None,
        trust=Trust(item.trust) if item.trust is not None else None,
        source=label("attached", item.source) if item.source is not None else None,
        paths=item.paths,
    )


def _decoded(text: str, at: int) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as cause:
        what = "data_base64 is not base64 (RFC 4648 with padding, no line breaks, no data: prefix)"
        raise Invalid("attachment_invalid", f"attachment {at}: {what}") from cause


def _path_of(record: RunRecord | StartedRun) -> str:
    return f"/api/v1/runs/{record.id}"


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("POST", "/api/v1/runs", "Start a run; with Accept: text/event-stream the answer is the run's stream",
              start, action="runs.start", answer=RunRecord, status=202, role=Role.USER,
              media_types=(JSON_TYPE, EVENT_STREAM_TYPE), errors=(404, 409)),
    HttpRoute("GET", "/api/v1/runs", "List runs, of one session or in one state if asked",
              list_runs, action="runs.list", others=Role.OPERATOR, answer=RunPage),
    HttpRoute("GET", "/api/v1/runs/{run_id}", "Show a run",
              show, action="runs.read", resource=RUN, others=Role.OPERATOR, answer=RunRecord),
    HttpRoute("GET", "/api/v1/runs/{run_id}/tree", "Show a run and the runs it delegated, as a tree",
              tree, action="runs.read", resource=RUN, others=Role.OPERATOR, answer=RunTree),
    HttpRoute("GET", "/api/v1/runs/{run_id}/events", "Follow a run to its end; id is the seq",
              events, action="runs.read", resource=RUN, others=Role.OPERATOR, answer=WireEvent,
              media_types=(EVENT_STREAM_TYPE,)),
    HttpRoute("POST", "/api/v1/runs/{run_id}/input", "Say something to an active run",
              send_input, action="runs.input", resource=RUN, answer=RunRecord, status=202, role=Role.USER,
              errors=(409,)),
    HttpRoute("POST", "/api/v1/runs/{run_id}/cancel", "Cancel a run, whatever it waits for",
              cancel, action="runs.cancel", resource=RUN, others=Role.OPERATOR, answer=RunRecord, status=202,
              role=Role.USER, errors=(409,)),
)  # fmt: skip
