"""Routes of artifacts.

Owns: uploading and downloading bodies over HTTP.
Does not own: who may read them (engine.api.artifacts).
Invariant: a body is sent as a download that no browser renders or runs, whatever its media type is. It may come from a
tool or a stranger, and the console is served from the same origin.
"""

import re

from starlette.responses import Response

from palyra.core.errors import Invalid
from palyra.engine.api.requests import ArtifactRecord
from palyra.gateway.access.resources import ARTIFACT
from palyra.gateway.http.request_reader import read_body
from palyra.gateway.http.responses import BASE_HEADERS, answer_json
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute, Unread
from palyra.gateway.http.settings import ARTIFACT_BYTES_MAX, UPLOAD_TIMEOUT_S
from palyra.gateway.routes.bodies import MEDIA_TYPE_LENGTH_MAX
from palyra.ports.tokens import Role

ANY_TYPE = "application/octet-stream"

_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+", re.ASCII)
_DOWNLOAD_HEADERS = {
    **BASE_HEADERS,
    "content-disposition": "attachment",
    "content-security-policy": "default-src 'none'; sandbox",
}


async def put(call: HttpCall[Empty, Unread]) -> Response:
    media_type = _media_type(call.request.headers.get("content-type"))
    with call.services.uploading():
        body = await read_body(call.request, ARTIFACT_BYTES_MAX)
        record = await call.services.engine.artifacts.put(call.principal, body, media_type, call.caller.client)
    return answer_json(record, 201, {"location": f"/api/v1/artifacts/{record.id}"})


async def get(call: HttpCall[Empty, Unread]) -> Response:
    record, body = await call.services.engine.artifacts.get(call.principal, call.id_of(ARTIFACT))
    return Response(body, 200, {**_DOWNLOAD_HEADERS, "content-type": record.media_type})


def _media_type(header: str | None) -> str:
    """Without its parameters."""
    if header is None:
        return ANY_TYPE
    name = header.partition(";")[0].strip().lower()
    if len(name) > MEDIA_TYPE_LENGTH_MAX or _MEDIA_TYPE.fullmatch(name) is None:
        raise Invalid("media_type_invalid", "Content-Type is not a media type such as text/plain")
    return name


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("POST", "/api/v1/artifacts", "Store a body; its id is its SHA-256",
              put, action="artifacts.write", answer=ArtifactRecord, status=201, role=Role.USER, errors=(413,),
              timeout_s=UPLOAD_TIMEOUT_S),
    HttpRoute("GET", "/api/v1/artifacts/{artifact_id}", "Fetch a body as a download",
              get, action="artifacts.read", resource=ARTIFACT, media_types=("*/*",)),
)  # fmt: skip
