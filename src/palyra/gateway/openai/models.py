"""The routes of models: every agent, and every model that the default agent can be given."""

import msgspec
from starlette.responses import Response

from palyra.core.errors import NotFound
from palyra.gateway.http.responses import answer_json
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute, Unread

CREATED = 0  # Agents and models are settings, which have no time of their own.


class OpenaiModel(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    created: int
    owned_by: str
    object: str = "model"


class OpenaiModels(msgspec.Struct, frozen=True, kw_only=True):
    data: tuple[OpenaiModel, ...]
    object: str = "list"


async def list_models(call: HttpCall[Empty, Unread]) -> Response:
    return answer_json(OpenaiModels(data=_listed(call)))


async def show_model(call: HttpCall[Empty, Unread]) -> Response:
    wanted = call.path["model_name"]
    found = next((model for model in _listed(call) if model.id == wanted), None)
    if found is None:
        raise NotFound("model_not_found", "there is no such agent or model; see GET /v1/models")
    return answer_json(found)


def _listed(call: HttpCall[Empty, Unread]) -> tuple[OpenaiModel, ...]:
    """The default agent first. A model with the name of an agent is that agent."""
    status = call.services.engine.status
    agents = sorted((agent.name for agent in status.agents()), key=lambda name: (name != status.default_agent(), name))
    owners = dict.fromkeys(agents, "palyra") | {
        card.name: card.provider for card in status.models() if card.name not in agents
    }
    return tuple(OpenaiModel(id=name, created=CREATED, owned_by=owner) for name, owner in owners.items())


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("GET", "/v1/models", "OpenAI-compatible: list agents and models",
              list_models, action="models.list", answer=OpenaiModels),
    HttpRoute("GET", "/v1/models/{model_name}", "OpenAI-compatible: show an agent or a model",
              show_model, action="models.list", answer=OpenaiModel),
)  # fmt: skip
