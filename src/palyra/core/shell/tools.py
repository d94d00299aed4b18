"""Programs with commands of their own. Owns: how a row of their table is applied. Not: the rows (services, packages, host).

A row names the commands that only look, by all their words: `docker compose ps`. So a resource that is called `list` never
makes `delete list` a listing. Options stand anywhere; those of a row that do more than look ask.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import product

import msgspec

from palyra.core.shell.invocation import Invocation, short
from palyra.core.shell.judgement import Code
from palyra.core.shell.options import Line, OptionKind, OptionTable, option_table, read_line
from palyra.core.shell.programs import judge_option
from palyra.core.shell.words import Argument

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
HELP = frozenset(("--help", "-h", "-help", "--version", "-V", "-version"))
WORDS_MAX = 4  # Of a command's name; `az` has the longest.


class ToolRule(msgspec.Struct, frozen=True, kw_only=True):
    looks: dict[tuple[str, ...], bool]  # By the command's words: whether more words may follow it.
    table: OptionTable
    is_remote: bool  # Asks a service, so that nothing it is given may be unknown.
    local: frozenset[str]  # Commands of a remote tool that ask nobody.
    files: frozenset[str]  # Commands of a remote tool whose operands may be files; those of others may always be.
    forwards: frozenset[str]  # Commands that pass `--help` on to something else.


def tool(looks: str, *, is_remote: bool = False, is_single_dash: bool = False, **more: str) -> ToolRule:
    return shared_tool(looks, more, is_remote=is_remote, is_single_dash=is_single_dash)


def shared_tool(
    looks: str, words: Mapping[str, str], *, is_remote: bool = False, is_single_dash: bool = False
) -> ToolRule:
    """`looks` has a line for each group: `pr: list view`; commands without a group stand on a line without a colon.

    A command with `!` after it may have no operands. `local`, `files` and `forwards` are words as in `Tool`; the others
    are options.
    """
    local, forwards = words.get("local", ""), words.get("forwards", "")
    options = {kind: names for kind, names in words.items() if kind not in ("local", "forwards", "files")}
    return ToolRule(
        looks=dict(_looks(looks)),
        table=option_table(is_single_dash=is_single_dash, **options),
        is_remote=is_remote,
        local=frozenset(local.split()),
        files=frozenset(words.get("files", "").split()),
        forwards=frozenset(forwards.split()),
    )


def _looks(text: str) -> Iterator[tuple[tuple[str, ...], bool]]:
    for line in text.splitlines():
        group, _, names = line.rpartition(":")
        for prefix, name in product(group.split() or [""], names.split()):
            yield tuple(word for word in f"{prefix}.{name.rstrip('!')}".split(".") if word), not name.endswith("!")


def judge_tool(row: ToolRule, invocation: Invocation) -> None:
    if is_help(invocation, row.forwards):
        return
    line = read_line(row.table, invocation.arguments)
    name = _command_name(row, line.operands)
    is_remote = row.is_remote and not (name and name[0].value in row.local)
    if name:
        judge_before(line, name[-1], invocation)
    elif line.operands or not set(invocation.values()) <= HELP or not line.options:
        words = " ".join((invocation.program, *(operand.source for operand in line.operands[:2])))
        where = line.operands[0] if line.operands else None
        invocation.ask(Code.UNKNOWN_COMMAND, f"{short(words)} is not known to only look", where)
    for option in line.options:
        # Of a service's options only those of the row can be files; of a local program's, any.
        if option.kind is not OptionKind.UNKNOWN or not is_remote or option.argument.value is None:
            judge_option(option, invocation, is_closed=False)
    for operand in line.operands[len(name) :]:
        if not is_remote or (name and name[0].value in row.files):
            invocation.reads_if_path(operand)
    if is_remote:
        invocation.is_known()
        invocation.needs_network()
    for argument in line.loose:
        words = f"what {short(argument.source)} stands for is not known before it runs"
        invocation.ask(Code.UNKNOWN_VALUE, words, argument)


def _command_name(row: ToolRule, operands: tuple[Argument, ...]) -> tuple[Argument, ...]:
    words = tuple(operand.value or "" for operand in operands[:WORDS_MAX])
    for count in range(len(words), 0, -1):
        may_have_operands = row.looks.get(words[:count])
        if may_have_operands is not None:
            return operands[:count] if may_have_operands or count == len(operands) else ()
    return ()


def judge_before(line: Line, last: Argument, invocation: Invocation) -> None:
    """An option that is not known may take the next word, and then the command is another than it seems."""
    end = invocation.arguments.index(last)
    for option in line.options:
        is_before = invocation.arguments.index(option.argument) < end
        if is_before and option.kind is OptionKind.UNKNOWN and "=" not in option.argument.lead:
            words = f"{short(option.name)} before the command of {invocation.program} is not known"
            invocation.ask(Code.UNKNOWN_OPTION, words, option.argument)


def is_help(invocation: Invocation, forwards: frozenset[str]) -> bool:
    """Only a command's name and a question for help after it, or a question for the version and nothing else."""
    words = invocation.values()
    names = words[:-1]
    if not words or words[-1] not in HELP:
        return False
    if not names:
        return True
    return words[-1] in ("--help", "-h", "-help") and all(map(_NAME.fullmatch, names)) and not forwards & set(names)
