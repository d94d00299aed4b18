"""Commands that run other commands. Owns: finding what they run, so that it is judged in their place. Not: judging it.

env, nice, timeout, time, command, xargs, `sh -c` and their like. A wrapper with an option that is not known asks.
"""

import re

import msgspec

from palyra.core.shell.environment import is_harmless_for
from palyra.core.shell.find_command import found_name
from palyra.core.shell.invocation import Invocation, short
from palyra.core.shell.judgement import Code
from palyra.core.shell.options import Option, OptionKind, OptionTable, has_option, option_table, read_leading
from palyra.core.shell.paths import resolve
from palyra.core.shell.programs import judge_values
from palyra.core.shell.readers import READERS
from palyra.core.shell.words import Argument, InputFeed

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=")
# Options before the command; what follows the first operand belongs to the command.
_TABLES: dict[str, OptionTable] = {
    "nice": option_table(text="-n --adjustment"),
    "ionice": option_table(text="-c --class -n --classdata", flag="-t --ignore"),
    "timeout": option_table(
        text="-k --kill-after -s --signal", flag="--foreground --preserve-status -v --verbose -p -f"
    ),
    "time": option_table(flag="-p"),  # The shell's own; it knows no other option.
    "stdbuf": option_table(text="-i --input -o --output -e --error"),
    "setsid": option_table(flag="-w --wait -c --ctty"),
    "caffeinate": option_table(text="-t -w", flag="-d -i -m -s -u"),
    "arch": option_table(is_single_dash=True, flag="-32 -64 -arm64 -arm64e -x86_64 -i386", text="-arch"),
    "builtin": option_table(),
    "command": option_table(flag="-p -v -V"),
}
_ENV = option_table(text="-u --unset -C --chdir", flag="-i --ignore-environment -0 --null -v --debug")
_SKIPPED_OPERANDS = {"timeout": 1}  # Its first operand is a time.
# Without a command they only wait, or tell something.
_FREE_ALONE = frozenset(("time", "nice", "caffeinate", "arch", "command"))
_SHELLS = option_table(text="-o", flag="-c -e -u -x -l -v -f -n --login --norc --noprofile --posix")
_XARGS = option_table(
    text="-I -n --max-args -L -P --max-procs -s --max-chars -d --delimiter -E -J -R -S --process-slot-var",
    path="-a --arg-file",
    flag="-0 --null -r --no-run-if-empty -t --verbose -x --exit --replace --max-lines --eof -i -l -e",
    leads_away="-p --interactive -o --open-tty",
)
PRIVILEGED = frozenset("sudo doas su runuser pkexec chroot unshare nsenter".split())


def judge_wrapper(invocation: Invocation) -> None:
    """Judges the command it would run, in the place where it would run it."""
    name = invocation.program
    options, command = _leading(invocation, _TABLES[name])
    for option in options:
        if option.kind is OptionKind.UNKNOWN:
            words = f"{short(option.name)} of {name} is not known"
            invocation.ask(Code.UNKNOWN_OPTION, words, option.argument)
    skipped = _SKIPPED_OPERANDS.get(name, 0)
    for operand in command[:skipped]:
        if not operand.is_certain:
            words = f"{short(operand.source)} may become several words, and one of them what {name} runs"
            invocation.ask(Code.UNKNOWN_VALUE, words, operand)
    command = command[skipped:]
    if name == "command" and has_option(options, ("-v", "-V")):
        return
    if not command:
        if name not in _FREE_ALONE:
            invocation.ask(Code.UNKNOWN_OPTION, f"{name} without a command is not known")
        return
    if name == "time" and _ASSIGNMENT.match(command[0].lead):
        invocation.ask(Code.SETS_ENVIRONMENT, "a variable is set after time", command[0])
    invocation.run(command, invocation.place)


def _leading(invocation: Invocation, table: OptionTable) -> tuple[tuple[Option, ...], tuple[Argument, ...]]:
    options, command = read_leading(table, invocation.arguments)
    for option in options:
        judge_values(option, invocation)
    return options, command


