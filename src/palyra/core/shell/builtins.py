"""Commands of the shell itself. Owns: which of them only read or steer, and what they set. Not: `cd` (judge), programs."""

import re

from palyra.core.shell.environment import is_harmless_for, is_harmless_name
from palyra.core.shell.invocation import Invocation, short
from palyra.core.shell.judgement import Code
from palyra.core.shell.words import Argument

_NAME = re.compile(r"[A-Za-z_]\w*")
_SETTINGS = frozenset("-e -u -x -v -f -n +e +u +x +v +f -eu -ex -ux -eux -euo -exo -euxo -o +o".split())
_SETTING_NAMES = frozenset("pipefail errexit nounset xtrace noglob verbose noclobber posix".split())
_LAST_PROCESS = "$!"  # Always a number.
_WAITING = {"wait": re.compile(r"-[nf]+|[0-9]+|%[0-9]+|%[%+-]"), "jobs": re.compile(r"-[lnprs]+|%[0-9]+|%[%+-]")}
_COUNTS = re.compile(r"%[^A-Za-z%]*[hlLjzt]*n")
# What these do lasts for the rest of the text, or makes text into commands.
CHANGING = {
    "eval": "runs a text that is put together when it runs",
    "source": "runs another file's commands in this shell",
    ".": "runs another file's commands in this shell",
    "exec": "replaces the shell, or its input and output",
    "trap": "keeps commands to be run later",
    "alias": "gives words another meaning",
    "unalias": "gives words another meaning",
    "declare": "may set variables by names that are put together",
    "typeset": "may set variables by names that are put together",
    "local": "may set variables by names that are put together",
    "readonly": "sets variables",
    "unset": "removes variables or functions",
    "let": "reckons with values that may hold commands",
    "shopt": "changes how words are understood",
    "enable": "changes which commands the shell has",
    "bind": "changes what keys do",
    "complete": "changes how words are completed",
    "history": "changes or shows the history",
    "fc": "runs commands of the history",
    "hash": "changes where programs are found",
    "mapfile": "may run a command for each line",
    "readarray": "may run a command for each line",
    "coproc": "runs a command beside the others",
    "ulimit": "changes limits",
    "umask": "changes the rights of new files",
    "kill": "ends processes",
    "disown": "lets processes go on",
    "bg": "lets processes go on",
    "fg": "lets processes go on",
    "suspend": "stops the shell",
    "logout": "ends the shell",
    "pushd": "changes the folder in a way that is not followed",
    "popd": "changes the folder in a way that is not followed",
}  # fmt: skip


def judge_changing(invocation: Invocation) -> None:
    invocation.ask(Code.CHANGES_SHELL, f"{invocation.program} {CHANGING[invocation.program]}")


def judge_steering(invocation: Invocation) -> None:
    """exit, return, break, continue, shift, times, type: nothing outside the shell sees them, and none evaluates a word."""


def judge_waiting(invocation: Invocation) -> None:
    """wait and jobs: `wait -p` runs what its variable's name holds between brackets, `jobs -x` any command."""
    for argument in invocation.arguments:
        is_number = argument.source.strip('"') == _LAST_PROCESS
        if not is_number and not (argument.is_certain and _WAITING[invocation.program].fullmatch(argument.value or "")):
            words = f"{invocation.program} {short(argument.source)} is not known to only wait or tell"
            invocation.ask(Code.CHANGES_SHELL, words, argument)


def judge_printf(invocation: Invocation) -> None:
    """`-v` sets a variable, and so does `%n` in the format."""
    first = invocation.arguments[:1]
    if first and (
        first[0].lead.startswith("-") or not first[0].is_certain or _COUNTS.search(first[0].lead.replace("%%", ""))
    ):
        invocation.ask(Code.CHANGES_SHELL, "printf may set a variable", first[0])


def judge_test(invocation: Invocation) -> None:
    """`test -v 'name[...]'` runs what stands between the brackets, so what is tested for must be known."""
    arguments = [argument for argument in invocation.arguments if argument.value not in ("]", "!")]
    unknown = [index for index, argument in enumerate(arguments) if not argument.is_certain]
    # Of two words the first says what is tested, of three the second.
    is_certain = not unknown or len(arguments) == 1 or (len(arguments) in (2, 3) and len(arguments) - 2 not in unknown)
    if not is_certain or any(arguments[index].may_be_many for index in unknown):
        invocation.ask(Code.UNKNOWN_VALUE, "what is tested is not known before it runs")
    if {"-v", "-R"} & set(invocation.values()):
        invocation.ask(Code.CHANGES_SHELL, "a test of a variable by its name may run what the name holds")


def judge_read(invocation: Invocation) -> None:
    for argument in invocation.arguments:
        if argument.value not in ("-r", "-s"):
            _judge_name(invocation, argument)


def judge_export(invocation: Invocation) -> None:
    """What is exported reaches every program after it, so only names that are known to be harmless may be."""
    for argument in invocation.arguments:
        _judge_name(invocation, argument)
        name = argument.lead.partition("=")[0]
        if not is_harmless_for(name, is_plain=False):
            invocation.ask(Code.SETS_ENVIRONMENT, f"what programs make of {short(name)} is not known", argument)


def _judge_name(invocation: Invocation, argument: Argument) -> None:
    name = argument.lead.partition("=")[0]
    if not _NAME.fullmatch(name) or (not argument.is_certain and "=" not in argument.lead):
        invocation.ask(Code.CHANGES_SHELL, f"{invocation.program} {short(argument.source)} is not followed", argument)
    elif not is_harmless_name(name):
        invocation.ask(Code.SETS_ENVIRONMENT, f"{name} may change which programs run or what they do", argument)


def judge_set(invocation: Invocation) -> None:
    for argument in invocation.arguments:
        if argument.value not in _SETTINGS and argument.value not in _SETTING_NAMES:
            invocation.ask(Code.CHANGES_SHELL, f"set {short(argument.source)} is not followed", argument)
