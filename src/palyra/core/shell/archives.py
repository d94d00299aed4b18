"""Archives and compressed files. Owns: when tar, unzip, gzip, 7z and their like only list, test or print. Not: other programs."""

import re

import msgspec

from palyra.core.shell.invocation import Invocation, short
from palyra.core.shell.judgement import Code
from palyra.core.shell.options import option_table, read_line
from palyra.core.shell.words import Argument, plain

_TAR_LETTERS = frozenset("tvzjJZafh")
_TAR_FLAGS = frozenset(
    "--list --verbose --gzip --gunzip --bzip2 --xz --zstd --lzma --lzip --compress --auto-compress --wildcards "
    "--no-wildcards --full-time --numeric-owner --utc --block-number --totals --show-stored-names --version --help "
    "--force-local --anchored --no-anchored --ignore-case --exclude-vcs".split()
)
_UNZIP_LOOKS = frozenset("lvtZzh")
_UNZIP_LETTERS = _UNZIP_LOOKS | frozenset("qsm12MC")
_GZIP_LOOKS = frozenset(
    ("-c", "-t", "-l", "--stdout", "--to-stdout", "--test", "--list", "--help", "--version", "-h", "-V")
)
_GZIP = option_table(
    flag="-c -d -t -l -v -f -k -q -n -N -1 -2 -3 -4 -5 -6 -7 -8 -9 -h -V -L -z --stdout --to-stdout --decompress "
    "--uncompress --test --list --verbose --force --keep --quiet --no-name --name --help --version --fast --best "
    "--compress",
)
_SEVEN_LOOKS = frozenset("l t b i h".split())
_SEVEN_OPTION = re.compile(r"-(?:slt|ba|bb\d?|bd|bt|p.*|t\w+|m\w+=\w+|r[-0]?|scrc\w*|sccUTF-8|y|-help|h|-version)")


def judge_tar(invocation: Invocation) -> None:
    """Only a listing, and only with options that neither run nor write anything: tar has many that do."""
    rest = list(invocation.arguments)
    is_list = False
    if rest and rest[0].value and not rest[0].value.startswith("-"):
        bundle = rest.pop(0)
        is_list = "t" in (bundle.value or "")
        _judge_tar_letters(invocation, bundle, bundle.value or "", rest)
    while rest:
        argument = rest.pop(0)
        value = argument.value or ""
        if value.startswith("--"):
            is_list = is_list or value in ("--version", "--help", "--list")
            _judge_tar_long(invocation, argument, value)
        elif argument.lead.startswith("-"):
            is_list = is_list or "t" in value
            if "f" in value[1:-1]:
                invocation.ask(Code.UNKNOWN_OPTION, f"{short(argument.source)} of tar is not followed", argument)
            _judge_tar_letters(invocation, argument, value[1:], rest)
        else:
            _judge_tar_name(invocation, argument)
            invocation.reads_if_path(argument)
    if not is_list:
        invocation.ask(Code.WRITES, "tar without -t packs or unpacks")


def _judge_tar_long(invocation: Invocation, argument: Argument, value: str) -> None:
    name, _, rest = value.partition("=")
    if name == "--file" and rest:
        file = plain(rest, argument)
        _judge_tar_file(invocation, msgspec.structs.replace(file, is_pattern=argument.is_pattern))
    elif name not in _TAR_FLAGS and not value.startswith(("--exclude=", "--strip-components=")):
        invocation.ask(Code.UNKNOWN_OPTION, f"{short(name)} of tar is not known to be harmless", argument)


def _judge_tar_letters(invocation: Invocation, argument: Argument, letters: str, rest: list[Argument]) -> None:
    if not letters or not set(letters) <= _TAR_LETTERS or letters.count("f") > 1:
        invocation.ask(Code.UNKNOWN_OPTION, f"{short(argument.source)} of tar does more than list", argument)
    if "f" in letters and rest:
        _judge_tar_file(invocation, rest.pop(0))


def _judge_tar_name(invocation: Invocation, name: Argument) -> None:
    """tar takes options anywhere, and some of them run programs."""
    if name.may_split or (not name.lead and not name.is_certain):
        words = f"{short(name.source)} may become an option of tar: write ./{short(name.source)}"
        invocation.ask(Code.UNKNOWN_VALUE, words, name)


def _judge_tar_file(invocation: Invocation, file: Argument) -> None:
    _judge_tar_name(invocation, file)
    if not file.is_certain and "/" not in file.lead:
        invocation.ask(Code.NEEDS_NETWORK, "a name with a colon would be a file of another host to tar", file)
    if ":" in (file.value or ""):
        invocation.ask(Code.NEEDS_NETWORK, "a name with a colon is a file of another host to tar", file)
    invocation.reads(file)


def judge_unzip(invocation: Invocation) -> None:
    is_look = False
    operands: list[Argument] = []
    for argument in invocation.arguments:
        letters = (argument.value or "")[1:]
        if argument.lead.startswith("-") and not operands:
            is_look = is_look or bool(_UNZIP_LOOKS & set(letters)) or argument.value == "--help"
            if not set(letters) <= _UNZIP_LETTERS and argument.value != "--help":
                invocation.ask(Code.WRITES, f"{short(argument.source)} of unzip does more than look", argument)
        elif argument.lead.startswith("-") or not argument.lead:
            invocation.ask(Code.UNKNOWN_OPTION, f"{short(argument.source)} of unzip is not followed", argument)
        else:
            operands.append(argument)
            invocation.reads(argument)
    if not is_look:
        invocation.ask(Code.WRITES, "unzip without -l, -t or -Z unpacks")


def judge_gzip(invocation: Invocation) -> None:
    """gzip, gunzip, bzip2, xz and zstd: only printing, testing or listing."""
    line = read_line(_GZIP, invocation.arguments)
    for option in line.options:
        if option.name not in _GZIP.kinds:
            words = f"{short(option.name)} of {invocation.program} is not known to be harmless"
            invocation.ask(Code.UNKNOWN_OPTION, words, option.argument)
    for argument in line.loose:
        words = f"{short(argument.source)} may turn out to be an option of {invocation.program}"
        invocation.ask(Code.UNKNOWN_VALUE, words, argument)
    if not any(option.name in _GZIP_LOOKS for option in line.options):
        invocation.ask(Code.WRITES, f"{invocation.program} without -c, -t or -l replaces files")
    for operand in line.operands:
        invocation.reads(operand)


def judge_seven(invocation: Invocation) -> None:
    words = invocation.values()
    operands = [argument for argument in invocation.arguments if not argument.lead.startswith("-")]
    for argument in invocation.arguments:
        if argument.lead.startswith("-") and not _SEVEN_OPTION.fullmatch(argument.value or ""):
            invocation.ask(Code.UNKNOWN_OPTION, f"{short(argument.source)} of 7z is not known to be harmless", argument)
    if operands and (words[0].startswith("-") or operands[0].value not in _SEVEN_LOOKS):
        invocation.ask(Code.WRITES, "7z with another command than l, t, b or i packs or unpacks", operands[0])
    for operand in operands[1:]:
        if not operand.lead or operand.lead.startswith("@"):
            invocation.ask(
                Code.UNKNOWN_VALUE, f"what {short(operand.source)} names is not known before it runs", operand
            )
        invocation.reads(operand)
