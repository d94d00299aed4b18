"""Grants: when an earlier answer covers a new call, and which grant an answer makes.

Does not own: what is offered (offers).
A grant covers the call's shape: the tool plus constraints on its arguments. The person reads them in words before
giving the grant.
Invariants: a grant is never wider than offered. It only covers calls whose taint was already there when it was given.
A term that this release does not understand covers nothing (L6).
"""

import hashlib
import posixpath
import re
from enum import Enum

import msgspec

from palyra.core.errors import Invalid
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import Constraint, Grant, GrantOption, Scope
from palyra.core.ids import ApprovalId, Principal, derive_grant_id
from palyra.core.sensitive_files import is_sensitive

TTL_S_MAX = 30 * 24 * 3600
TTL_S_DEFAULT = 3600
METHOD_DEFAULT = "GET"
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
    COMMAND_PREFIX = "command_prefix"  # Every command of the parsed text begins with these words.
    ANY = "any"  # Any arguments.


_EXACT = frozenset({Operator.EQUALS.value, Operator.HAS_SHA256.value, Operator.ONLY.value})


class GrantCase(msgspec.Struct, frozen=True, kw_only=True):
    """A call that a grant may cover. `command_words` is what its tool said it would run (CallNature).

    `has_secrets` says that markers stand in its arguments. The secrets were not shown to the person who gave the grant,
    so no grant for a kind of call covers it.
    """

    tool: str
    arguments: JsonObject
    taint: tuple[str, ...]
    principal: Principal
    agent: str
    now_ms: int
    command_words: tuple[tuple[str, ...], ...] = ()
    has_secrets: bool = False


class GrantTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Everything from which an answer makes a grant."""

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


def make_grant(terms: GrantTerms) -> Grant | None:
    """Returns the grant that an answer gives. An answer for once grants nothing beyond its own call."""
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
    """Tells whether this unrevoked grant covers the call; the caller has checked the session and its resets."""
    is_same = (grant.tool, grant.principal, grant.agent) == (case.tool, case.principal, case.agent)
    is_timely = grant.expires_at_ms is None or case.now_ms < grant.expires_at_ms
    is_clean = set(case.taint) <= set(grant.taint)
    is_plain = not case.has_secrets or all(one.operator in _EXACT for one in grant.constraints)
    return (
        is_same and is_timely and is_clean and is_plain and meets(grant.constraints, case.arguments, case.command_words)
    )


def meets(
    constraints: tuple[Constraint, ...], arguments: JsonObject, command_words: tuple[tuple[str, ...], ...]
) -> bool:
    """Tells whether a call of the same tool has this shape. An empty list of constraints is no shape."""
    return bool(constraints) and all(_holds(one, arguments, command_words) for one in constraints)


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


def _expiry_ms(terms: GrantTerms, scope: Scope) -> int | None:
    if scope is Scope.SESSION and terms.ttl_s is None:
        return None
    ttl_s = TTL_S_DEFAULT if terms.ttl_s is None else terms.ttl_s
    if not 1 <= ttl_s <= TTL_S_MAX:
        raise Invalid("ttl_invalid", f"a grant lasts from 1 to {TTL_S_MAX} seconds")
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
            words = _words(wanted)
            return bool(words and command_words) and all(each[: len(words)] == words for each in command_words)
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
