"""The tree of a shell text. Owns: what a parser tells of it, in our own words. Not: parsing (adapters), judging (judge).

A tree says what bash would do with the text. Whatever a parser cannot say for certain is an `Unknown`, which asks.
Spans are places in the text, counted in characters.
"""

from enum import Enum
from typing import TypeAlias

import msgspec

Span: TypeAlias = tuple[int, int]


class Literal(msgspec.Struct, frozen=True):
    """Text that stands for itself, quotes and backslashes taken away. Unquoted, `*?[{~` still mean something."""

    text: str
    is_quoted: bool


class Variable(msgspec.Struct, frozen=True):
    """`$name` or `${name}`, without any operator."""

    name: str
    is_quoted: bool


class Substitution(msgspec.Struct, frozen=True):
    """`$(...)` and backquotes: the word is what the body prints. `<(...)`: the word is a pipe from or to the body."""

    body: "Node"
    is_quoted: bool
    is_pipe: bool = False


class Opaque(msgspec.Struct, frozen=True):
    """A part whose value is not followed, such as `${x%.py}` or `$((1 + 2))`; the bodies inside it run all the same."""

    words: str
    bodies: tuple["Node", ...] = ()


Part: TypeAlias = Literal | Variable | Substitution | Opaque


class Word(msgspec.Struct, frozen=True):
    parts: tuple[Part, ...]
    source: str
    span: Span


class Assignment(msgspec.Struct, frozen=True):
    name: str
    value: Word
    is_appended: bool
    span: Span


class Redirection(msgspec.Struct, frozen=True):
    """`operator` is as written, without the descriptor. A here-document has the operator `<<` and its text as target."""

    operator: str
    target: Word | None
    span: Span


class Command(msgspec.Struct, frozen=True):
    """A simple command. Without words it only sets variables or opens files."""

    words: tuple[Word, ...]
    assignments: tuple[Assignment, ...]
    redirections: tuple[Redirection, ...]
    span: Span


class Joint(Enum):
    """How an item of a sequence leads to the next."""

    AND = "&&"
    OR = "||"
    THEN = ";"
    BESIDE = "&"


class ShellItem(msgspec.Struct, frozen=True):
    node: "Node"
    joint: Joint


class Sequence(msgspec.Struct, frozen=True):
    items: tuple[ShellItem, ...]


class Pipeline(msgspec.Struct, frozen=True):
    stages: tuple["Node", ...]


class Negated(msgspec.Struct, frozen=True):
    """`! ...`: what failed has succeeded."""

    body: "Node"


class ShellGroup(msgspec.Struct, frozen=True):
    """`{ ...; }`"""

    body: "Node"


class Subshell(msgspec.Struct, frozen=True):
    """`( ... )`: what it sets is forgotten after it."""

    body: "Node"


class ShellBranch(msgspec.Struct, frozen=True):
    """`if` and `case`: any of the bodies may run, in this order, or none."""

    bodies: tuple["Node", ...]
    words: tuple[Word, ...] = ()


class Loop(msgspec.Struct, frozen=True):
    """`for` (with its variable and words), `while`, `until`: the bodies run any number of times."""

    bodies: tuple["Node", ...]
    variable: str | None = None
    words: tuple[Word, ...] = ()


class Test(msgspec.Struct, frozen=True):
    """`[[ ... ]]`: compares, and runs only the bodies of the substitutions in it."""

    bodies: tuple["Node", ...]
    span: Span


class Redirected(msgspec.Struct, frozen=True):
    """A compound command with redirections of its own."""

    body: "Node"
    redirections: tuple[Redirection, ...]


class Function(msgspec.Struct, frozen=True):
    name: str
    span: Span


class Unknown(msgspec.Struct, frozen=True):
    """What the parser does not understand, or does not vouch for."""

    words: str
    span: Span


Node: TypeAlias = (
    Command
    | Sequence
    | Pipeline
    | Negated
    | ShellGroup
    | Subshell
    | ShellBranch
    | Loop
    | Test
    | Redirected
    | Function
    | Unknown
)
