"""Grants. Owns: what a person is offered to allow, and when an earlier answer covers a new call. Not: asking (engine).

A grant covers the call's shape: the tool plus constraints on its arguments, shown in words before it is given. It is
never wider than offered, and only covers calls whose taint was already there when it was given.
"""

import hashlib
import posixpath
from enum import Enum

import msgspec

from palyra.core.errors import Invalid
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import Constraint, Grant, GrantOption, Scope
from palyra.core.ids import ApprovalId, Principal, derive_grant_id

TTL_S_MAX = 30 * 24 * 3600
TTL_S_DEFAULT = 3600
VALUE_LENGTH_MAX = 500  # Of a value shown in an option; a longer one is named by its hash.
_FILE_TOOLS = "fs."  # For these the path is what matters; another tool's other arguments may matter as much.


class Operator(Enum):
    EQUALS = "equals"
    HAS_SHA256 = "has_sha256"  # As equals, for a value too long to be shown: the hash of its JSON text.
    UNDER = "under"  # A path equal to or below a folder.
    ONLY = "only"  # These arguments and no others: what was not shown was not allowed.


class GrantCase(msgspec.Struct, frozen=True, kw_only=True):
    """A call that a grant may cover."""

    tool: str
    arguments: JsonObject
    taint: tuple[str, ...]
    principal: Principal
    agent: str
    now_ms: int


class GrantTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer makes a grant from."""

    approval_id: ApprovalId
    tool: str
    option: GrantOption
    taint: tuple[str, ...]
    principal: Principal
    agent: str
    now_ms: int
    ttl_s: int | None = None


def make_options(tool: str, arguments: JsonObject) -> tuple[GrantOption, ...]:
    """From narrow to wide: this call, the same call again, the same tool in the same folder."""
    exact = (*_equals(arguments), _only(arguments))
    options = [
        GrantOption(scope=Scope.ONCE, constraints=exact, text=f"this call of {tool} only"),
        GrantOption(scope=Scope.SESSION, constraints=exact, text=f"this very call of {tool}, in this session"),
    ]
    path = arguments.get("path")
    if tool.startswith(_FILE_TOOLS) and isinstance(path, str):
        folder = posixpath.dirname(posixpath.normpath(path)) or "."
        below = (Constraint(argument="path", operator=Operator.UNDER.value, value=folder), _only(arguments))
        place = "the workspace" if folder == "." else f"{folder}/"
        options += [
            GrantOption(scope=Scope.SESSION, constraints=below, text=f"{tool} in {place}, in this session"),
            GrantOption(
                scope=Scope.TIMEBOXED, constraints=below, text=f"{tool} in {place}, for a time, in all sessions"
            ),
        ]
    else:
        options.append(
            GrantOption(
                scope=Scope.TIMEBOXED, constraints=exact, text=f"this very call of {tool}, for a time, in all sessions"
            )
        )
    return tuple(options)


def choose_option(options: tuple[GrantOption, ...], scope: Scope, index: int | None) -> GrantOption:
    """The option answered with; one that was not offered is refused."""
    if index is not None:
        if not 0 <= index < len(options):
            raise Invalid("option_unknown", f"there are {len(options)} options; {index} is none of them")
        return options[index]
    for option in options:
        if option.scope is scope:
            return option
    raise Invalid("scope_not_offered", f"no option of scope {scope.value} was offered; see the approval's options")


def make_grant(terms: GrantTerms) -> Grant | None:
    """An answer for once grants nothing beyond its own call."""
    scope = terms.option.scope
    if scope is Scope.ONCE:
        return None
    return Grant(
        grant_id=derive_grant_id(terms.approval_id),
        tool=terms.tool,
        scope=scope,
        constraints=terms.option.constraints,
        taint=terms.taint,
        principal=terms.principal,
        agent=terms.agent,
        expires_at_ms=_expiry_ms(terms, scope),
    )


def covers(grant: Grant, case: GrantCase) -> bool:
    """Whether this unrevoked grant answers for the call; session and reset are the caller's look-up."""
    is_same = (grant.tool, grant.principal, grant.agent) == (case.tool, case.principal, case.agent)
    is_timely = grant.expires_at_ms is None or case.now_ms < grant.expires_at_ms
    is_clean = set(case.taint) <= set(grant.taint)
    return is_same and is_timely and is_clean and all(_holds(one, case.arguments) for one in grant.constraints)


def _expiry_ms(terms: GrantTerms, scope: Scope) -> int | None:
    if scope is Scope.SESSION and terms.ttl_s is None:
        return None
    ttl_s = TTL_S_DEFAULT if terms.ttl_s is None else terms.ttl_s
    if not 1 <= ttl_s <= TTL_S_MAX:
        raise Invalid("ttl_invalid", f"a grant lasts from 1 to {TTL_S_MAX} seconds")
    return terms.now_ms + ttl_s * 1000


def _equals(arguments: JsonObject) -> tuple[Constraint, ...]:
    return tuple(_equal(name, value) for name, value in sorted(arguments.items()))


def _equal(name: str, value: object) -> Constraint:
    text = _as_text(value)
    if len(text) <= VALUE_LENGTH_MAX:
        return Constraint(argument=name, operator=Operator.EQUALS.value, value=text)
    return Constraint(argument=name, operator=Operator.HAS_SHA256.value, value=_hash(text))


def _only(arguments: JsonObject) -> Constraint:
    return Constraint(argument="", operator=Operator.ONLY.value, value=_as_text(sorted(arguments)))


def _holds(constraint: Constraint, arguments: JsonObject) -> bool:
    """An argument that is absent, or an operator this release does not know, meets nothing (L6)."""
    if constraint.operator == Operator.ONLY.value:
        return _as_text(sorted(arguments)) == constraint.value
    value = arguments.get(constraint.argument)
    if constraint.operator == Operator.HAS_SHA256.value:
        return value is not None and _hash(_as_text(value)) == constraint.value
    if value is None:
        return False
    if constraint.operator == Operator.EQUALS.value:
        return _as_text(value) == constraint.value
    if constraint.operator == Operator.UNDER.value and isinstance(value, str):
        return _is_under(posixpath.normpath(value), constraint.value)
    return False


def _is_under(path: str, folder: str) -> bool:
    if path.startswith(("..", "/")) and not folder.startswith("/"):
        return False
    return folder == "." or path == folder or path.startswith(folder.rstrip("/") + "/")


def _as_text(value: object) -> str:
    """As JSON, strings too: the text "1" and the number 1 are different arguments."""
    return msgspec.json.encode(value, order="sorted").decode()


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
