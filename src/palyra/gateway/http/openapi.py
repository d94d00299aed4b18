"""The OpenAPI 3.1 document, made from the route table.

Owns: describing routes and records.
Does not own: the routes (gateway.routes).
Invariant: nothing is declared here. Records describe themselves through msgspec, so every member that the decoder takes
is in the document, with its limits.
"""

from collections.abc import Sequence
from http import HTTPStatus

import msgspec

from palyra.gateway.http.frames import WireLiveFrame
from palyra.gateway.http.responses import JSON_TYPE, ErrorAnswer
from palyra.gateway.http.route import HttpRoute, Unread, parameters_of
from palyra.gateway.http.sse import EVENT_STREAM_TYPE
from palyra.gateway.openai.errors import OpenaiErrorAnswer, is_openai_path

JsonDocument = dict[str, object]

_ERRORS_OF_ALL = (400, 401, 403, 429, 500, 503)
_ERRORS_OF_PUBLIC = (400, 403, 500)  # A wrong query, a wrong Host, and a fault of ours.


def describe(routes: Sequence[HttpRoute], version: str) -> JsonDocument:
    records = {
        record
        for route in routes
        for record in (route.answer, route.body, route.refusal)
        if record is not None and _is_described(record)
    }
    _, schemas = msgspec.json.schema_components(
        sorted({*records, ErrorAnswer, OpenaiErrorAnswer, WireLiveFrame}, key=lambda record: record.__name__),
        ref_template="#/components/schemas/{name}",
        schema_hook=_free_form,
    )
    paths: dict[str, dict[str, object]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Palyra", "version": version, "description": "See docs/http-api.md for the words."},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }


def _free_form(_: type) -> JsonDocument:
    """Whatever JSON there is: members that a tool or a caller gives their form."""
    return {"description": "any JSON"}


def _is_described(record: type[msgspec.Struct] | None) -> bool:
    return record is not None and bool(record.__struct_fields__)


def _operation(route: HttpRoute) -> JsonDocument:
    operation: JsonDocument = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "responses": _responses(route),
    }
    parameters = [*_path_parameters(route), *_query_parameters(route)]
    if parameters:
        operation["parameters"] = parameters
    if route.body is not Unread:
        operation["requestBody"] = {
            "required": any(field.required for field in msgspec.structs.fields(route.body)),
            "content": {JSON_TYPE: {"schema": _reference(route.body)}},
        }
    if not route.needs_credentials:
        operation["security"] = []
    return operation


def _operation_id(route: HttpRoute) -> str:
    steps = [step.strip("{}") for step in route.path.removeprefix("/api/v1").split("/") if step]
    return "_".join((route.method.lower(), *steps)) if steps else f"{route.method.lower()}_front_page"


def _responses(route: HttpRoute) -> JsonDocument:
    statuses = {*route.errors, *(_ERRORS_OF_PUBLIC if route.is_public else _ERRORS_OF_ALL)}
    if parameters_of(route.path):
        statuses.add(404)
    if route.body is not Unread:
        statuses.add(413)
    shape = OpenaiErrorAnswer if is_openai_path(route.path) else ErrorAnswer
    failure: JsonDocument = {"schema": _reference(shape)}
    if route.refusal is not None:
        failure = {"schema": {"anyOf": [_reference(shape), _reference(route.refusal)]}}
    responses: JsonDocument = {
        str(status): {"description": HTTPStatus(status).phrase, "content": {JSON_TYPE: failure}}
        for status in sorted(statuses)
    }
    if EVENT_STREAM_TYPE in route.media_types:
        content = {EVENT_STREAM_TYPE: {"schema": {"type": "string", "description": _STREAM_WORDS}}}
        responses["200"] = {"description": "A stream of events", "content": content}
    plain = {
        media: {"schema": _answer_schema(route, media)} for media in route.media_types if media != EVENT_STREAM_TYPE
    }
    if plain:
        success: JsonDocument = {"description": HTTPStatus(route.status).phrase}
        if route.status != HTTPStatus.NO_CONTENT:
            success["content"] = plain
        responses[str(route.status)] = success
    responses |= {str(status): {"description": HTTPStatus(status).phrase} for status in route.empty_statuses}
    return responses


_STREAM_WORDS = "Server-sent events; data is a WireEvent, or a LiveFrame where there is no id"


def _answer_schema(route: HttpRoute, media_type: str) -> JsonDocument:
    if route.answer is not None:
        return _reference(route.answer)
    return {"type": "object" if media_type == JSON_TYPE else "string"}


def _reference(record: type[msgspec.Struct]) -> JsonDocument:
    if not _is_described(record):
        return {"type": "object", "additionalProperties": False}
    return {"$ref": f"#/components/schemas/{record.__name__}"}


def _path_parameters(route: HttpRoute) -> list[JsonDocument]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in parameters_of(route.path)
    ]


def _query_parameters(route: HttpRoute) -> list[JsonDocument]:
    (schema,), components = msgspec.json.schema_components([route.query], schema_hook=_free_form)
    properties = components.get(route.query.__name__, schema).get("properties", {})
    required = {field.encode_name for field in msgspec.structs.fields(route.query) if field.required}
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _inlined(part, components)}
        for name, part in properties.items()
    ]


def _inlined(part: JsonDocument, components: dict[str, JsonDocument]) -> JsonDocument:
    """A parameter's schema without references and without null, which a query cannot say."""
    options = part.get("anyOf")
    if isinstance(options, list):
        part = next(option for option in options if option != {"type": "null"})
    name = str(part.get("$ref", "")).rpartition("/")[2]
    return components.get(name, part)
