"""Maxima. Owns: how large a module, function or signature may be, and how deep blocks may lie."""

import ast
from collections.abc import Iterator

from tests.tidy.source import Fault, FunctionNode, Source, functions

MODULE_LINES_MAX = 800
FUNCTION_LINES_MAX = 60
PARAMETERS_MAX = 6
NESTING_MAX = 3

_Block = ast.If | ast.For | ast.AsyncFor | ast.While | ast.With | ast.AsyncWith | ast.Try | ast.TryStar | ast.Match
_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
_COMMAND_DECORATORS = frozenset({"command", "callback"})


def check_shape(source: Source) -> list[Fault]:
    found = [*_module_faults(source)]
    for function in functions(source.tree):
        found += _function_faults(source, function)
    return found


def nesting_of(scope: ast.AST) -> int:
    """How deep blocks lie in each other within one scope.

    An `elif` lies as deep as its `if`, a case with its match is one block, and an inner function is a scope of its own.
    """
    return max((_depth(child, scope) for child in ast.iter_child_nodes(scope)), default=0)


def _depth(node: ast.AST, parent: ast.AST) -> int:
    if isinstance(node, _Scope):
        return 0
    inside = nesting_of(node)
    if isinstance(node, _Block) and not _is_elif(node, parent):
        return inside + 1
    return inside


def _is_elif(node: ast.AST, parent: ast.AST) -> bool:
    """An elif is an If alone in the else of another, written in the same column."""
    if not isinstance(node, ast.If) or not isinstance(parent, ast.If):
        return False
    return parent.orelse == [node] and node.col_offset == parent.col_offset


def _module_faults(source: Source) -> Iterator[Fault]:
    line_count = len(source.text.splitlines())
    if line_count > MODULE_LINES_MAX:
        yield Fault(source.module, 1, "module_lines", f"{line_count} lines, at most {MODULE_LINES_MAX}")
    if not (ast.get_docstring(source.tree) or "").strip():
        yield Fault(source.module, 1, "module_docstring", "a module opens with what it owns and what it does not")
    if nesting_of(source.tree) > NESTING_MAX:
        yield Fault(source.module, 1, "nesting", f"the module's own blocks are nested deeper than {NESTING_MAX}")


def _function_faults(source: Source, function: FunctionNode) -> Iterator[Fault]:
    line_count = (function.end_lineno or function.lineno) - function.lineno + 1
    if line_count > FUNCTION_LINES_MAX:
        what = f"{function.name} has {line_count}, at most {FUNCTION_LINES_MAX}"
        yield Fault(source.module, function.lineno, "function_lines", what)
    parameter_count = _parameter_count(function)
    if parameter_count > PARAMETERS_MAX and not _is_command(source, function):
        what = f"{function.name} has {parameter_count}, at most {PARAMETERS_MAX}"
        yield Fault(source.module, function.lineno, "parameters", what)
    depth = nesting_of(function)
    if depth > NESTING_MAX:
        yield Fault(
            source.module, function.lineno, "nesting", f"{function.name} is {depth} deep, at most {NESTING_MAX}"
        )


def _parameter_count(function: FunctionNode) -> int:
    arguments = function.args
    named = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    if named and named[0] in ("self", "cls"):
        named = named[1:]
    starred_count = (arguments.vararg is not None) + (arguments.kwarg is not None)
    return len(named) + len(arguments.kwonlyargs) + starred_count


def _is_command(source: Source, function: FunctionNode) -> bool:
    """The options of a command of the CLI are its parameters, and a command may have many."""
    if source.parts[:2] != ("palyra", "cli"):
        return False
    targets = [node.func if isinstance(node, ast.Call) else node for node in function.decorator_list]
    return any(isinstance(target, ast.Attribute) and target.attr in _COMMAND_DECORATORS for target in targets)
