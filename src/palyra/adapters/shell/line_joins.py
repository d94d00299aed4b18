"""Groups commands joined by operators into pipelines and lists, as bash does.

Does not own: reading the commands (statements).
Elements are commands and operators in the order of the text. `|` binds tighter than `&&` and `||`, and `!` applies to a
whole pipeline.
"""

import msgspec
from tree_sitter import Node as Raw

from palyra.adapters.shell.source import NotUnderstood
from palyra.core.shell.tree import (
    Command,
    Joint,
    Negated,
    Node,
    Pipeline,
    Redirected,
    Redirection,
    Sequence,
    ShellItem,
    Unknown,
    Word,
)

OPERATORS = frozenset(("|", "|&", "&&", "||"))
_JOINTS = {"&&": Joint.AND, "||": Joint.OR}


def join(elements: list[Node | str], node: Raw) -> Node:
    items: list[ShellItem] = []
    pipeline: list[Node | str] = []
    for element in elements:
        if element in ("&&", "||"):
            items.append(ShellItem(_pipeline(pipeline, node), _JOINTS[str(element)]))
            pipeline = []
        else:
            pipeline.append(element)
    last = _pipeline(pipeline, node)
    return Sequence((*items, ShellItem(last, Joint.THEN))) if items else last


def _pipeline(elements: list[Node | str], node: Raw) -> Node:
    is_negated = bool(elements) and elements[0] == "!"
    rest = elements[1:] if is_negated else elements
    stages = [stage for stage in rest[::2] if not isinstance(stage, str)]
    marks = rest[1::2]
    if len(stages) != len(marks) + 1 or any(mark not in ("|", "|&") for mark in marks):
        raise NotUnderstood("an unusual list or pipeline", node)
    whole = stages[0] if len(stages) == 1 else Pipeline(tuple(stages))
    return Negated(whole) if is_negated else whole


def attach(
    elements: list[Node | str], redirections: tuple[Redirection, ...], words: tuple[Word, ...]
) -> list[Node | str]:
    """Adds redirections, and the words after them, to the last command before them."""
    return [*elements[:-1], _attached(elements[-1], redirections, words)]


def _attached(last: Node | str, redirections: tuple[Redirection, ...], words: tuple[Word, ...]) -> Node:
    match last:
        case Command():
            return msgspec.structs.replace(
                last, words=(*last.words, *words), redirections=(*last.redirections, *redirections)
            )
        case Redirected(body=body, redirections=before) if not words:
            return Redirected(body, (*before, *redirections))
        case str():
            return Unknown("a redirection after an operator", (0, 0))
        case _ if not words:
            return Redirected(last, redirections)
        case _:
            return Unknown("words after a compound command", words[0].span)
