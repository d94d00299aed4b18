"""Roles: which role an action needs, and asking the access policy about it.

Does not own: Cedar (adapters.policy), the operations themselves: each declares its action and the least roles for it.
Invariants: the bundled Cedar policies decide as the operations declare; a test compares them. A program asks, looks and
stops, whatever its role: it decides, remembers and erases nothing, for its words are nobody's orders.
"""

from typing import Protocol

from palyra.core.errors import Unauthorized
from palyra.core.events.tool import Verdict
from palyra.core.ids import Principal
from palyra.gateway.access.caller import Caller
from palyra.ports.policy import AccessPolicy, ApiQuestion
from palyra.ports.tokens import Role, covers, includes

PROGRAMS_ACTS = frozenset(
    {
        "approvals.answer",  # With no: what a yes needs is looked at where it is given (engine.api.approvals).
        "artifacts.write",
        "embeddings.create",
        "grants.revoke",
        "mcp.use",
        "policy.explain",
        "processes.stop",
        "responses.cancel",
        "runs.cancel",
        "runs.input",
        "runs.start",
        "sessions.branch",
        "sessions.checkpoint",
        "sessions.compact",
        "sessions.label",
        "sessions.reset",
        "sessions.resolve",
        "sessions.restore",
    }
)
_LOOKS = frozenset({"describe", "follow", "list", "metrics", "read", "ready", "report", "search", "verify"})

EVERYONE = Principal("system:everyone")  # The owner in a question about everyone's resources at once.


class Operation(Protocol):
    """What a protocol lets callers do: a route of HTTP, a method of gRPC.

    `action` is what the access policy is asked about. `role` is the least role for it, `others` the least role for it
    upon another's resource; None if nobody may do that.
    """

    @property
    def action(self) -> str: ...

    @property
    def role(self) -> Role: ...

    @property
    def others(self) -> Role | None: ...

    @property
    def is_read_only(self) -> bool: ...


def require(policy: AccessPolicy, caller: Caller, action: str, owner: Principal | None) -> None:
    """Unauthorized unless the token's own limits and the policy both permit it."""
    if not covers(caller.actions, action):
        raise Unauthorized("scope_insufficient", f"this token is limited to {', '.join(caller.actions)}, not {action}")
    if caller.client is not None and not programs_may(action):
        raise Unauthorized("person_needed", f"this token speaks for a program, and {action} is for a person to do")
    question = ApiQuestion(principal=caller.principal, role=caller.role.value, action=action, owner=owner)
    answer = policy.permit(question)
    if answer.verdict is not Verdict.ALLOW:
        raise Unauthorized("role_insufficient", f"{answer.reason} (rule {answer.rule})")


def programs_may(action: str) -> bool:
    """Tells whether a token that speaks for a program may do this, if its role does."""
    return action in PROGRAMS_ACTS or action.partition(".")[2] in _LOOKS


def require_role_within(own: Role, given: Role | None) -> None:
    """Nobody gives an account a role above their own."""
    if given is not None and not includes(own, given):
        raise Unauthorized("role_insufficient", f"you are {own.value} and may not give the role {given.value}")
