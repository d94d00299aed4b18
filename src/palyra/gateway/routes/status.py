"""Routes of the daemon itself.

Owns: liveness, readiness, metrics, tools, agents, verification and the front page over HTTP.
Does not own: the facts they report (the engine's status).
"""

import msgspec
from starlette.responses import Response

from palyra.core.events.base import JsonObject
from palyra.core.tools import ToolSpec
from palyra.gateway.http.responses import BASE_HEADERS, answer_json
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute, Unread
from palyra.gateway.http.settings import VERIFY_TIMEOUT_S
from palyra.gateway.services import GrpcState
from palyra.ports.tokens import Role

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_FRONT_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Palyra</title>
<script src="/login.js" defer></script>
<h1>Palyra is running here</h1>
<p id="says" role="status"></p>
<section id="question" hidden>
<h2>A call waits for your answer</h2>
<p>Answer it on a terminal of this machine, or where you are logged in with a token:</p>
<pre id="commands"></pre>
</section>
<noscript><p>If a link to a question brought you here: <code>palyra approvals list</code> shows it.</p></noscript>
<p>This is the HTTP interface of a Palyra daemon. Every route but this page and <code>/healthz</code> needs a token:
<code>Authorization: Bearer …</code>; the owner's is in the file <code>admin.token</code> of the daemon's home.</p>
<p>The routes are described by <code>/api/v1/openapi.json</code> (needs a token) and, in words, by
<code>docs/http-api.md</code> in the source. On the command line, begin with <code>palyra --help</code>.</p>
</html>
"""
_PAGE_HEADERS = {
    **BASE_HEADERS,
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}


class HealthRecord(msgspec.Struct, frozen=True):
    status: str


class Readiness(msgspec.Struct, frozen=True):
    """`open_incidents` counts what the watchdog found and is not over. `grpc` does not decide whether it is ready."""

    status: str
    parts: dict[str, str]
    open_incidents: int = 0
    grpc: GrpcState = GrpcState("off")


class ToolRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that is not `available` has a `reason`, and nothing more is known of it."""

    id: str
    name: str
    available: bool
    reason: str | None = None
    description: str = ""
    input_schema: JsonObject = {}
    capabilities: tuple[str, ...] = ()
    effect_class: str | None = None
    parallel_class: str | None = None
    risk: str | None = None
    output_trust: str | None = None
    runtime: str | None = None
    timeout_s: float | None = None


class ToolPage(msgspec.Struct, frozen=True):
    items: tuple[ToolRecord, ...]
    next_after: str | None


class AgentRecord(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    default: bool
    instructions: str
    route: str
    tools: tuple[str, ...]
    workspace: tuple[str, ...]


class AgentPage(msgspec.Struct, frozen=True):
    items: tuple[AgentRecord, ...]
    next_after: str | None


class Verification(msgspec.Struct, frozen=True):
    """The result of `palyra verify --json`; there may be more members than these."""

    ok: bool


async def health(call: HttpCall[Empty, Unread]) -> Response:
    return answer_json(HealthRecord("ok"))


async def ready(call: HttpCall[Empty, Unread]) -> Response:
    status = call.services.engine.status
    parts = await status.parts()
    if status.is_draining:
        parts = {**parts, "daemon": "draining"}
    is_ready = all(state == "ok" for state in parts.values())
    open_count, grpc = await status.incidents_count(), call.services.grpc_state
    readiness = Readiness("ok" if is_ready else "not_ready", parts, open_count, grpc)
    return answer_json(readiness, 200 if is_ready else 503)


async def metrics(call: HttpCall[Empty, Unread]) -> Response:
    gauges = {"palyra_streams_open": float(call.services.slots.taken_count)}
    return Response(await call.services.engine.status.metrics(gauges), 200, BASE_HEADERS, METRICS_TYPE)


async def tools(call: HttpCall[Empty, Unread]) -> Response:
    """Those there are, then those that should be and are not; what has come back since is not told as missing."""
    status = call.services.engine.status
    there = tuple(_tool_record(spec) for spec in status.tools())
    names = {record.name for record in there}
    missing = {each.name: each.reason for each in status.missing_tools() if each.name not in names}
    gone = (ToolRecord(id=name, name=name, available=False, reason=reason) for name, reason in missing.items())
    return answer_json(ToolPage((*there, *gone), None))


async def agents(call: HttpCall[Empty, Unread]) -> Response:
    default = call.services.engine.status.default_agent()
    records = [
        AgentRecord(
            id=agent.name,
            name=agent.name,
            default=agent.name == default,
            instructions=agent.instructions,
            route=agent.route,
            tools=agent.tools,
            workspace=agent.workspace,
        )
        for agent in call.services.engine.status.agents()
    ]
    return answer_json(AgentPage(tuple(records), None))


async def verify(call: HttpCall[Empty, Unread]) -> Response:
    return answer_json(await call.services.engine.status.verify())


async def front_page(call: HttpCall[Empty, Unread]) -> Response:
    return Response(_FRONT_PAGE, 200, _PAGE_HEADERS, "text/html")


def _tool_record(spec: ToolSpec) -> ToolRecord:
    return ToolRecord(
        id=spec.name,
        name=spec.name,
        available=True,
        description=spec.description,
        input_schema=spec.input_schema,
        capabilities=tuple(sorted(capability.value for capability in spec.capabilities)),
        effect_class=spec.effect_class.value,
        parallel_class=spec.parallel_class.value,
        risk=spec.risk.value,
        output_trust=spec.output_trust.value,
        runtime=spec.runtime.value,
        timeout_s=spec.timeout_s,
    )


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("GET", "/", "A page that says what is running here",
              front_page, action="daemon.front", media_types=("text/html",), is_public=True),
    HttpRoute("GET", "/healthz", "Whether the daemon answers at all",
              health, action="daemon.live", answer=HealthRecord, is_public=True),
    HttpRoute("GET", "/readyz", "Whether the daemon can work, part by part; 503 if not",
              ready, action="daemon.ready", answer=Readiness),
    HttpRoute("GET", "/metrics", "Metrics in the Prometheus text format",
              metrics, action="daemon.metrics", media_types=(METRICS_TYPE,)),
    HttpRoute("GET", "/api/v1/tools", "List the tools of the catalog, and those that are missing with the reason",
              tools, action="tools.list", answer=ToolPage),
    HttpRoute("GET", "/api/v1/agents", "List the agents that are configured",
              agents, action="agents.list", answer=AgentPage),
    HttpRoute("GET", "/api/v1/journal/verify",
              "Check chains, checkpoints, projections and attestations of the whole journal",
              verify, action="journal.verify", answer=Verification, role=Role.OPERATOR, timeout_s=VERIFY_TIMEOUT_S),
)  # fmt: skip
