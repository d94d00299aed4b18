"""sed. Owns: whether a script of sed only reads and prints. Not: other programs.

The script is read command by command; what is not certainly one of the harmless ones asks. `r`, `w`, `e` and their like
read, write or run something that is named in the script.
"""

import re

from palyra.core.shell.invocation import Invocation, short
from palyra.core.shell.judgement import Code
from palyra.core.shell.options import OptionKind, option_table, read_line
from palyra.core.shell.programs import judge_option
from palyra.core.shell.words import Argument

_TABLE = option_table(
    writes="-i -I --in-place",
    runs="-f --file",
    text="-e --expression -l --line-length",
    flag="-n --quiet --silent -E -r --regexp-extended -s --separate -u --unbuffered -z --null-data --posix --debug "
    "--sandbox --help --version -a",
)
_ADDRESS = re.compile(r"(?:\d+(?:~\d+)?|\$|/(?:[^/\\\n\[]|\\.|\[\^?\]?[^\]\n]*\])*/[IM]*)")
_BETWEEN = re.compile(r"\s*,\s*(?:[+~]?\d+|\$|/(?:[^/\\\n\[]|\\.|\[\^?\]?[^\]\n]*\])*/[IM]*)")
_PLAIN = re.compile(r"[dDFgGhHlnNpPqQxz=](?:[ \t]*\d+)?")
_LABEL = re.compile(r"[bTt:][ \t]*[\w.-]*(?=\s|;|\}|$)")
_BRACKET = re.compile(r"\[\^?\]?(?:\[:[a-z]+:\]|[^\]\n\[\\])*\]")
_ONE_LINE = re.compile(r"(?:[^\\\n]|\\.)*", re.DOTALL)
_FLAGS = re.compile(r"[gpiImM0-9]*")


class _Doubt(Exception):
    """The script does more than read, or was not understood."""


def judge_sed(invocation: Invocation) -> None:
    line = read_line(_TABLE, invocation.arguments)
    scripts: list[Argument] = []
    for option in line.options:
        judge_option(option, invocation, is_closed=True)
        if option.kind is OptionKind.TEXT and option.name.startswith(("-e", "--e")):
            scripts += option.values
    has_script = bool(scripts) or any(option.kind is OptionKind.RUNS for option in line.options)
    operands = list(line.operands)
    if not has_script and operands:
        scripts.append(operands.pop(0))
    for script in scripts:
        _judge_script(invocation, script)
    for argument in line.loose:
        if argument not in scripts:
            words = f"{short(argument.source)} may turn out to be an option of sed: write ./{short(argument.source)}"
            invocation.ask(Code.UNKNOWN_VALUE, words, argument)
    for operand in operands:
        invocation.reads(operand)


def _judge_script(invocation: Invocation, script: Argument) -> None:
    try:
        if script.value is None or script.is_pattern:
            raise _Doubt("is not known before it runs")
        _check(script.value)
    except _Doubt as cause:
        invocation.ask(Code.RUNS_CODE, f"the sed script {short(script.source)} {cause}", script)


def _check(script: str) -> None:
    place, depth = 0, 0
    while True:
        place = _skip(script, place, " \t\n;")
        if place >= len(script):
            break
        if script[place] == "}":
            depth, place = depth - 1, place + 1
            continue
        place = _after_addresses(script, place)
        if place < len(script) and script[place] == "{":
            depth, place = depth + 1, place + 1
            continue
        place = _after_command(script, place)
    if depth != 0:
        raise _Doubt("is not understood")


def _after_addresses(script: str, place: int) -> int:
    address = _ADDRESS.match(script, place)
    if address:
        between = _BETWEEN.match(script, address.end())
        place = between.end() if between else address.end()
    return _skip(script, place, " \t!")


def _after_command(script: str, place: int) -> int:
    name = script[place : place + 1]
    if name in ("s", "y"):
        return _after_substitution(script, place)
    if name in ("a", "i", "c"):
        # GNU's one-line form: the text goes to the end of the line, and beyond it after a backslash.
        text = _ONE_LINE.match(script, place)
        return text.end() if text else len(script)
    command = _LABEL.match(script, place) or _PLAIN.match(script, place)
    if command is None:
        known = {
            "w": "writes a file",
            "W": "writes a file",
            "r": "reads a file",
            "R": "reads a file",
            "e": "runs a command",
        }
        raise _Doubt(known.get(name, "is not understood"))
    end = _skip(script, command.end(), " \t")
    if end < len(script) and script[end] not in ";\n}#":
        raise _Doubt("is not understood")
    return end


def _after_substitution(script: str, place: int) -> int:
    separator = script[place + 1 : place + 2]
    if not separator or separator in "\\\n" or separator.isalnum():
        raise _Doubt("is not understood")
    end = _closing(script, place + 2, separator, has_brackets=script[place] == "s")
    end = _closing(script, end + 1, separator, has_brackets=False)
    flags = _FLAGS.match(script, end + 1)
    after = _skip(script, flags.end() if flags else end + 1, " \t")
    if after < len(script) and script[after] not in ";\n}#":
        raise _Doubt("has a substitution that writes, runs or is not understood")
    return after


def _closing(script: str, place: int, separator: str, *, has_brackets: bool) -> int:
    """Where the separator stands next; between brackets it is a letter like others."""
    while place < len(script):
        letter = script[place]
        if letter == "\\":
            place += 2
        elif letter == separator:
            return place
        elif letter == "[" and has_brackets:
            bracket = _BRACKET.match(script, place)
            if bracket is None:
                raise _Doubt("is not understood")
            place = bracket.end()
        else:
            place += 1
    raise _Doubt("is not understood")


def _skip(script: str, place: int, letters: str) -> int:
    while place < len(script) and script[place] in letters:
        place += 1
    return place
