"""Roles. Owns: the decision about an action by role alone, and asking whichever access policy there is. Not: Cedar (adapters).

The table is the routes' own: each says the least role for its action, and for its action upon another's thing. It stands
where no policy engine is wired, and says what the bundled policies are to say too.
"""

from collections.abc import Iterable

from palyra.core.errors import Invalid, Unauthorized
from palyra.core.events.tool import Verdict
from palyra.core.ids import Principal
from palyra.gateway.http.route import AnyHttpRoute, Caller
from palyra.ports.policy import AccessPolicy, ApiQuestion, PolicyAnswer
from palyra.ports.tokens import Role, covers, includes

EVERYONE = Principal("system:everyone")  # The owner in a question about everybody's things at once.

Limits = tuple[Role, Role | None]


class RoleTable:
    """The AccessPolicy port by roles alone."""

    def __init__(self, routes: Iterable[AnyHttpRoute]) -> None:
        self._limits = _limits_of(routes)

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


def _limits_of(routes: Iterable[AnyHttpRoute]) -> dict[str, Limits]:
    found: dict[str, Limits] = {}
    for route in routes:
        limits = (route.role, route.others)
        if found.setdefault(route.action, limits) != limits:
            raise Invalid("action_ambiguous", f"routes of the action {route.action} disagree about roles")
    return found
