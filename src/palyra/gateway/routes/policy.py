"""Routes of policies.

Owns: asking over HTTP how a call, or the use of a model, would be judged.
Does not own: judging it (engine.api.policy_explainer, adapters.policy).
"""

from typing import Annotated

from msgspec import Meta
from starlette.responses import Response

from palyra.core.errors import Invalid
from palyra.core.events.base import JsonObject
from palyra.core.ids import SessionId, StreamId, parse_principal
from palyra.core.taint import LABEL_LENGTH_MAX, SOURCES_MAX
from palyra.engine.api.policy_explainer import ExplainRequest, Explanation, ModelExplainRequest
from palyra.gateway.access.roles import require
from palyra.gateway.http.responses import answer_json
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute
from palyra.gateway.routes.bodies import Name, RequestBody, UlidText
from palyra.ports.tokens import Role

TaintLabel = Annotated[str, Meta(min_length=1, max_length=LABEL_LENGTH_MAX)]


class ExplainBody(RequestBody, frozen=True, kw_only=True):
    """Either `tool` with its `arguments`, or `model`, which may come with `is_named`."""

    tool: Name | None = None
    arguments: JsonObject | None = None
    principal: Name | None = None
    agent: Name | None = None
    session_id: UlidText | None = None
    taint: Annotated[tuple[TaintLabel, ...], Meta(max_length=SOURCES_MAX)] | None = None
    model: Name | None = None
    is_named: bool = False


async def explain(call: HttpCall[Empty, ExplainBody]) -> Response:
    """Asking for another principal needs the permission of the access policy."""
    body = call.body
    principal = parse_principal(body.principal) if body.principal is not None else call.principal
    if principal != call.principal:
        require(call.services.credentials.policy, call.caller, call.action, principal)
    session_id = SessionId(StreamId(body.session_id)) if body.session_id is not None else None
    explaining = call.services.engine.explaining
    if body.tool is not None and body.arguments is not None and body.model is None and not body.is_named:
        request = ExplainRequest(
            tool=body.tool, arguments=body.arguments, agent=body.agent, session_id=session_id, taint=body.taint
        )
        return answer_json(await explaining.explain(principal, request))
    if body.model is None or body.tool is not None or body.arguments is not None:
        raise Invalid("question_unclear", "name a tool with its arguments, or a model")
    about_model = ModelExplainRequest(
        model=body.model, agent=body.agent, session_id=session_id, taint=body.taint, is_named=body.is_named
    )
    return answer_json(await explaining.explain_model(principal, about_model))


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("POST", "/api/v1/policy/explain",
              "Tell how a call or the use of a model would be judged and by which policies; nothing is executed",
              explain, action="policy.explain", others=Role.OPERATOR, answer=Explanation, role=Role.USER,
              errors=(404,)),
)  # fmt: skip
