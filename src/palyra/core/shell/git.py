"""git. Owns: which of its commands only look, and with which options. Not: other programs.

Two things make looking dangerous. Options that write a file or run a program are in the tables below. And git runs what the
configuration of a repository names (`core.fsmonitor`, `diff.external`): `.git` cannot be written without asking, but any
folder with the right files in it is a repository too, a root as well. So git is free only in a root of the workspace whose own
`.git` it is sure to use.
"""

from palyra.core.shell.invocation import Invocation, short
from palyra.core.shell.judgement import Code
from palyra.core.shell.options import OptionKind, OptionTable, option_table, read_line
from palyra.core.shell.paths import looks_outside, resolve
from palyra.core.shell.programs import judge_option, judge_values
from palyra.core.shell.words import Argument

_GLOBAL_FLAGS = frozenset(
    "--no-pager -P -p --paginate --no-replace-objects --no-optional-locks --literal-pathspecs --glob-pathspecs "
    "--noglob-pathspecs --icase-pathspecs --no-advice --version -v --help -h --html-path --man-path --info-path".split()
)
_ANY = option_table(
    writes="--output --output-directory --lost-found",
    runs="--ext-diff --open-files-in-pager --upload-pack --exec --receive-pack --textconv --filters",
    leads_away="--no-index --remote --contents --pathspec-from-file --ignore-revs-file -O",
    path="-X --exclude-from",
    text="-S -G -L -n",
    # Whole names that would otherwise be taken for one of the above, cut short.
    flag="--text --filter --remotes --exclude",
)
# In `git grep`, -O opens the files found and -f reads patterns.
_GREP = option_table(
    runs="-O --open-files-in-pager --textconv", leads_away="--no-index", path="-f", text="-e -A -B -C -m", flag="--text"
)
# Free whatever else they are given, but for the options above.
_LOOKS = frozenset(
    "annotate blame cat-file check-attr check-ignore check-mailmap check-ref-format cherry count-objects describe "
    "diff diff-files diff-index diff-tree for-each-ref fsck log ls-files ls-tree merge-base name-rev patch-id "
    "range-diff rev-list rev-parse shortlog show show-branch show-index show-ref status stripspace var verify-commit "
    "verify-pack verify-tag version whatchanged archive".split()
)
# Free with one of these words after them. An empty word: also without any.
_SECOND: dict[str, frozenset[str]] = {
    "stash": frozenset(("list", "show")),
    "worktree": frozenset(("list",)),
    "notes": frozenset(("list", "show", "")),
    "bisect": frozenset(("log",)),
    "sparse-checkout": frozenset(("list",)),
    "submodule": frozenset(("status", "summary", "")),
    "reflog": frozenset(("show", "exists", "list", "")),
    "lfs": frozenset(("ls-files", "status", "env", "version")),
    "rerere": frozenset(("status", "diff", "remaining")),
    "bundle": frozenset(("verify", "list-heads")),
    "remote": frozenset(("get-url", "show", "-v", "--verbose", "")),
}
_CONFIG_READS = frozenset("--get --get-all --get-regexp --get-urlmatch --get-color --get-colorbool -l --list".split())
_CONFIG_FLAGS = _CONFIG_READS | frozenset(
    "--global --system --local --worktree --show-origin --show-scope --null -z --name-only --includes --no-includes "
    "--bool --int --path --type=bool --type=int --type=path --all --show-names".split()
)
_FILTERS = "--contains --no-contains --merged --no-merged --points-at --format --sort"
_BRANCH = option_table(
    text=_FILTERS,
    flag="-a --all -r --remotes -v --verbose -l --list --show-current -i --ignore-case --color --no-color --column "
    "--no-column --abbrev --no-abbrev",
)
_BRANCH_LISTS = frozenset(
    "-l --list --contains --no-contains --merged --no-merged --points-at -a --all -r --remotes --show-current".split()
)
_TAG = option_table(text=_FILTERS, flag="-l --list -n -i --ignore-case --color --column --no-column")
_TAG_LISTS = frozenset("-l --list -n --contains --no-contains --merged --no-merged --points-at".split())


def judge_git(invocation: Invocation) -> None:
    rest = list(invocation.arguments)
    folders = _judge_globals(invocation, rest)
    if not rest:
        return
    _judge_folders(invocation, folders)
    command = rest.pop(0)
    name, arguments = command.value or "", tuple(rest)
    if (
        arguments
        and arguments[-1].value in ("--help", "-h")
        and len(arguments) == 1
        and name.replace("-", "").isalpha()
    ):
        return
    if name == "help" and not any(argument.lead.startswith("-") for argument in arguments):
        return
    if name in _LOOKS:
        _judge_line(invocation, arguments, _ANY)
        if name == "archive" and any(argument.lead.startswith("-o") for argument in arguments):
            invocation.ask(Code.WRITES, "-o of git archive writes a file", command)
    elif name == "grep":
        _judge_line(invocation, arguments, _GREP)
    elif name in _SECOND:
        _judge_second(invocation, command, arguments)
    elif name in _SPECIAL:
        _SPECIAL[name](invocation, command, arguments)
    else:
        invocation.ask(Code.WRITES, f"git {short(command.source)} does more than look", command)