def judge_env(invocation: Invocation) -> None:
    options, command = _leading(invocation, _ENV)
    place = invocation.place
    for option in options:
        if option.kind is OptionKind.UNKNOWN:
            words = f"{short(option.name)} of env is not known"
            invocation.ask(Code.UNKNOWN_OPTION, words, option.argument)
        elif option.name in ("-C", "--chdir"):
            for value in option.values:
                invocation.reads(value)
                folders = frozenset(resolve(value.value or "/", folder) for folder in place.folders)
                place = msgspec.structs.replace(place, folders=folders)
        elif option.name in ("-u", "--unset") and [value.value for value in option.values] not in (["HOME"], ["LANG"]):
            invocation.ask(
                Code.SETS_ENVIRONMENT, "what a program does without a variable is not known", option.argument
            )
    command = command[1:] if command and command[0].value == "-" else command
    names: list[Argument] = []
    while command and _ASSIGNMENT.match(command[0].lead):
        names.append(command[0])
        command = command[1:]
        command = command[1:] if command and command[0].value == "--" else command
    program = command[0].value if command else None
    for argument in names:
        name = argument.lead.partition("=")[0]
        if not is_harmless_for(name, is_plain=program in READERS):
            invocation.ask(Code.SETS_ENVIRONMENT, f"{name} may change what {program or 'env'} does", argument)
    if command:
        invocation.run(command, place)


def judge_shell(invocation: Invocation) -> None:
    """`sh -c text`: the text is judged; everything else makes a shell obey a file or its input."""
    options, rest = _leading(invocation, _SHELLS)
    for option in options:
        is_setting = option.name == "-o" and [value.value for value in option.values] == ["pipefail"]
        if option.kind is not OptionKind.FLAG and not is_setting:
            words = f"{short(option.name)} of {invocation.program} is not known"
            invocation.ask(Code.UNKNOWN_OPTION, words, option.argument)
    if not has_option(options, ("-c",)) or not rest:
        invocation.ask(Code.RUNS_CODE, f"{invocation.program} without -c obeys a file or its input")
        return
    text = rest[0]
    if text.value is None or text.is_pattern:
        invocation.ask(Code.UNKNOWN_VALUE, f"what {short(text.source)} runs is not known before it runs", text)
        return
    if invocation.program == "zsh" and re.search(r"[$~*?\[({^#<=]", text.value):
        invocation.ask(Code.NOT_UNDERSTOOD, "zsh may read this otherwise than bash does", text)
    invocation.run_text(text, msgspec.structs.replace(invocation.place, values={}))


_KEEPING = ("-0", "--null", "-d", "--delimiter")


def judge_xargs(invocation: Invocation) -> None:
    options, command = _leading(invocation, _XARGS)
    feed = invocation.place.feed
    marks: list[str] = []
    for option in options:
        if option.kind in (OptionKind.UNKNOWN, OptionKind.LEADS_AWAY):
            words = f"{short(option.name)} of xargs is not known to be harmless"
            invocation.ask(Code.UNKNOWN_OPTION, words, option.argument)
        elif option.kind is OptionKind.PATH:
            feed = InputFeed.ANYTHING
            for value in option.values:
                invocation.reads(value)
        elif option.name in ("-I", "-J", "--replace", "-i"):
            marks.append((option.values[-1].value or "{}") if option.values else "{}")
    if not command:
        invocation.ask(Code.UNKNOWN_OPTION, "xargs without a command is not followed")
        return
    if feed not in (InputFeed.ANYTHING, InputFeed.NOTHING) and not has_option(options, _KEEPING):
        words = "a name with a blank in it becomes several words, an option perhaps: use find -print0 and xargs -0"
        invocation.ask(Code.UNKNOWN_VALUE, words)
    if feed is InputFeed.ANYTHING:
        invocation.ask(Code.UNKNOWN_VALUE, "the words that xargs would be given are not known before it runs")
    lead = "./" if feed is InputFeed.DOTTED_NAMES else ""
    given = command
    for mark in marks:
        given = tuple(found_name(argument, mark, lead) for argument in given)
    if not marks and feed is not InputFeed.NOTHING:
        name = Argument(None, lead, "the words that xargs is given", command[-1].span, is_inside=True)
        given = (*given, name)
    invocation.run(given, msgspec.structs.replace(invocation.place, feed=InputFeed.NOTHING))


def judge_privileged(invocation: Invocation) -> None:
    invocation.ask(Code.CHANGES_SYSTEM, f"{invocation.program} runs a command with other rights")
