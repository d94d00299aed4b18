"""The Policy port: the questions by which calls and the use of models are judged, and their answer.

Does not own: grants and approvals (engine.session.gate).
"""

from typing import Protocol

import msgspec

from palyra.core.events.base import JsonObject
from palyra.core.events.tool import PolicySnapshot, Verdict
from palyra.core.ids import Principal, SessionId
from palyra.core.tools import CallNature, ToolSpec


class PolicyQuestion(msgspec.Struct, frozen=True, kw_only=True):
    principal: Principal
    agent: str
    session_id: SessionId
    channel: str = ""
    skills: tuple[str, ...] = ()
    budget_left_usd: float | None = None
    is_known_address: bool = False
    spec: ToolSpec
    arguments: JsonObject
    nature: CallNature
    taint: tuple[str, ...]


class ModelQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a model may take a turn. `is_named` says that whoever started the run named the model or its route."""

    principal: Principal
    agent: str
    model: str
    provider: str
    origin: str = ""
    taint: tuple[str, ...] = ()
    is_named: bool = False
    budget_left_usd: float | None = None


class PolicyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Every verdict names the rule that gave it."""

    verdict: Verdict
    rule: str
    reason: str
    snapshot: PolicySnapshot | None = None


class ApiQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """An action on the daemon: which route, by whom, in which role, and on whose resource.

    The owner is None if the resource belongs to nobody in particular.
    """

    principal: Principal
    role: str
    action: str
    owner: Principal | None = None


class AccessPolicy(Protocol):
    def permit(self, question: ApiQuestion) -> PolicyAnswer:
        """Returns Allow or Deny; fails closed, as `judge` does."""
        ...


class Policy(Protocol):
    def judge(self, question: PolicyQuestion) -> PolicyAnswer:
        """Fails closed (L6): an error inside is a Deny that names itself, never an exception."""
        ...

    def permit_model(self, question: ModelQuestion) -> PolicyAnswer:
        """Returns Allow or Deny; fails closed, as `judge` does."""
        ...

    def permits_network(self, question: PolicyQuestion) -> bool:
        """Tells whether the sandbox of this call may reach the network. Only an explicit permit allows it."""
        ...
