"""awk. Owns: whether a program of awk only reads and prints. Not: its options beyond those that load code.

The program is cut into pieces. It asks if it calls `system`, reads or writes files or commands by itself (`getline`, `|`,
`print >`), changes which files are read (`ARGV`), loads code, or cannot be cut without doubt.
"""

import re
from collections.abc import Iterator

from palyra.core.shell.invocation import Invocation, short
from palyra.core.shell.judgement import Code
from palyra.core.shell.options import option_table, read_line
from palyra.core.shell.paths import is_sink
from palyra.core.shell.programs import judge_option

_TABLE = option_table(
    runs="-f --file -i --include -l --load -E --exec -W",
    writes="-o --pretty-print -p --profile -d --dump-variables",
    text="-F --field-separator -v --assign",
    flag="--version --help -V -h -P --posix -c --traditional -s -S --sandbox -b --characters-as-bytes -n --csv -k",
)
_SPACE = re.compile(r"(?:[ \t\r]|\\\n|#[^\n]*)+")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_REGEX = re.compile(r"/(?:[^/\\\n\[]|\\.|\[\^?\]?(?:[^\]\\\n]|\\.)*\])*/")
_WORD = re.compile(r"[A-Za-z_]\w*|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_MARK = re.compile(r"&&|\|\||\+\+|--|[-+*/%^=!<>]=|>>|\*\*|[-+*/%^!<>|?:~$(){}\[\];,=\n]")
_BANNED = frozenset(
    "system getline ARGV ARGC ARGIND close fflush PROCINFO SYMTAB FUNCTAB include load namespace".split()
)
_CALLS = re.compile(r"system\s*\(|getline|\[\[[:.=]")
_BEFORE_REGEX = frozenset("print printf return case in else do and or not".split())
_PRINTS = frozenset(("print", "printf"))
_CONTINUES = frozenset((",", "{", "&&", "||", "do", "else", "\n"))
_ENDS = frozenset((";", "\n", "}"))


class _Doubt(Exception):
    """The program could not be cut into pieces, or does more than read."""


def judge_awk(invocation: Invocation) -> None:
    line = read_line(_TABLE, invocation.arguments)
    for option in line.options:
        judge_option(option, invocation, is_closed=True)
    if not line.operands:
        return
    program, *files = line.operands
    for argument in line.loose:
        # After its program awk knows no options.
        if argument is not program and argument not in files:
            invocation.ask(Code.UNKNOWN_VALUE, f"{short(argument.source)} may be another option of awk", argument)
    try:
        _check(None if program.is_pattern else program.value)
    except _Doubt as cause:
        invocation.ask(Code.RUNS_CODE, f"the awk program {short(program.source)} {cause}", program)
    for file in files:
        if file.value is None or not re.match(r"[A-Za-z_]\w*=", file.value):
            invocation.reads(file)


def _check(program: str | None) -> None:
    if program is None:
        raise _Doubt("is not known before it runs")
    if _CALLS.search(program):
        # A second wall, wherever the cutting below would have gone wrong.
        raise _Doubt("may call a command")
    depth, is_printing, is_target, before = 0, False, False, ""
    for piece in _pieces(program):
        if piece == "\n" and before in _CONTINUES:
            continue
        before = piece
        if is_target and not (piece.startswith('"') and is_sink(piece[1:-1])):
            raise _Doubt("writes to a file")
        is_target = False
        if piece in _BANNED:
            raise _Doubt(f"uses {piece}")
        if piece == "|":
            raise _Doubt("sends text to a command or reads from one")
        if piece in _PRINTS:
            depth, is_printing = 0, True
        elif piece in _ENDS and depth <= 0:
            is_printing = False
        elif piece in "([{":
            depth += 1
        elif piece in ")]}":
            depth -= 1
        elif piece in (">", ">>") and is_printing and depth <= 0:
            is_target = True


def _pieces(program: str) -> Iterator[str]:
    """Pieces, with `/` told apart: after an operand it divides, elsewhere it begins a pattern."""
    place, before = 0, "\n"
    while place < len(program):
        space = _SPACE.match(program, place)
        if space:
            place = space.end()
            continue
        is_operand = before[-1].isalnum() or before[-1] in '_")]' or before in ("++", "--")
        if program[place] == "/" and before in ("++", "--", ")"):
            raise _Doubt("cannot be read without doubt")
        wants_regex = program[place] == "/" and (not is_operand or before in _BEFORE_REGEX)
        pattern = _REGEX if wants_regex else _STRING if program[place] == '"' else _WORD
        piece = pattern.match(program, place) or (None if wants_regex else _MARK.match(program, place))
        if piece is None:
            raise _Doubt("cannot be read without doubt")
        before, place = piece[0], piece.end()
        yield before
