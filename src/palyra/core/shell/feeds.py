"""What a command prints, as far as `xargs` after it must know. Owns: which commands print names of the workspace. Not: judging them."""

from palyra.core.shell.finding import names_found
from palyra.core.shell.options import option_table, read_line
from palyra.core.shell.words import Argument, Feed

# With these options the filters pass whole lines on, some of them or in another order.
_PASSING = {
    "grep": frozenset("-v -i -E -F -w -x -e -P --invert-match --ignore-case".split()),
    "egrep": frozenset(("-v", "-i")),
    "sort": frozenset("-u -r -n -V -f -z --unique --reverse".split()),
    "uniq": frozenset(("-u", "-i")),
    "head": frozenset("-n --lines -1 -2 -3 -4 -5 -6 -7 -8 -9 -0 -z".split()),
    "tail": frozenset("-n --lines -1 -2 -3 -4 -5 -6 -7 -8 -9 -0 -z".split()),
    "cat": frozenset(),
    "tac": frozenset(),
    "shuf": frozenset(),
}
_OPERANDS_OF_FILTERS = {"grep": 1, "egrep": 1}
_VALUES = option_table(text="-e -n --lines")
_LS_OPTIONS = frozenset("-1 -a -A -t -r -S -X -v".split())
_NAMING = {
    "rg": frozenset(("-l", "--files-with-matches", "--files", "--files-without-match")),
    "grep": frozenset(("-l", "-L", "--files-with-matches", "--files-without-match")),
    "egrep": frozenset(("-l", "-L")),
}


def feed_after(arguments: tuple[Argument, ...], before: Feed) -> Feed:
    """What comes out of a command, by what goes into it."""
    if not arguments or any(argument.value is None and not argument.is_inside for argument in arguments):
        return Feed.ANYTHING
    program, rest = arguments[0].value or "", arguments[1:]
    line = read_line(_VALUES, rest)
    options = {option.name for option in line.options}
    words = tuple(argument.value for argument in rest)
    if program == "find":
        return names_found(rest)
    if program in ("fd", "fdfind") and not options & {"-x", "-X", "--exec", "--exec-batch", "--format"}:
        return Feed.NAMES
    if program == "git" and (words[:1] == ("ls-files",) or (words[:1] == ("diff",) and "--name-only" in words)):
        return Feed.NAMES
    if program == "ls" and options <= _LS_OPTIONS:
        return Feed.NAMES
    if options & _NAMING.get(program, frozenset()):
        return Feed.NAMES
    is_filter = program in _PASSING and options <= _PASSING[program]
    if is_filter and len(line.operands) == (0 if "-e" in options else _OPERANDS_OF_FILTERS.get(program, 0)):
        return before
    return Feed.ANYTHING
