"""Programs that read. Owns: how a row of the table is applied to a command line. Not: the rows (readers, host)."""

from enum import Enum

import msgspec

from palyra.core.shell.invocation import Invocation, short
from palyra.core.shell.judgement import Code
from palyra.core.shell.options import Line, Option, OptionKind, OptionTable, option_table, read_line, spread_values


class Operands(Enum):
    PATHS = "paths"  # Each is a file or folder to read.
    TEXT = "text"  # None is opened.
    PATTERN = "pattern"  # The first is a pattern or program, the rest are paths.
    NONE = "none"  # There may be none.


class ProgramRule(msgspec.Struct, frozen=True, kw_only=True):
    """What a program may be given and still only read."""

    operands: Operands = Operands.PATHS
    table: OptionTable
    is_closed: bool = False  # Only the options of the table are known to be harmless.
    instead: frozenset[str] = frozenset()  # Options that take the place of the pattern.
    operand_count_max: int | None = None  # A further operand would be written to.
    operand_start: str = ""  # Operands that begin otherwise would change something.
    requires: frozenset[str] = frozenset()  # Without one of these options it writes.

    @property
    def is_armed(self) -> bool:
        """Whether some option or operand of it does more than read, so that a name which may be an option matters."""
        has_limit = self.operand_count_max is not None or bool(self.operand_start)
        is_writing = any(kind.value < OptionKind.LEADS_AWAY.value for kind in self.table.kinds.values())
        return self.is_closed or has_limit or is_writing

    @property
    def has_paths(self) -> bool:
        """Whether some option of it names a file to read."""
        return any(kind in (OptionKind.LEADS_AWAY, OptionKind.PATH) for kind in self.table.kinds.values())


_CODES = {
    OptionKind.WRITES: (Code.WRITES, "makes it write"),
    OptionKind.RUNS: (Code.RUNS_CODE, "makes it run something else"),
    OptionKind.SENDS: (Code.SENDS, "makes it send something"),
    OptionKind.LEADS_AWAY: (Code.OUTSIDE_WORKSPACE, "leads it to what the words do not show"),
    OptionKind.DISCLOSES: (Code.DISCLOSES, "makes it tell a secret"),
}


def program(
    operands: Operands = Operands.PATHS,
    *,
    only: bool = False,
    operand_count_max: int | None = None,
    is_single_dash: bool = False,
    **words: str,
) -> ProgramRule:
    """`only`: an option that is not named asks. `instead`, `requires` and `operand_start` are as in `Program`."""
    named = {name: frozenset(words.pop(name, "").split()) for name in ("instead", "requires")}
    operand_start = words.pop("operand_start", "")
    return ProgramRule(
        operands=operands,
        table=option_table(is_single_dash=is_single_dash, **words),
        is_closed=only,
        operand_count_max=operand_count_max,
        operand_start=operand_start,
        **named,
    )


def judge_program(row: ProgramRule, invocation: Invocation) -> None:
    line = read_line(row.table, invocation.arguments)
    for option in line.options:
        judge_option(option, invocation, is_closed=row.is_closed)
    if row.requires and not any(_is_certain(option, row, invocation) for option in line.options):
        invocation.ask(Code.WRITES, f"{invocation.program} without {' or '.join(sorted(row.requires))} writes")
    _judge_loose(row, line, invocation)
    _judge_operands(row, line, invocation)


def _is_certain(option: Option, row: ProgramRule, invocation: Invocation) -> bool:
    """Whether a required option was given for certain, and is not the value of an option before it that is not known."""
    if option.name not in row.requires:
        return False
    before = invocation.arguments[: invocation.arguments.index(option.argument)]
    kinds = {other.argument: other.kind for other in read_line(row.table, before).options}
    return not before or kinds.get(before[-1]) is not OptionKind.UNKNOWN or "=" in before[-1].lead


def judge_values(option: Option, invocation: Invocation) -> None:
    for value in spread_values(option):
        words = f"{short(value.source)} may become several words, options of {invocation.program} among them: quote it"
        invocation.ask(Code.UNKNOWN_VALUE, words, value)


def judge_option(option: Option, invocation: Invocation, *, is_closed: bool) -> None:
    judge_values(option, invocation)
    if option.kind in _CODES:
        code, words = _CODES[option.kind]
        invocation.ask(code, f"{option.name} of {invocation.program} {words}", option.argument)
    elif option.kind is OptionKind.PATH:
        for value in option.values:
            invocation.reads(value)
    elif option.kind is OptionKind.UNKNOWN and (is_closed or option.argument.value is None):
        words = f"what {short(option.name)} does to {invocation.program} is not known"
        invocation.ask(Code.UNKNOWN_OPTION, words, option.argument)
    elif option.kind is OptionKind.UNKNOWN:
        for value in option.values:
            invocation.reads_if_path(value)


def _judge_loose(row: ProgramRule, line: Line, invocation: Invocation) -> None:
    for argument in line.loose:
        is_name = argument.is_inside or argument.value is not None
        if is_name and row.is_armed:
            words = (
                f"a file's name may be taken for an option of {invocation.program}: write ./{short(argument.source)}"
            )
            invocation.ask(Code.UNKNOWN_VALUE, words, argument)
        elif not is_name and (row.is_armed or row.has_paths):
            words = f"{short(argument.source)} may turn out to be an option of {invocation.program}"
            invocation.ask(Code.UNKNOWN_VALUE, words, argument)


def _judge_operands(row: ProgramRule, line: Line, invocation: Invocation) -> None:
    operands = line.operands
    many = [each for each in operands if each.value is None or each.is_inside or each.is_pattern]
    if row.operand_count_max is not None and many:
        words = f"{short(many[0].source)} may be several names, and {invocation.program} would write to the second"
        invocation.ask(Code.WRITES, words, many[0])
    if row.operand_count_max is not None and len(operands) > row.operand_count_max:
        last = operands[row.operand_count_max]
        invocation.ask(Code.WRITES, f"{invocation.program} would write to {short(last.source)}", last)
    for operand in operands:
        if not operand.lead.startswith(row.operand_start):
            words = f"{invocation.program} with {short(operand.source)} may change something"
            invocation.ask(Code.CHANGES_SYSTEM, words, operand)
    match row.operands:
        case Operands.TEXT:
            return
        case Operands.NONE:
            for operand in operands[:1]:
                words = f"{invocation.program} with {short(operand.source)} may change something"
                invocation.ask(Code.CHANGES_SYSTEM, words, operand)
            return
        case Operands.PATTERN if not line.has(row.instead):
            operands = operands[1:]
        case _:
            pass
    for operand in operands:
        invocation.reads(operand)
