"""Service runs: model calls that the daemon itself asks for.

Owns: which services there are, what each may spend, how their runs are named, and the records of a request for one.
Does not own: starting them (engine.api.service_runs).

Every model call belongs to a run; a check of a model, a summary or a reflection does too. So each is planned, reserved,
settled, redacted, resumed and erased like any other run. A service run has no tools and nobody to ask. Its tape names
the session it serves, and its principal is the one it serves.
"""

import hashlib
from functools import cache

import msgspec

from palyra.core.agents import AgentSpec
from palyra.core.compaction.transcript import INSTRUCTIONS as SUMMARY_INSTRUCTIONS
from palyra.core.errors import Conflict
from palyra.core.events.base import JsonObject
from palyra.core.events.model import Usage
from palyra.core.events.run import RunLimits
from palyra.core.ids import EffectId, JobId, Principal, RunId, SessionId, derive_child_ids, digest_call
from palyra.core.learning.reflection import REFLECTION_INSTRUCTIONS
from palyra.core.review import REVIEW_INSTRUCTIONS
from palyra.core.trust import Trust

ORIGIN = "service"
_PREFIX = "service:"


class ServiceSpec(msgspec.Struct, frozen=True, kw_only=True):
    """`is_probe`: the model is called although its circuit breaker is open; the call itself shows whether it works."""

    purpose: str
    instructions: str
    wall_clock_ms: int
    max_output_tokens: int
    max_turns: int = 2
    is_probe: bool = False

    @property
    def agent(self) -> str:
        """Returns the agent name of this service's runs. No configured agent can have it."""
        return f"{_PREFIX}{self.purpose}"

    @property
    def limits(self) -> RunLimits:
        return RunLimits(wall_clock_ms=self.wall_clock_ms, max_tool_calls=0, max_turns=self.max_turns, parallel_tools=1)


class ServiceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`principal` is whom the run serves and who is charged. `trust` is the lowest trust of the text's parts (L8).

    `serves_agent` is the agent of the session that it serves: a model that is not permitted there is not used.
    `batch_tokens` is the input that the call has besides `text`.
    `ids` are those of the session and the run, if they come from what the run is for: then a request that is repeated
    after a crash finds the same run, and nothing is asked or charged twice.
    """

    spec: ServiceSpec
    principal: Principal
    text: str
    trust: Trust = Trust.SYSTEM
    serves: SessionId | None = None
    serves_agent: str | None = None
    model: str | None = None
    answer_schema: JsonObject | None = None
    batch_tokens: int | None = None
    ids: tuple[SessionId, RunId] | None = None


class ServiceOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a service run. `answer` is None unless the run is done.

    `code` and `message` say why it is not: the failure of the model call, else the reason the run ended for. `text` is
    what the model said, also if the run failed. `usage` is what the provider counted, or None if it did not count.
    """

    run_id: RunId
    session_id: SessionId
    answer: str | None = None
    code: str | None = None
    message: str = ""
    text: str = ""
    usage: Usage | None = None
    cost_usd: float | None = None


MODEL_CHECK = ServiceSpec(
    purpose="model.check",
    instructions="",
    wall_clock_ms=60_000,
    # Leaves room to think: a reasoning model spends this before its first word. OpenAI refuses a limit it runs into.
    max_output_tokens=512,
    max_turns=1,
    is_probe=True,
)

SESSION_SUMMARY = ServiceSpec(
    purpose="session.summary", instructions=SUMMARY_INSTRUCTIONS, wall_clock_ms=120_000, max_output_tokens=2_048
)

MEMORY_EMBEDDING = ServiceSpec(
    purpose="memory.embedding", instructions="", wall_clock_ms=120_000, max_output_tokens=16, max_turns=1
)

REFLECTION = ServiceSpec(
    purpose="run.reflection", instructions=REFLECTION_INSTRUCTIONS, wall_clock_ms=120_000, max_output_tokens=1_536
)

REVIEW = ServiceSpec(
    purpose="run.review", instructions=REVIEW_INSTRUCTIONS, wall_clock_ms=120_000, max_output_tokens=2_048
)

SERVICES = {spec.agent: spec for spec in (MODEL_CHECK, SESSION_SUMMARY, MEMORY_EMBEDDING, REFLECTION, REVIEW)}


def question_ids(spec: ServiceSpec, asker: RunId | JobId, text: str) -> tuple[SessionId, RunId]:
    """Returns the session and the run of a question. Whoever asks the same again, as after a restart, finds them."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return derive_child_ids(RunId(asker), EffectId(digest_call(spec.purpose, [asker, digest])))


def is_service(agent: str) -> bool:
    """Whether a session of this agent belongs to the daemon: nobody speaks in it, labels it or branches off it."""
    return agent.startswith(_PREFIX)


def refuse_service(session_id: SessionId, agent: str) -> None:
    """Raises Conflict for a session of a service run."""
    if is_service(agent):
        message = f"session {session_id} belongs to a service run of the daemon; use a session of your own"
        raise Conflict("session_is_service", message, is_retryable=False)


def find_service(agent: str) -> ServiceSpec | None:
    """Returns the service whose runs have this agent name."""
    return SERVICES.get(agent) if is_service(agent) else None


@cache
def service_agent(spec: ServiceSpec) -> AgentSpec:
    """Returns the agent of a service run: its instructions, the default route, no tools. The same object each time."""
    return AgentSpec(name=spec.agent, instructions=spec.instructions, tools=())
