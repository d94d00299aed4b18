"""Words. Owns: names nobody may give, marks of unfinished work, and where a broad except may stand."""

import ast
import re
from collections.abc import Iterator

from tests.tidy.source import Fault, FunctionNode, Source

BANNED_WORDS = frozenset({"manager", "helper", "helpers", "util", "utils", "common", "info"})
BANNED_PREFIXES = ("handle_", "process_")  # Of functions: a verb that says nothing.
# The request and message edge, the tool runner and the task supervisor may catch everything: "module.function" of each.
BROAD_EXCEPT_PLACES: tuple[str, ...] = (
    "palyra.gateway.http.application.Gateway.__call__",
    # Part of running a tool: what its code raises there must become a denial, or it ends the session's loop.
    "palyra.engine.session.call_nature.read_nature",
    # The message edge: what one message raises is that message's outcome, and the channel reads the next.
    "palyra.core.channels.unread.read_or_mark",
)

_UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")
_BROAD = frozenset({"Exception", "BaseException"})
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def check_words(source: Source) -> list[Fault]:
    return [*_name_faults(source), *_unfinished_faults(source), *_broad_faults(source)]


def _name_faults(source: Source) -> Iterator[Fault]:
    for line, name, is_function in _names(source):
        words = {word.lower() for word in _WORD.findall(name)}
        is_vague = is_function and name.lstrip("_").startswith(BANNED_PREFIXES)
        if words & BANNED_WORDS or is_vague:
            yield Fault(source.module, line, "banned_name", name)


def _names(source: Source) -> Iterator[tuple[int, str, bool]]:
    """Line and spelling of each name a file gives: its own, and those of classes, functions, arguments, variables."""
    yield 1, source.parts[-1], False
    for node in ast.walk(source.tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name, True
            case ast.ClassDef(name=name):
                yield node.lineno, name, False
            case ast.arg(arg=name):
                yield node.lineno, name, False
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name, False
            case _:
                pass


def _unfinished_faults(source: Source) -> Iterator[Fault]:
    for number, line in enumerate(source.text.splitlines(), 1):
        if _UNFINISHED.search(line):
            yield Fault(source.module, number, "unfinished", line.strip())


def _broad_faults(source: Source) -> Iterator[Fault]:
    for place, node in _with_places(source.tree, source.module):
        is_broad = isinstance(node, ast.ExceptHandler) and _is_broad(node.type)
        is_suppressed = isinstance(node, ast.Call) and _suppresses_all(node)
        if (is_broad or is_suppressed) and place not in BROAD_EXCEPT_PLACES:
            yield Fault(source.module, getattr(node, "lineno", 1), "broad_except", place)


def _with_places(node: ast.AST, place: str) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        inner = f"{place}.{child.name}" if isinstance(child, FunctionNode | ast.ClassDef) else place
        yield inner, child
        yield from _with_places(child, inner)


def _is_broad(caught: ast.expr | None) -> bool:
    if caught is None:
        return True
    names = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(ast.unparse(name).removeprefix("builtins.") in _BROAD for name in names)


def _suppresses_all(call: ast.Call) -> bool:
    return ast.unparse(call.func).endswith("suppress") and any(_is_broad(argument) for argument in call.args)
