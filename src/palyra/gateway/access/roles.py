"""Roles: which role an action needs, and asking the access policy about it.

Does not own: Cedar (adapters.policy), the operations themselves: each declares its action and the least roles for it.
Invariant: the bundled Cedar policies decide as the operations declare; a test compares them.
"""

from typing import Protocol

from palyra.core.errors import Unauthorized
from palyra.core.events.tool import Verdict
from palyra.core.ids import Principal
from palyra.gateway.access.caller import Caller
from palyra.ports.policy import AccessPolicy, ApiQuestion
from palyra.ports.tokens import Role, covers, includes

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
    question = ApiQuestion(principal=caller.principal, role=caller.role.value, action=action, owner=owner)
    answer = policy.permit(question)
    if answer.verdict is not Verdict.ALLOW:
        raise Unauthorized("role_insufficient", f"{answer.reason} (rule {answer.rule})")


def require_role_within(own: Role, given: Role | None) -> None:
    """Nobody gives an account a role above their own."""
    if given is not None and not includes(own, given):
        raise Unauthorized("role_insufficient", f"you are {own.value} and may not give the role {given.value}")
