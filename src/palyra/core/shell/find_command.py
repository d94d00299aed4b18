"""find and fd. Owns: which of their expressions only look, and what they run for each file. Not: what is run (judge)."""

import re

import msgspec

from palyra.core.shell.invocation import Invocation, short
from palyra.core.shell.judgement import Code
from palyra.core.shell.options import option_table, read_line
from palyra.core.shell.paths import may_match, resolve
from palyra.core.shell.programs import judge_option
from palyra.core.shell.words import Argument, InputFeed, plain, unknown

_STARTS = frozenset("-H -L -P -E -X -d -s -x -O0 -O1 -O2 -O3".split())
_FLAGS = frozenset(
    "! ( ) , -a -and -o -or -not -true -false -empty -executable -readable -writable -nouser -nogroup -prune -quit "
    "-print -print0 -ls -depth -d -mount -xdev -x -daystart -follow -noleaf -ignore_readdir_race "
    "-noignore_readdir_race -warn -nowarn -help --help -version --version".split()
)
_TEXTS = frozenset(
    "-name -iname -path -ipath -wholename -iwholename -lname -ilname -regex -iregex -regextype -type -xtype -size "
    "-mtime -atime -ctime -mmin -amin -cmin -Btime -Bmin -perm -user -group -uid -gid -links -inum -maxdepth "
    "-mindepth -used -fstype -context -printf -flags".split()
)
_PATHS = frozenset("-newer -anewer -cnewer -mnewer -samefile".split())
_NEWER = re.compile(r"-newer[aBcm][aBcmt]")
_RUNS = frozenset("-exec -execdir".split())
_WRITES = frozenset("-delete -fprint -fprint0 -fprintf -fls".split())
_PLACEHOLDER = "{}"

_FD = option_table(
    text="-e --extension -E --exclude -t --type -d --max-depth --min-depth --exact-depth -S --size --changed-within "
    "--changed-before --newer --older --changed-after -o --owner -c --color -j --threads --max-results "
    "--path-separator --format --batch-size --and --hyperlink --max-buffer-time",
    path="--base-directory --search-path -C --ignore-file",
    runs="-x -X --exec --exec-batch",
)


def judge_find(invocation: Invocation) -> None:
    rest = list(invocation.arguments)
    while rest and rest[0].value in _STARTS:
        rest.pop(0)
    starts = _take_starts(invocation, rest)
    while rest:
        _judge_expression(invocation, rest, starts)


def _take_starts(invocation: Invocation, rest: list[Argument]) -> list[Argument]:
    """The folders it begins in; they come before the first expression."""
    starts: list[Argument] = []
    while rest:
        if rest[0].value == "-f" and len(rest) > 1:
            rest.pop(0)
        elif rest[0].value in ("--", "-D"):
            invocation.ask(Code.UNKNOWN_OPTION, f"{rest[0].value} of find is not followed", rest[0])
        elif rest[0].lead.startswith("-") or rest[0].value in ("!", "(", ")", ","):
            break
        start = rest.pop(0)
        starts.append(start)
        if not start.lead and (start.value is None or start.is_pattern):
            invocation.ask(Code.UNKNOWN_VALUE, f"{short(start.source)} may turn out to be an expression of find", start)
        invocation.reads(start)
    return starts


def _judge_expression(invocation: Invocation, rest: list[Argument], starts: list[Argument]) -> None:
    argument = rest.pop(0)
    name = argument.value or ""
    if name in _FLAGS:
        return
    if name in _TEXTS or (_NEWER.fullmatch(name) and name.endswith("t")):
        for value in rest[:1]:
            _judge_text(invocation, value)
        del rest[:1]
    elif name in _PATHS or _NEWER.fullmatch(name):
        for value in rest[:1]:
            _judge_text(invocation, value)
            invocation.reads(value)
        del rest[:1]
    elif name in _RUNS:
        place = invocation.place
        if name == "-execdir":
            deeper = frozenset(resolve("*", folder) for folder in place.folders)
            place = msgspec.structs.replace(place, folders=place.folders | deeper)
        invocation.run(_take_command(rest, starts, argument), place)
    elif name in _WRITES:
        invocation.ask(Code.WRITES, f"{name} of find deletes or writes", argument)
    elif name in ("-ok", "-okdir"):
        invocation.ask(Code.RUNS_CODE, f"{name} of find runs something on an answer", argument)
    else:
        invocation.ask(Code.UNKNOWN_OPTION, f"{short(argument.source)} of find is not known", argument)


