"""Routes of models.

Owns: listing models and asking for a check of one over HTTP.
Does not own: what is known of a model, the call of a check (engine.api.model_check).
"""

import msgspec
from starlette.responses import Response

from palyra.engine.api.model_check import CHECK_TIMEOUT_S, ModelCheck
from palyra.gateway.http.responses import answer_json
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute, Unread
from palyra.ports.router import ModelCard
from palyra.ports.tokens import Role

CHECK_ANSWER_S = CHECK_TIMEOUT_S + 15.0  # The call itself, and two records of it.


class ModelPage(msgspec.Struct, frozen=True):
    items: tuple[ModelCard, ...]
    next_after: str | None


async def list_models(call: HttpCall[Empty, Unread]) -> Response:
    return answer_json(ModelPage(call.services.engine.status.models(), None))


async def check(call: HttpCall[Empty, Empty]) -> Response:
    """A check that fails is an answer too: what it found is in the body."""
    call.services.require_open()
    return answer_json(await call.services.engine.status.check_model(call.principal, call.path["name"]))


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("GET", "/api/v1/models", "List the models that are configured, or were chosen at the start",
              list_models, action="models.list", answer=ModelPage),
    HttpRoute("POST", "/api/v1/models/{name}/check",
              "Make one small real call to a model; it costs what the provider asks for it",
              check, action="models.check", answer=ModelCheck, role=Role.OPERATOR, errors=(409,),
              timeout_s=CHECK_ANSWER_S),
)  # fmt: skip
