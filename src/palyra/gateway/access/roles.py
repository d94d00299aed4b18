"""Roles: which role an action needs, and asking the access policy about it.

Owns: the decision by role alone, and the check of a caller against whichever policy is wired.
Does not own: Cedar (adapters.policy), the operations themselves: each declares its action and the least roles for it.
Invariant: the bundled Cedar policies decide as this table does; it is used where no policy engine is wired.
"""

from collections.abc import Iterable
from typing import Protocol

from palyra.core.errors import Invalid, Unauthorized
from palyra.core.events.tool import Verdict
from palyra.core.ids import Principal
from palyra.gateway.access.caller import Caller
from palyra.ports.policy import AccessPolicy, ApiQuestion, PolicyAnswer
from palyra.ports.tokens import Role, covers, includes

EVERYONE = Principal("system:everyone")  # The owner in a question about everyone's resources at once.

Limits = tuple[Role, Role | None]


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


class RoleTable:
    """The AccessPolicy port by roles alone."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._limits = _limits_of(operations)

    def permit(self, question: ApiQuestion) -> PolicyAnswer:
        own, others = self._limits.get(question.action, (None, None))
        is_anothers = question.owner is not None and question.owner != question.principal
        needed = others if is_anothers else own
        try:
            is_permitted = needed is not None and includes(Role(question.role), needed)
        except ValueError:
            is_permitted = False
        if is_permitted:
            return PolicyAnswer(verdict=Verdict.ALLOW, rule="roles", reason="the role includes it")
        if needed is None:
            return PolicyAnswer(verdict=Verdict.DENY, rule="roles", reason=f"{question.action} is for nobody")
        reason = f"{question.action} needs the role {needed.value}, not {question.role}"
        return PolicyAnswer(verdict=Verdict.DENY, rule="roles", reason=reason)


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


def _limits_of(operations: Iterable[Operation]) -> dict[str, Limits]:
    found: dict[str, Limits] = {}
    for operation in operations:
        limits = (operation.role, operation.others)
        if found.setdefault(operation.action, limits) != limits:
            raise Invalid("action_ambiguous", f"operations of the action {operation.action} disagree about roles")
    return found
