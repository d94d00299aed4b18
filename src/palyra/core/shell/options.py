"""Options of a command line. Owns: telling options, their values and operands apart. Not: what they mean (the tables).

Two styles: letters that may be clustered with long names after `--` (which may be cut short), and whole names after one
dash. Of an option that a table does not name it is assumed that it takes no value, so the next word is looked at as an operand.
"""

from collections import deque
from collections.abc import Iterable
from enum import Enum

import msgspec

from palyra.core.shell.words import Argument, plain


class OptionKind(Enum):
    """What a table says of an option. The order is that of severity: a name cut short is taken for the worst it may mean."""

    WRITES = 0
    RUNS = 1
    SENDS = 2
    LEADS_AWAY = 3  # To files, hosts or settings that the words do not show.
    DISCLOSES = 4
    PATH = 5
    TEXT = 6
    FLAG = 7
    UNKNOWN = 8


class OptionTable(msgspec.Struct, frozen=True):
    kinds: dict[str, OptionKind]
    arities: dict[str, int]
    is_single_dash: bool = False

    def kind_of(self, name: str) -> OptionKind:
        exact = self.kinds.get(name)
        if exact is not None:
            return exact
        if not name.startswith("--") or len(name) == 2:
            return OptionKind.UNKNOWN
        meant = [kind for option, kind in self.kinds.items() if option.startswith(name)]
        worst = min(meant, key=lambda kind: kind.value, default=OptionKind.UNKNOWN)
        return OptionKind.UNKNOWN if len(meant) > 1 and worst.value > OptionKind.PATH.value else worst

    def whole(self, name: str) -> str:
        """The name that one cut short can only mean."""
        if name in self.kinds or not name.startswith("--"):
            return name
        meant = [option for option in self.kinds if option.startswith(name)]
        return meant[0] if len(meant) == 1 else name

    def arity_of(self, name: str) -> int:
        if name in self.kinds or not name.startswith("--"):
            return self.arities.get(name, 0)
        return max((arity for option, arity in self.arities.items() if option.startswith(name)), default=0)


class Option(msgspec.Struct, frozen=True):
    name: str
    kind: OptionKind
    values: tuple[Argument, ...]
    argument: Argument


def spread_values(option: Option) -> list[Argument]:
    """Values that may be several words: all but the first are then read as options or operands."""
    return [value for value in option.values if value.may_be_many and value.span != option.argument.span]


def has_option(options: Iterable[Option], names: Iterable[str]) -> bool:
    """Whether one of these was given, its name whole or cut short."""
    wanted = frozenset(names)
    return any(
        option.name in wanted or (option.name.startswith("--") and any(name.startswith(option.name) for name in wanted))
        for option in options
    )


class Line(msgspec.Struct, frozen=True):
    """A command line, read. `loose` are words that may be options or operands: what they are is not known before it runs."""

    options: tuple[Option, ...]
    operands: tuple[Argument, ...]
    loose: tuple[Argument, ...]

    def has(self, names: Iterable[str]) -> bool:
        return has_option(self.options, names)


def option_table(*, is_single_dash: bool = False, **named: str) -> OptionTable:
    """From words by kind: `writes="-o --output"`, `text="-k --arg:2"`. A number after a colon says how many values follow."""
    kinds: dict[str, OptionKind] = {}
    arities: dict[str, int] = {}
    for kind_name, words in named.items():
        kind = OptionKind[kind_name.upper()]
        for word in words.split():
            name, _, count = word.partition(":")
            kinds[name] = kind
            if kind in (OptionKind.TEXT, OptionKind.PATH) or count:
                arities[name] = int(count or "1")
    return OptionTable(kinds, arities, is_single_dash)


def read_line(table: OptionTable, arguments: tuple[Argument, ...]) -> Line:
    options: list[Option] = []
    operands: list[Argument] = []
    loose: list[Argument] = []
    rest = deque(arguments)
    while rest:
        argument = rest.popleft()
        if argument.value == "--":
            operands += rest
            break
        if is_option(argument):
            found = _read_option(table, argument, rest)
            options += found
            is_loose = argument.may_split or any(_is_uncertain(option) for option in found)
        else:
            operands.append(argument)
            is_loose = argument.may_split or (not argument.lead and argument.value != "")
        if is_loose:
            loose.append(argument)
    return Line(tuple(options), tuple(operands), tuple(loose))


def read_leading(
    table: OptionTable, arguments: tuple[Argument, ...]
) -> tuple[tuple[Option, ...], tuple[Argument, ...]]:
    """The options before the first operand, and everything from it on: how wrappers read their line."""
    options: list[Option] = []
    rest = deque(arguments)
    while rest and is_option(rest[0]):
        argument = rest.popleft()
        if argument.value == "--":
            break
        options += _read_option(table, argument, rest)
    return tuple(options), tuple(rest)


def is_option(argument: Argument) -> bool:
    return argument.lead.startswith("-") and argument.value != "-"


def _read_option(table: OptionTable, argument: Argument, rest: deque[Argument]) -> list[Option]:
    if argument.lead.startswith("--") or table.is_single_dash:
        return [_read_long(table, argument, rest)]
    return _read_cluster(table, argument, rest)


def _read_long(table: OptionTable, argument: Argument, rest: deque[Argument]) -> Option:
    written, equals, _ = argument.lead.partition("=")
    name = table.whole(written)
    if equals:
        return Option(name, table.kind_of(name), (_after(argument, len(written) + 1),), argument)
    if not argument.is_certain:
        return Option(name, OptionKind.UNKNOWN, (argument,), argument)
    return Option(name, table.kind_of(name), _take(rest, table.arity_of(name)), argument)


def _read_cluster(table: OptionTable, argument: Argument, rest: deque[Argument]) -> list[Option]:
    """`-abc` is `-a -b -c`, until one of them takes the rest as its value."""
    found: list[Option] = []
    letters = argument.lead[1:]
    for index, letter in enumerate(letters):
        name = f"-{letter}"
        kind, arity = table.kind_of(name), table.arity_of(name)
        if not arity:
            found.append(Option(name, kind, (), argument))
            continue
        is_last = index + 1 == len(letters)
        if is_last and argument.is_pattern:
            break
        is_last = is_last and argument.value is not None
        values = _take(rest, arity) if is_last else (_after(argument, index + 2), *_take(rest, arity - 1))
        found.append(Option(name, kind, values, argument))
        return found
    if not argument.is_certain:
        found.append(Option(argument.lead, OptionKind.UNKNOWN, (argument,), argument))
    return found


def _is_uncertain(option: Option) -> bool:
    """Whether a pattern stands where the option's name should: it may match a file that is called like another option."""
    return option.argument.is_pattern and option.values == (option.argument,)


def _after(argument: Argument, start: int) -> Argument:
    if argument.value is None:
        return msgspec.structs.replace(argument, lead=argument.lead[start:], is_inside=False)
    return msgspec.structs.replace(plain(argument.value[start:], argument), is_pattern=argument.is_pattern)


def _take(rest: deque[Argument], count: int) -> tuple[Argument, ...]:
    return tuple(rest.popleft() for _ in range(min(count, len(rest))))
