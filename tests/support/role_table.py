"""The AccessPolicy port by the roles that operations declare: what the bundled Cedar policies are compared with."""

from collections.abc import Iterable

from palyra.core.events.tool import Verdict
from palyra.gateway.access.roles import Operation
from palyra.ports.policy import ApiQuestion, PolicyAnswer
from palyra.ports.tokens import Role, includes

Limits = tuple[Role, Role | None]


class RoleTable:
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


def _limits_of(operations: Iterable[Operation]) -> dict[str, Limits]:
    found: dict[str, Limits] = {}
    for operation in operations:
        limits = (operation.role, operation.others)
        if found.setdefault(operation.action, limits) != limits:
            raise AssertionError(f"operations of the action {operation.action} disagree about roles")
    return found