def _judge_globals(invocation: Invocation, rest: list[Argument]) -> list[str]:
    """Takes what stands before the command. Gives the folders git would run in."""
    folders = sorted(invocation.place.folders)
    while rest and rest[0].lead.startswith("-"):
        argument = rest.pop(0)
        if argument.value == "-C" and rest:
            target = rest.pop(0)
            invocation.reads(target)
            folders = [resolve(target.value or "/", folder) for folder in folders]
        elif argument.value in ("--version", "-v", "--help", "-h"):
            rest.clear()
        elif argument.value not in _GLOBAL_FLAGS:
            words = f"{short(argument.source)} changes which programs and settings git uses"
            invocation.ask(Code.RUNS_CODE, words, argument)
    return folders


def _judge_folders(invocation: Invocation, folders: list[str]) -> None:
    for folder in folders:
        scope = invocation.sheet.scope
        if folder not in scope.roots or folder not in scope.repositories:
            words = "which is not a root of the workspace" if folder not in scope.roots else "which has no sound .git"
            invocation.ask(Code.RUNS_CODE, f"git would follow the settings of {short(folder)}, {words}")
            return


def _judge_line(invocation: Invocation, arguments: tuple[Argument, ...], table: OptionTable) -> None:
    line = read_line(table, arguments)
    for option in line.options:
        judge_option(option, invocation, is_closed=False)
    for argument in line.loose:
        words = f"{short(argument.source)} may turn out to be an option of git: write it after --"
        invocation.ask(Code.UNKNOWN_VALUE, words, argument)
    for operand in line.operands:
        # Revisions look like anything, but a path that leads out makes `git diff` compare files that are not git's.
        if operand.value is not None and looks_outside(operand.value.partition(":")[0]):
            invocation.reads(operand)


def _judge_second(invocation: Invocation, command: Argument, arguments: tuple[Argument, ...]) -> None:
    second = arguments[0].value or "?" if arguments else ""
    if second not in _SECOND[command.value or ""]:
        words = f"git {command.value} {short(second)}".strip()
        invocation.ask(Code.WRITES, f"{words} does more than look", command)
    _judge_line(invocation, arguments[1:], _ANY)
    if command.value == "remote" and second.startswith("-") and len(arguments) > 1:
        invocation.ask(Code.WRITES, "git remote with more words changes remotes", command)
    if command.value == "remote" and second == "show":
        invocation.needs_network()


def _judge_config(invocation: Invocation, command: Argument, arguments: tuple[Argument, ...]) -> None:
    words = [argument.value or "?" for argument in arguments]
    names = [word for word in words if not word.startswith("-")]
    is_read = (bool(words) and words[0] in ("get", "list")) or any(word in _CONFIG_READS for word in words)
    is_one_name = len(names) == 1 and "." in names[0]
    if not is_read and not is_one_name:
        invocation.ask(Code.WRITES, "git config without --get or --list changes settings", command)
    for argument, word in zip(arguments, words, strict=True):
        if not argument.is_certain or (word.startswith("-") and word not in _CONFIG_FLAGS):
            invocation.ask(Code.UNKNOWN_OPTION, f"{short(argument.source)} of git config is not known", argument)


def _judge_branch(invocation: Invocation, command: Argument, arguments: tuple[Argument, ...]) -> None:
    _judge_listing(invocation, command, arguments, (_BRANCH, _BRANCH_LISTS))


def _judge_tag(invocation: Invocation, command: Argument, arguments: tuple[Argument, ...]) -> None:
    _judge_listing(invocation, command, arguments, (_TAG, _TAG_LISTS))


def _judge_listing(
    invocation: Invocation,
    command: Argument,
    arguments: tuple[Argument, ...],
    tables: tuple[OptionTable, frozenset[str]],
) -> None:
    """Names are made, unless an option says that they are looked for."""
    table, lists = tables
    line = read_line(table, arguments)
    for option in line.options:
        judge_values(option, invocation)
        if option.kind is OptionKind.UNKNOWN:
            words = f"{short(option.name)} of git {command.value} is not known to be harmless"
            invocation.ask(Code.WRITES, words, option.argument)
    if line.loose or (line.operands and not line.has(lists)):
        invocation.ask(Code.WRITES, f"git {command.value} with a name makes one", command)


def _judge_symbolic_ref(invocation: Invocation, command: Argument, arguments: tuple[Argument, ...]) -> None:
    words = [argument.value or "?" if argument.is_certain else "?" for argument in arguments]
    if any(word.startswith(("-d", "-m", "--d")) for word in words) or "?" in words:
        invocation.ask(Code.WRITES, "git symbolic-ref would change a reference", command)
    if sum(not word.startswith("-") for word in words) > 1:
        invocation.ask(Code.WRITES, "git symbolic-ref with two names sets one", command)


def _judge_ls_remote(invocation: Invocation, command: Argument, arguments: tuple[Argument, ...]) -> None:
    _judge_line(invocation, arguments, _ANY)
    for argument in arguments:
        if (
            argument.value is None
            or ":" in argument.value
            or ("/" in argument.value and not argument.lead.startswith("refs/"))
        ):
            invocation.ask(
                Code.SENDS, f"git would speak to {short(argument.source)}, which is not a remote's name", argument
            )
    invocation.needs_network()


_SPECIAL = {
    "config": _judge_config,
    "branch": _judge_branch,
    "tag": _judge_tag,
    "symbolic-ref": _judge_symbolic_ref,
    "ls-remote": _judge_ls_remote,
}
