"""Routes of context.

Owns: asking over HTTP what the references of a text would bring.
Does not own: resolving them (engine.api.context_preview).
"""

from typing import Annotated

from msgspec import Meta
from starlette.responses import Response

from palyra.core.ids import SessionId, StreamId
from palyra.engine.api.context_preview import ContextPreview
from palyra.engine.api.requests import TEXT_LENGTH_MAX
from palyra.gateway.http.responses import answer_json
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute
from palyra.gateway.routes.bodies import RequestBody, UlidText
from palyra.ports.tokens import Role


class PreviewBody(RequestBody, frozen=True, kw_only=True):
    text: Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)]
    session_id: UlidText | None = None


async def preview(call: HttpCall[Empty, PreviewBody]) -> Response:
    body = call.body
    session_id = SessionId(StreamId(body.session_id)) if body.session_id is not None else None
    return answer_json(await call.services.engine.previews.preview(call.principal, body.text, session_id))


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("POST", "/api/v1/context/preview", "Tell what the references of a text would bring; nothing is recorded",
              preview, action="context.preview", answer=ContextPreview, role=Role.USER, errors=(404,)),
)  # fmt: skip
