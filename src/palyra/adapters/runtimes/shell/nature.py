"""What a command would touch: the nature of a call of shell.run.

Does not own: judging what a command changed in its draft (engine.session.draft_gate).
A command in a draft is of class `drafted`, whatever its text says. The text of any other is parsed, for its card and for
grants.
`command_words` are given only if they are all that happens. Then every word is literal, no variable is set, and nothing
is redirected to or from a file. A grant for a kind of command relies on that. A command on the real folder has none, so
that no such grant covers it: nobody judges what it changes.
"""

import os
import posixpath
from collections.abc import Iterable

from palyra.core.command_words import command_words
from palyra.core.errors import Invalid, PalyraError, Unauthorized
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, ParallelClass
from palyra.core.spelling import spell_out
from palyra.core.tools import CallNature

COMMAND_LENGTH_MAX = 64 * 1024
PREVIEW_LENGTH_MAX = 4 * 1024

ASKS = CallNature(effect_class=EffectClass.ONCE, parallel_class=ParallelClass.NEVER, is_in_workspace=False)


def nature_of(arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
    """Returns what a command would touch. The text of a command in a draft is not looked at."""
    command = arguments.get("command")
    if not isinstance(command, str) or not workspace:
        return ASKS
    try:
        folder_of(arguments.get("cwd"), workspace)
    except PalyraError as refused:
        return CallNature(
            effect_class=EffectClass.ONCE,
            parallel_class=ParallelClass.NEVER,
            is_in_workspace=False,
            preview=show_command(command, (refused.message,)),
        )
    wants_network = arguments.get("network") is True
    needs = needs_of(arguments)
    if not needs:
        return CallNature(
            effect_class=EffectClass.DRAFTED, parallel_class=ParallelClass.NEVER, preview=show_command(command, ())
        )
    words = command_words(command)
    return CallNature(
        effect_class=EffectClass.ONCE,
        parallel_class=ParallelClass.NEVER,
        commands=tuple(dict.fromkeys(each[0] for each in words if each)),
        command_words=() if is_direct(arguments) else words,
        preview=show_command(command, needs),
        wants_network=wants_network,
    )


def needs_of(arguments: JsonObject) -> tuple[str, ...]:
    """Says in words what a command needs beyond a draft."""
    needs = {
        "network": "it wants a way to the network; what it changes in the workspace is judged afterwards",
        "direct": "it works on the real folder: what it changes there is not judged and cannot be undone",
        "background": "it goes on in the background, on the real folder, until it is stopped or the run ends",
    }
    return tuple(words for name, words in needs.items() if arguments.get(name) is True)


def is_direct(arguments: JsonObject) -> bool:
    """A process that goes on has no end at which a draft could be sealed, so it works on the real folder."""
    return arguments.get("direct") is True or arguments.get("background") is True


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


def show_command(command: str, reasons: tuple[str, ...]) -> str:
    """Returns what a person is shown.

    The reasons for asking come first, in our words. The exact command follows, every line of it marked.
    """
    why = [f"* {reason}" for reason in reasons]
    lines = command.split("\n")
    size = f"{len(lines)} line{'' if len(lines) == 1 else 's'}, {len(command)} characters"
    marked = "\n> ".join(spelled_out(line) for line in command[:PREVIEW_LENGTH_MAX].split("\n"))
    is_cut = len(command) > PREVIEW_LENGTH_MAX or len(marked) > PREVIEW_LENGTH_MAX
    told = f"{marked[: PREVIEW_LENGTH_MAX - 1]}…" if is_cut else marked
    title = f"the command, {size}{'; its end is not shown' if is_cut else ''}:"
    return "\n".join([*(["asks because", *why] if why else []), title, f"$ {told}"])


def spelled_out(line: str) -> str:
    """Replaces characters that could hide or reorder text on a screen by their codes."""
    return spell_out(line, kept="\t")


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def resolve(path: str, folder: str) -> str:
    joined = posixpath.normpath(posixpath.join(folder, path or "."))
    return "/" + joined.lstrip("/")  # POSIX lets `//x` be something else; to the kernels we know it is `/x`.


def is_under(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or folder == "/" or path.startswith(folder + "/") for folder in folders)
