"""What a command would touch: the nature of a call of shell.run, from the judgement of its text.

Does not own: judging (core.shell).
`command_words` are given only if they are all that happens. Then every word is literal, no variable is set, and nothing
is redirected to or from a file. A grant for a kind of command relies on that.
"""

import os
import re
from functools import cache

from palyra.adapters.runtimes.shell.mounts import HOME
from palyra.adapters.runtimes.shell.repositories import repositories_of
from palyra.core.errors import Invalid, PalyraError, Unauthorized
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, ParallelClass
from palyra.core.shell import Code, Judgement, ShellScope, judge, tree
from palyra.core.shell.paths import is_sink, is_under, resolve
from palyra.core.spelling import spell_out
from palyra.core.tools import CallNature
from palyra.ports.shell import ShellParser

COMMAND_LENGTH_MAX = 64 * 1024
PREVIEW_LENGTH_MAX = 4 * 1024
REASONS_SHOWN_MAX = 5  # The command must still begin on a card of a dozen lines with so many reasons above it.
REASON_LENGTH_MAX = 200
_UNCERTAIN = re.compile(r"[*?\[\]{}~\\\s]")  # Unquoted, these characters may make other words.
_DESCRIPTOR = re.compile(r"[0-9]+-?|-")

Words = tuple[tuple[str, ...], ...]

ASKS = CallNature(effect_class=EffectClass.ONCE, parallel_class=ParallelClass.NEVER, is_in_workspace=False)


def nature_of(arguments: JsonObject, workspace: tuple[str, ...], parser: ShellParser) -> CallNature:
    command = arguments.get("command")
    if not isinstance(command, str) or not workspace:
        return ASKS
    try:
        cwd = folder_of(arguments.get("cwd"), workspace)
    except PalyraError as refused:
        return CallNature(
            effect_class=EffectClass.ONCE,
            parallel_class=ParallelClass.NEVER,
            is_in_workspace=False,
            preview=_preview(command, (refused.message,)),
        )
    scope = ShellScope(cwd=cwd, roots=workspace, repositories=repositories_of(workspace), home=HOME)
    parse = cache(parser.parse)  # The text is parsed twice, and texts inside it more often.
    judged = judge(command, scope, parse)
    # A process that goes on after its call is an effect, whatever it does.
    is_free = judged.is_free and not arguments.get("background")
    return CallNature(
        effect_class=EffectClass.READ_ONLY if is_free else EffectClass.ONCE,
        parallel_class=ParallelClass.READ_ONLY_SAFE if is_free else ParallelClass.NEVER,
        is_in_workspace=not any(reason.code is Code.OUTSIDE_WORKSPACE for reason in judged.reasons),
        commands=_programs(judged),
        command_words=literal_words(parse(command)),
        preview=_preview(command, tuple(reason.words for reason in judged.reasons)),
    )


def folder_of(cwd: object, workspace: tuple[str, ...]) -> str:
    """Returns the folder where a command begins, by its text. A folder outside of the roots is refused."""
    if not workspace:
        raise Invalid("workspace_missing", "this agent has no workspace; give it one in palyra.toml")
    if cwd is None:
        return resolve(workspace[0], "/")
    if not isinstance(cwd, str) or "\x00" in cwd or not _is_encodable(cwd):
        raise Invalid("path_invalid", "cwd is a path in the workspace")
    folder = resolve(cwd, resolve(workspace[0], "/"))
    if not is_under(folder, [resolve(root, "/") for root in workspace]):
        raise Unauthorized("outside_workspace", "cwd lies outside the workspace; choose a folder inside it")
    return folder


def real_folder(cwd: object, workspace: tuple[str, ...], roots: tuple[str, ...]) -> str:
    """Returns the real folder where a command begins.

    A link out of the roots is refused here, because the sandbox lacks its target.
    """
    folder = folder_of(cwd, workspace)
    real = os.path.realpath(folder)
    if not is_under(real, roots):
        raise Unauthorized("outside_workspace", "cwd leads out of the workspace through a link; use the real path")
    if not os.path.isdir(real):
        raise Invalid("not_a_folder", "cwd is no folder of the workspace; create it or choose another")
    return real


def literal_words(node: tree.Node) -> Words:
    """Returns the words of every command if they say all that would happen; else nothing."""
    try:
        return tuple(_words_of(node))
    except _NotLiteralError:
        return ()


class _NotLiteralError(ValueError):
    """Something of the text is more than literal words."""


def _words_of(node: tree.Node) -> list[tuple[str, ...]]:
    match node:
        case tree.Command(words=words, assignments=assignments, redirections=redirections):
            if assignments or not words:
                raise _NotLiteralError
            _require_plain(redirections)
            return [tuple(_text_of(word) for word in words)]
        case tree.Sequence(items=items):
            return [words for item in items for words in _words_of(item.node)]
        case tree.Pipeline(stages=stages):
            return [words for stage in stages for words in _words_of(stage)]
        case tree.Negated(body=body) | tree.ShellGroup(body=body) | tree.Subshell(body=body):
            return _words_of(body)
        case _:
            raise _NotLiteralError


def _text_of(word: tree.Word) -> str:
    parts: list[str] = []
    for part in word.parts:
        if not isinstance(part, tree.Literal) or (not part.is_quoted and _UNCERTAIN.search(part.text)):
            raise _NotLiteralError
        parts.append(part.text)
    return "".join(parts)


def _require_plain(redirections: tuple[tree.Redirection, ...]) -> None:
    for redirection in redirections:
        target = _text_of(redirection.target) if redirection.target is not None else ""
        is_copy = redirection.operator in (">&", "<&") and _DESCRIPTOR.fullmatch(target)
        is_thrown_away = redirection.operator in (">", ">>", "&>", "&>>") and is_sink(target)
        if not is_copy and not is_thrown_away:
            raise _NotLiteralError


def _programs(judged: Judgement) -> tuple[str, ...]:
    return tuple(dict.fromkeys(seen.words[0] for seen in judged.commands if seen.words))


def _preview(command: str, reasons: tuple[str, ...]) -> str:
    """Returns what a person is shown.

    The reasons for asking come first, in our words. The exact command follows, every line of it marked.
    """
    why = [f"* {_cut(spelled_out(reason), REASON_LENGTH_MAX)}" for reason in reasons[:REASONS_SHOWN_MAX]]
    if len(reasons) > REASONS_SHOWN_MAX:
        why.append(f"* and {len(reasons) - REASONS_SHOWN_MAX} more")
    lines = command.split("\n")
    size = f"{len(lines)} line{'' if len(lines) == 1 else 's'}, {len(command)} characters"
    marked = "\n> ".join(spelled_out(line) for line in command[:PREVIEW_LENGTH_MAX].split("\n"))
    is_cut = len(command) > PREVIEW_LENGTH_MAX or len(marked) > PREVIEW_LENGTH_MAX
    told = f"{marked[: PREVIEW_LENGTH_MAX - 1]}…" if is_cut else marked
    title = f"the command, {size}{'; its end is not shown' if is_cut else ''}:"
    return "\n".join([*(["asks because", *why] if why else []), title, f"$ {told}"])


def _cut(text: str, length_max: int) -> str:
    return text if len(text) <= length_max else f"{text[: length_max - 1]}…"


def spelled_out(line: str) -> str:
    """Replaces characters that could hide or reorder text on a screen by their codes."""
    return spell_out(line, kept="\t")


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
