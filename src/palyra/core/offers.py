"""Offers: what a person may answer beyond yes and no, by the shape of the call, in words and in terms.

Does not own: what an answer then covers (grants).
Invariants: an offer's text says all that its terms open. Every offer covers the call in question. Wider shapes are
offered only for known kinds of calls, and only where the call's own shape is clear.
"""

import posixpath
import re
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from palyra.core.command_words import goes_on_harmlessly
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import Constraint, GrantOption, Risk, Scope
from palyra.core.grants import Operator, as_text, hash_text, meets, method_of, origin_of
from palyra.core.sensitive_files import is_sensitive
from palyra.core.tools import Runtime, Trait

VALUE_LENGTH_MAX = 500  # Shown of a value in an option; a longer value is named by its hash.
_FETCH_ARGUMENTS = ("body", "headers", "method", "url")
# Programs whose first words say what they do, and how many words that takes. For every other program only the exact
# command is offered. Among those are programs whose arguments are the danger (rm, curl, ssh, sh).
# fmt: off
_TELLING_WORDS = {
    "cargo": 2, "dotnet": 2, "git": 2, "go": 2, "gradle": 2, "make": 2, "mvn": 2, "mypy": 1, "npm": 2, "pnpm": 2,
    "poetry": 2, "pre-commit": 2, "pytest": 1, "ruff": 2, "tox": 1, "tsc": 1, "yarn": 2,
}
# fmt: on
_RUNNERS = frozenset({"run", "exec"})  # As a second word: the third word then says what is run.
_PLAIN_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_:.-]*")


class CallShape(msgspec.Struct, frozen=True, kw_only=True):
    """What decides, beyond the call's arguments, which options are offered."""

    traits: frozenset[Trait] = frozenset()
    runtime: Runtime = Runtime.INTERNAL
    command_words: tuple[tuple[str, ...], ...] = ()
    risk: Risk = Risk.CRITICAL
    taint: tuple[str, ...] = ()
    is_taint_alone: bool = False  # Without its taint the call would not ask.


class _Wide(msgspec.Struct, frozen=True):
    constraints: tuple[Constraint, ...]
    text: str


def make_options(tool: str, arguments: JsonObject, shape: CallShape | None = None) -> tuple[GrantOption, ...]:
    """Returns options from narrow to wide: this call, the same call again, calls of the same shape, trust."""
    shape = shape or CallShape()
    return (*_granting(tool, arguments, shape), *_trusting(arguments, shape))


def _granting(tool: str, arguments: JsonObject, shape: CallShape) -> tuple[GrantOption, ...]:
    exact = (*_equals(arguments), _only(arguments))
    wide = _wider(tool, arguments, shape)
    once = GrantOption(scope=Scope.ONCE, constraints=exact, text=f"this call of {tool} only")
    again = GrantOption(scope=Scope.SESSION, constraints=exact, text=f"this very call of {tool}, in this session")
    if wide is None:
        text = f"this very call of {tool}, for a time, in all sessions"
        return once, again, GrantOption(scope=Scope.TIMEBOXED, constraints=exact, text=text)
    return (
        once,
        again,
        GrantOption(scope=Scope.SESSION, constraints=wide.constraints, text=f"{wide.text}, in this session"),
        GrantOption(
            scope=Scope.TIMEBOXED, constraints=wide.constraints, text=f"{wide.text}, for a time, in all sessions"
        ),
    )


def join_options(
    tool: str, offered: Iterable[tuple[GrantOption, ...]], calls: Sequence[tuple[JsonObject, CallShape]]
) -> tuple[GrantOption, ...]:
    """Returns the options for one question about several calls.

    The first option allows exactly these calls once. The others were offered for one of the calls and cover all of
    them.
    """
    text = f"these {len(calls)} calls of {tool} and no others"
    kept: dict[tuple[Scope, tuple[Constraint, ...]], GrantOption] = {}
    all_offered = [option for options in offered for option in options if option.scope is not Scope.ONCE]
    for option in (option for option in all_offered if not option.trusts):
        if all(meets(option.constraints, arguments, shape.command_words) for arguments, shape in calls):
            kept.setdefault((option.scope, option.constraints), option)
    trusting = [option for option in all_offered if option.trusts]
    is_trust_enough = len(trusting) == len(calls) and len({option.trusts for option in trusting}) == 1
    shared = (
        [replace(trusting[0], text=trusting[0].text.replace("this call", "these calls", 1))] if is_trust_enough else []
    )
    return (GrantOption(scope=Scope.ONCE, constraints=(), text=text), *kept.values(), *shared)


