"""Grants and refusals: when an earlier answer covers a new call, and what an answer makes.

Does not own: what is offered (offers).
Both cover the call's shape: the tool plus constraints on its arguments. The person reads them in words before answering.
Invariants: neither is wider than offered. A grant only covers calls whose taint was already there when it was given; a
refusal covers calls with any taint. A term that this release does not understand covers nothing, so the call asks (L6).
What is unclear of a call's shape speaks against it both times: no grant covers the call, and a refusal does.
"""

import hashlib
import posixpath
import re
from enum import Enum

import msgspec

from palyra.core.command_words import goes_on_harmlessly
from palyra.core.errors import Invalid
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import ApprovalKind, Constraint, Decision, Grant, GrantOption, Refusal, Risk, Scope
from palyra.core.ids import ApprovalId, Principal, derive_grant_id
from palyra.core.sensitive_files import is_sensitive

TTL_S_MAX = 30 * 24 * 3600
TTL_S_DEFAULT = 3600
METHOD_DEFAULT = "GET"
REFUSED_BEFORE = "refused_before"  # The rule by which a refusal denies.
# Strict on purpose: an address that can be read in two ways has no origin, so no grant covers it by one.
_HOST = r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?"
_ADDRESS = re.compile(rf"(https?)://({_HOST})(?::([1-9][0-9]{{0,4}}))?(?:[/?#][!-\[\]-~]*)?", re.ASCII | re.IGNORECASE)
_PORTS = {"http": "80", "https": "443"}


class Operator(Enum):
    EQUALS = "equals"
    HAS_SHA256 = "has_sha256"  # As equals, for a value too long to be shown: the hash of its JSON text.
    UNDER = "under"  # A path equal to or below a folder.
    ONLY = "only"  # These arguments and no others: arguments that were not shown were not allowed.
    AMONG = "among"  # No other arguments than these.
    ORIGIN = "origin"  # An address of this scheme, host and port.
    METHOD = "method"  # This HTTP method; an absent one is GET.
    COMMAND_PREFIX = (
        "command_prefix"  # Every command of the parsed text begins with these words, and only names follow.
    )
    ANY = "any"  # Any arguments.


_EXACT = frozenset({Operator.EQUALS.value, Operator.HAS_SHA256.value, Operator.ONLY.value})
_KNOWN = frozenset(one.value for one in Operator)
# The terms by which a kind of call is told. In a refusal the others would be ways around it: one more argument is enough.
_KINDS = frozenset(
    {
        Operator.UNDER.value,
        Operator.ORIGIN.value,
        Operator.METHOD.value,
        Operator.COMMAND_PREFIX.value,
        Operator.ANY.value,
    }
)


class GrantCase(msgspec.Struct, frozen=True, kw_only=True):
    """A call that an earlier answer may cover. `command_words` is what its tool said it would run (CallNature).

    `has_secrets` says that markers stand in its arguments. The secrets were not shown to the person who gave the grant,
    so no grant for a kind of call covers it. `agents_above` are those that the call's run works for: what they were
    refused, it is refused too.
    """

    tool: str
    arguments: JsonObject
    taint: tuple[str, ...]
    principal: Principal
    agent: str
    now_ms: int
    command_words: tuple[tuple[str, ...], ...] = ()
    has_secrets: bool = False
    agents_above: tuple[str, ...] = ()


class GrantTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Everything from which an answer makes a grant or a refusal."""

    approval_id: ApprovalId
    tool: str
    option: GrantOption
    taint: tuple[str, ...]
    principal: Principal
    agent: str
    now_ms: int
    ttl_s: int | None = None


def choose_option(options: tuple[GrantOption, ...], scope: Scope, index: int | None) -> GrantOption:
    """Returns the option that was chosen; refuses one that was not offered."""
    if index is not None:
        if not 0 <= index < len(options):
            raise Invalid("option_unknown", f"there are {len(options)} options; {index} is none of them")
        return options[index]
    for option in options:
        if option.scope is scope:
            return option
    raise Invalid("scope_not_offered", f"no option of scope {scope.value} was offered; see the approval's options")


def decisions_for(option: GrantOption, kind: ApprovalKind, risk: Risk) -> tuple[Decision, ...]:
    """Returns the answers that may name this option.

    The gate takes no earlier yes for a call of critical risk, so a yes for longer would promise what does not happen.
    A no lasts for calls of tools alone.
    """
    may_allow = risk is not Risk.CRITICAL or option.scope is Scope.ONCE
    may_deny = kind is ApprovalKind.TOOL
    return (Decision.ALLOW,) * may_allow + (Decision.DENY,) * may_deny


def make_grant(terms: GrantTerms) -> Grant | None:
    """Returns the grant that an answer gives. An answer for once grants nothing beyond its own call."""
    scope = terms.option.scope
    if scope is Scope.ONCE or terms.option.trusts:
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


def make_refusal(terms: GrantTerms) -> Refusal | None:
    """Returns the refusal that a no makes. A no for once refuses nothing beyond its own call."""
    scope = terms.option.scope
    if scope is Scope.ONCE:
        return None
    return Refusal(
        refusal_id=derive_grant_id(terms.approval_id),
        tool=terms.tool,
        scope=scope,
        constraints=terms.option.constraints,
        principal=terms.principal,
        agent=terms.agent,
        expires_at_ms=_expiry_ms(terms, scope),
    )


def covers(grant: Grant, case: GrantCase) -> bool:
    """Tells whether this unrevoked grant covers the call; the caller has checked the session and its resets."""
    is_same = (grant.tool, grant.principal, grant.agent) == (case.tool, case.principal, case.agent)
    is_timely = _is_timely(grant, case)
    is_clean = set(case.taint) <= set(grant.taint)
    is_plain = not case.has_secrets or all(one.operator in _EXACT for one in grant.constraints)
    return (
        is_same and is_timely and is_clean and is_plain and meets(grant.constraints, case.arguments, case.command_words)
    )


def refuses(refusal: Refusal, case: GrantCase) -> bool:
    """Tells whether this unrevoked refusal covers the call; the caller has checked the session and its resets."""
    is_same = (refusal.tool, refusal.principal) == (case.tool, case.principal)
    is_of_agent = refusal.agent in (case.agent, *case.agents_above)
    return is_same and is_of_agent and _is_timely(refusal, case) and _is_refused(refusal.constraints, case)


def meets(
    constraints: tuple[Constraint, ...], arguments: JsonObject, command_words: tuple[tuple[str, ...], ...]
) -> bool:
    """Tells whether a call of the same tool has this shape. An empty list of constraints is no shape."""
    return bool(constraints) and all(_holds(one, arguments, command_words) for one in constraints)


def _is_refused(constraints: tuple[Constraint, ...], case: GrantCase) -> bool:
    """Tells whether a refused kind of call is in this one. A refusal of exactly one call covers that one."""
    kinds = [one for one in constraints if one.operator in _KINDS]
    if not kinds:
        return meets(constraints, case.arguments, case.command_words)
    return all(one.operator in _KNOWN for one in constraints) and all(_reaches(one, case) for one in kinds)


def _reaches(kind: Constraint, case: GrantCase) -> bool:
    value = case.arguments.get(kind.argument)
    text = value if isinstance(value, str) else ""
    match kind.operator:
        case Operator.COMMAND_PREFIX.value:
            words = _words(kind.value)
            # In the text itself, so that neither a command before it nor a variable behind it hides it.
            said = r"(?<![\w-])" + r"\s+".join(map(re.escape, words)) + r"(?![\w-])"
            return bool(words) and re.search(said, text) is not None
        case Operator.UNDER.value:
            return bool(text) and _is_under(posixpath.normpath(text), kind.value)
        case Operator.ORIGIN.value:
            origin = origin_of(text)
            return origin == kind.value if origin is not None else kind.value.partition("://")[2] in text.lower()
        case _:
            return _holds(kind, case.arguments, case.command_words)


def origin_of(url: object) -> str | None:
    """Returns scheme, host and port of an address that can be understood in one way only."""
    found = _ADDRESS.fullmatch(url) if isinstance(url, str) else None
    if found is None:
        return None
    scheme, host, port = found[1].lower(), found[2].lower(), found[3]
    return f"{scheme}://{host}" if port in (None, _PORTS[scheme]) else f"{scheme}://{host}:{port}"


def method_of(arguments: JsonObject) -> str | None:
    method = arguments.get("method", METHOD_DEFAULT)
    return method.upper() if isinstance(method, str) else None


def as_text(value: object) -> str:
    """Returns the value as JSON, strings too: the text "1" and the number 1 are different arguments."""
    return msgspec.json.encode(value, order="sorted").decode()


def hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _is_timely(given: Grant | Refusal, case: GrantCase) -> bool:
    return given.expires_at_ms is None or case.now_ms < given.expires_at_ms


def _expiry_ms(terms: GrantTerms, scope: Scope) -> int | None:
    if scope is Scope.SESSION and terms.ttl_s is None:
        return None
    ttl_s = TTL_S_DEFAULT if terms.ttl_s is None else terms.ttl_s
    if not 1 <= ttl_s <= TTL_S_MAX:
        raise Invalid("ttl_invalid", f"an answer lasts from 1 to {TTL_S_MAX} seconds")
    return terms.now_ms + ttl_s * 1000


def _holds(constraint: Constraint, arguments: JsonObject, command_words: tuple[tuple[str, ...], ...]) -> bool:
    """Checks one constraint. An absent argument or an operator that this release does not know meets nothing (L6)."""
    wanted = constraint.value
    match constraint.operator:
        case Operator.ANY.value:
            return True
        case Operator.ONLY.value:
            return as_text(sorted(arguments)) == wanted
        case Operator.AMONG.value:
            return set(arguments) <= set(_words(wanted))
        case Operator.METHOD.value:
            return method_of(arguments) == wanted
        case Operator.COMMAND_PREFIX.value:
            prefix = _words(wanted)
            return bool(prefix and command_words) and all(goes_on_harmlessly(each, prefix) for each in command_words)
        case _:
            return _value_holds(constraint, arguments.get(constraint.argument))


def _value_holds(constraint: Constraint, value: object) -> bool:
    if value is None:
        return False
    match constraint.operator:
        case Operator.EQUALS.value:
            return as_text(value) == constraint.value
        case Operator.HAS_SHA256.value:
            return hash_text(as_text(value)) == constraint.value
        case Operator.ORIGIN.value:
            return origin_of(value) == constraint.value
        case Operator.UNDER.value:
            # A sensitive file is covered only by a folder whose own name shows that such files lie in it.
            path = posixpath.normpath(value) if isinstance(value, str) else None
            is_told = path is not None and (not is_sensitive(path) or is_sensitive(constraint.value))
            return path is not None and is_told and _is_under(path, constraint.value)
        case _:
            return False


def _words(text: str) -> tuple[str, ...]:
    try:
        return msgspec.json.decode(text, type=tuple[str, ...])
    except msgspec.DecodeError:
        return ()


def _is_under(path: str, folder: str) -> bool:
    if path.startswith(("..", "/")) and not folder.startswith("/"):
        return False
    return folder == "." or path == folder or path.startswith(folder.rstrip("/") + "/")
