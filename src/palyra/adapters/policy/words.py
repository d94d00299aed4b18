"""Refuses words in policies that a call's context never holds.

Does not own: the check of types, which is Cedar's.
Cedar knows that a risk is a text, not which texts exist: `context.risk == "hihg"` would never hold, and nobody would be
told. Here every text compared with such a member must be one that can occur, and so must the name of a role.
"""

from collections.abc import Iterator

from palyra.core.events.tool import EffectClass, Risk
from palyra.core.tools import Capability, Runtime

WHOLE_CONTEXT = ""  # Stands for a policy that uses the context other than by its members.
ROLES = ("viewer", "user", "operator", "admin")  # Each includes those before it.

_CONTEXT = {"Var": "context"}
_WORDS = {
    "capabilities": frozenset(capability.value for capability in Capability),
    "effect_class": frozenset(effect.value for effect in EffectClass),
    "risk": frozenset(risk.value for risk in Risk),
    "runtime": frozenset(runtime.value for runtime in Runtime),
}


def unknown_words(policy: object) -> Iterator[str]:
    """Yields what is wrong with a policy in Cedar's JSON form, a sentence each."""
    if isinstance(policy, list):
        for part in policy:
            yield from unknown_words(part)
    elif isinstance(policy, dict):
        yield from _unknown_role(policy)
        yield from _unknown_text(policy)
        for part in policy.values():
            yield from unknown_words(part)


def members_used(policy: object) -> Iterator[str]:
    """Yields the members of the context that a policy in Cedar's JSON form uses, perhaps more than once."""
    if isinstance(policy, list):
        for part in policy:
            yield from members_used(part)
    elif isinstance(policy, dict):
        if policy == _CONTEXT:
            yield WHOLE_CONTEXT
        for operator, part in policy.items():
            is_member = operator in (".", "has") and isinstance(part, dict) and part.get("left") == _CONTEXT
            if is_member and isinstance(part.get("attr"), str):
                yield part["attr"]
            else:
                yield from members_used(part)


def _unknown_role(node: dict[str, object]) -> Iterator[str]:
    if node.get("type") == "Role" and isinstance(node.get("id"), str) and node["id"] not in ROLES:
        yield f"there is no role {node['id']!r}; the roles are {', '.join(ROLES)}"


def _unknown_text(node: dict[str, object]) -> Iterator[str]:
    """Checks an operation between two sides, one of which is a member whose words are known."""
    for sides in node.values():
        if not isinstance(sides, dict) or set(sides) != {"left", "right"}:
            continue
        for one, other in ((sides["left"], sides["right"]), (sides["right"], sides["left"])):
            member = _member(one)
            known = _WORDS.get(member, frozenset())
            unknown = sorted(word for word in _texts(other) if known and word not in known)
            if unknown:
                yield f"context.{member} is never {', '.join(map(repr, unknown))}; it knows {', '.join(sorted(known))}"


def _member(node: object) -> str:
    """Returns the X of `context.X`, or nothing."""
    access = node.get(".") if isinstance(node, dict) else None
    if not isinstance(access, dict) or access.get("left") != _CONTEXT:
        return ""
    return str(access.get("attr"))


def _texts(node: object) -> Iterator[str]:
    """Yields the texts of a literal, or of a set of literals."""
    if not isinstance(node, dict):
        return
    value, members = node.get("Value"), node.get("Set")
    if isinstance(value, str):
        yield value
    for member in [*(value if isinstance(value, list) else ()), *(members if isinstance(members, list) else ())]:
        if isinstance(member, str):
            yield member
        else:
            yield from _texts(member)
