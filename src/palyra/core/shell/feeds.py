"""What a command prints. Owns: which commands print names of the workspace, or pass on what they read. Not: judging them.

Only `xargs` and `fzf` need to know. A command with an option that is not named here may print anything.
"""

from palyra.core.shell.find_command import names_found
from palyra.core.shell.options import Line, OptionKind, OptionTable, option_table, read_line
from palyra.core.shell.words import Argument, InputFeed

_SEARCH = (
    "-i -w -F -E -P -l -L -r -R -s -u --files --files-with-matches --files-without-match --hidden --no-ignore --null"
)
_NAMING: dict[str, OptionTable] = {
    "rg": option_table(flag=f"{_SEARCH} -0", text="-e -t -g --type --glob"),
    "grep": option_table(flag=f"{_SEARCH} -Z --recursive", text="-e --include --exclude --exclude-dir"),
    "fd": option_table(
        flag="-H -I -u -g -i -s -0 -a -L --hidden --no-ignore --glob", text="-e -t -d -E --type --extension"
    ),
    "ls": option_table(flag="-1 -a -A -t -r -S -X -v"),
    "git": option_table(
        flag="-z -m -o -c -d --cached --modified --others --deleted --exclude-standard --name-only --staged"
    ),
}
_ONLY_NAMES = frozenset("-l -L --files --files-with-matches --files-without-match".split())
# Each line that comes out went in, whole.
_PASSING: dict[str, OptionTable] = {
    "grep": option_table(flag="-v -i -E -F -w -x -P --invert-match --ignore-case", text="-e"),
    "sort": option_table(flag="-u -r -n -V -f -z --unique --reverse"),
    "uniq": option_table(flag="-u -i"),
    "head": option_table(text="-n --lines", flag="-1 -2 -3 -4 -5 -6 -7 -8 -9 -0 -z"),
    "tail": option_table(text="-n --lines", flag="-1 -2 -3 -4 -5 -6 -7 -8 -9 -0 -z"),
    "cat": option_table(),
    "tac": option_table(),
    "shuf": option_table(),
}


def feed_after(arguments: tuple[Argument, ...], before: InputFeed) -> InputFeed:
    """What comes out of a command, by what goes into it."""
    if not arguments or any(argument.value is None and not argument.is_inside for argument in arguments):
        return InputFeed.ANYTHING
    program, rest = arguments[0].value or "", arguments[1:]
    if program == "find":
        return names_found(rest)
    if program in _NAMING and _prints_names(program, _read(_NAMING[program], rest)):
        return InputFeed.NAMES
    passing = _read(_PASSING[program], rest) if program in _PASSING else None
    if passing is None:
        return InputFeed.ANYTHING
    # The pattern of grep is no file; with a file, it is the file that comes out.
    wanted = 1 if program == "grep" and not passing.has(("-e",)) else 0
    return before if len(passing.operands) == wanted else InputFeed.ANYTHING


def _read(table: OptionTable, arguments: tuple[Argument, ...]) -> Line | None:
    line = read_line(table, arguments)
    is_odd = bool(line.loose) or any(option.kind is OptionKind.UNKNOWN for option in line.options)
    return None if is_odd else line


def _prints_names(program: str, line: Line | None) -> bool:
    if line is None:
        return False
    words = [operand.value for operand in line.operands]
    match program:
        case "rg" | "grep":
            return line.has(_ONLY_NAMES) and "-" not in words
        case "git":
            return words[:1] == ["ls-files"] or (words[:1] == ["diff"] and line.has(("--name-only",)))
        case _:
            return True
