"""Routes of skills.

Owns: listing, showing and changing the status of skills over HTTP.
Does not own: what a skill is (engine.api.skills).
"""

import msgspec
from starlette.responses import Response

from palyra.core.skills import SkillPlace, SkillStatus
from palyra.engine.api.skills import SkillChange, SkillQuery, SkillRecord
from palyra.gateway.http.responses import answer_json
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute, Unread
from palyra.gateway.routes.bodies import Name, RequestBody, Sha256Text
from palyra.ports.tokens import Role

SKILLS_TIMEOUT_S = 60.0  # Folders may be large and disks slow.


class AgentQuery(RequestBody, frozen=True, kw_only=True):
    """Skills of the workspaces of this agent; else of the default one."""

    agent: Name | None = None


class OneQuery(RequestBody, frozen=True, kw_only=True):
    agent: Name | None = None
    place: SkillPlace | None = None


class SkillBody(RequestBody, frozen=True, kw_only=True):
    """`sha256` is that of the skill as it was looked at; of another nothing is changed."""

    status: SkillStatus
    agent: Name | None = None
    place: SkillPlace | None = None
    sha256: Sha256Text | None = None


class SkillPage(msgspec.Struct, frozen=True):
    items: tuple[SkillRecord, ...]
    next_after: str | None


async def list_skills(call: HttpCall[AgentQuery, Unread]) -> Response:
    return answer_json(SkillPage(await call.services.engine.skills.list(call.query.agent), None))


async def show(call: HttpCall[OneQuery, Unread]) -> Response:
    query = SkillQuery(name=call.path["name"], agent=call.query.agent, place=call.query.place)
    return answer_json(await call.services.engine.skills.get(query))


async def change(call: HttpCall[Empty, SkillBody]) -> Response:
    body = call.body
    query = SkillQuery(name=call.path["name"], agent=body.agent, place=body.place)
    wish = SkillChange(status=body.status, sha256=body.sha256)
    return answer_json(await call.services.engine.skills.change(call.principal, query, wish))


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("GET", "/api/v1/skills", "List the skills an agent has, the broken ones with their problem",
              list_skills, action="skills.list", answer=SkillPage, timeout_s=SKILLS_TIMEOUT_S),
    HttpRoute("GET", "/api/v1/skills/{name}", "Show a skill with its instructions",
              show, action="skills.read", answer=SkillRecord, timeout_s=SKILLS_TIMEOUT_S, errors=(404,)),
    HttpRoute("PATCH", "/api/v1/skills/{name}",
              "Change a skill's status: active accepts one of a workspace as it is now",
              change, action="skills.change", answer=SkillRecord, role=Role.OPERATOR, timeout_s=SKILLS_TIMEOUT_S,
              errors=(404, 409)),
)  # fmt: skip