def _trusting(arguments: JsonObject, shape: CallShape) -> tuple[GrantOption, ...]:
    """Offers to trust the sources where they alone make the call ask."""
    if not shape.is_taint_alone or not shape.taint:
        return ()
    text = f"this call, and trust {', '.join(shape.taint)}: what came from there no longer makes this session ask"
    exact = (*_equals(arguments), _only(arguments))
    return (GrantOption(scope=Scope.SESSION, constraints=exact, text=text, trusts=shape.taint),)


def _wider(tool: str, arguments: JsonObject, shape: CallShape) -> _Wide | None:
    """Returns the wider shape. A tool without traits has none, because any of its arguments may matter."""
    if Trait.TOUCHES_PATH in shape.traits:
        return _same_folder(tool, arguments)
    if Trait.RUNS_COMMAND in shape.traits:
        return _same_command(tool, arguments, shape)
    if Trait.SENDS_REQUEST in shape.traits:
        return _same_host(tool, arguments)
    if shape.runtime is Runtime.MCP:
        return _same_tool(tool, shape)
    return None


def _same_folder(tool: str, arguments: JsonObject) -> _Wide | None:
    path = arguments.get("path")
    if not isinstance(path, str):
        return None
    folder = posixpath.dirname(posixpath.normpath(path)) or "."
    if is_sensitive(path) and not is_sensitive(folder):
        # A person who allows the folder would not see that it opens such files too.
        return None
    below = Constraint(argument="path", operator=Operator.UNDER.value, value=folder)
    place = "the workspace" if folder == "." else f"{folder}/"
    return _Wide((below, _only(arguments)), f"{tool} in {place}")


def _same_command(tool: str, arguments: JsonObject, shape: CallShape) -> _Wide | None:
    """Offers a prefix only if every command begins with the same telling words; the other arguments stay fixed.

    A command with an option, a path or an address behind them is never covered by a prefix, so none is offered for it.
    """
    prefixes = {_telling_words(words) for words in shape.command_words}
    prefix = prefixes.pop() if len(prefixes) == 1 else ()
    is_beyond = not all(goes_on_harmlessly(words, prefix) for words in shape.command_words)
    if not prefix or is_beyond or not isinstance(arguments.get("command"), str):
        return None
    others = {name: value for name, value in arguments.items() if name != "command"}
    begins = Constraint(argument="command", operator=Operator.COMMAND_PREFIX.value, value=as_text(prefix))
    constraints = (begins, *_equals(others), _only(arguments))
    return _Wide(
        constraints,
        f"{tool} of commands that begin with “{' '.join(prefix)}”, followed by plain words and no options",
    )


def _telling_words(words: tuple[str, ...]) -> tuple[str, ...]:
    count = _TELLING_WORDS.get(words[0], 0) if words else 0
    if count == 2 and len(words) > 1 and words[1] in _RUNNERS:
        count = 3
    prefix = words[:count]
    is_plain = all(_PLAIN_WORD.fullmatch(word) for word in prefix)
    return prefix if count and len(prefix) == count and is_plain else ()


def _same_host(tool: str, arguments: JsonObject) -> _Wide | None:
    origin, method = origin_of(arguments.get("url")), method_of(arguments)
    if origin is None or method is None or not set(arguments) <= set(_FETCH_ARGUMENTS):
        return None
    constraints = (
        Constraint(argument="url", operator=Operator.ORIGIN.value, value=origin),
        Constraint(argument="method", operator=Operator.METHOD.value, value=method),
        Constraint(argument="", operator=Operator.AMONG.value, value=as_text(_FETCH_ARGUMENTS)),
    )
    return _Wide(constraints, f"{tool} {method} to {origin}, whatever path, headers and body")


def _same_tool(tool: str, shape: CallShape) -> _Wide | None:
    """Offers nothing while the context is tainted: whoever wrote the tainting content would choose the arguments."""
    if shape.risk not in (Risk.LOW, Risk.MEDIUM) or shape.taint:
        return None
    return _Wide((Constraint(argument="", operator=Operator.ANY.value, value=""),), f"{tool} with any arguments")


def _equals(arguments: JsonObject) -> tuple[Constraint, ...]:
    return tuple(_equal(name, value) for name, value in sorted(arguments.items()))


def _equal(name: str, value: object) -> Constraint:
    text = as_text(value)
    if len(text) <= VALUE_LENGTH_MAX:
        return Constraint(argument=name, operator=Operator.EQUALS.value, value=text)
    return Constraint(argument=name, operator=Operator.HAS_SHA256.value, value=hash_text(text))


def _only(arguments: JsonObject) -> Constraint:
    return Constraint(argument="", operator=Operator.ONLY.value, value=as_text(sorted(arguments)))