def _judge_text(invocation: Invocation, value: Argument) -> None:
    """Unquoted, it becomes all the names it matches, and one of them may be `-delete`."""
    expressions = _WRITES | _RUNS | frozenset(("-ok", "-okdir", "-files0-from"))
    is_open = value.is_pattern and any(may_match(expression, value.value or "") for expression in expressions)
    if value.may_split or is_open:
        words = f"{short(value.source)} may become other expressions of find: put it in quotes"
        invocation.ask(Code.UNKNOWN_VALUE, words, value)


def _take_command(rest: list[Argument], starts: list[Argument], like: Argument) -> tuple[Argument, ...]:
    """Up to `;`, or to `{} +`. A name that find puts in begins as its folder does, so it is never an option."""
    taken: list[Argument] = []
    while rest:
        argument = rest.pop(0)
        is_end = argument.value == ";" or (argument.value == "+" and taken and taken[-1].value == _PLACEHOLDER)
        if is_end:
            break
        taken.append(argument)
    lead = starts[0].lead if starts and all(start.lead for start in starts) else ""
    if not starts or like.value == "-execdir":
        lead = "./"
    return tuple(found_name(argument, _PLACEHOLDER, lead) for argument in taken)


def found_name(argument: Argument, placeholder: str, lead: str) -> Argument:
    """The argument with a file's name where the placeholder stands."""
    if argument.value is None or placeholder not in argument.value:
        return argument
    if argument.value == placeholder:
        return Argument(None, lead, argument.source, argument.span, is_inside=True)
    before = argument.value.partition(placeholder)[0]
    return unknown(argument, before)


def judge_fd(invocation: Invocation) -> None:
    words = [argument.value for argument in invocation.arguments]
    place = next((index for index, word in enumerate(words) if word in _FD_RUNS), len(words))
    before, after = invocation.arguments[:place], invocation.arguments[place + 1 :]
    line = read_line(_FD, before)
    for option in line.options:
        judge_option(option, invocation, is_closed=False)
    for argument in line.loose:
        invocation.ask(Code.UNKNOWN_VALUE, f"{short(argument.source)} may turn out to be an option", argument)
    for operand in line.operands[1:]:
        invocation.reads(operand)
    if place < len(words):
        _run_for_each(invocation, after)


_FD_RUNS = frozenset("-x -X --exec --exec-batch".split())
_FD_PLACEHOLDERS = ("{}", "{/}", "{//}", "{.}", "{/.}")


def _run_for_each(invocation: Invocation, command: tuple[Argument, ...]) -> None:
    if any(argument.value == ";" for argument in command):
        invocation.ask(Code.UNKNOWN_OPTION, "what follows `;` is not followed", command[0])
    if not any(argument.value in _FD_PLACEHOLDERS for argument in command) and command:
        command = (*command, plain("{}", command[-1]))
    for placeholder in _FD_PLACEHOLDERS:
        command = tuple(found_name(argument, placeholder, "") for argument in command)
    invocation.run(command, invocation.place)


def names_found(arguments: tuple[Argument, ...]) -> InputFeed:
    """What find prints: names below the folders it was given, unless it is told to print something else."""
    words = [argument.value for argument in arguments]
    if any(word in _RUNS or word in ("-printf", "-ls") for word in words):
        return InputFeed.ANYTHING
    return InputFeed.DOTTED_NAMES
