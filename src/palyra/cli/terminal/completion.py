"""Completion of what is typed in a chat.

Owns: the list of completers, each for one form of text.
Does not own: when and how the menu is shown (prompt).
A new form of text is one more entry in `chat_completer`.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter, merge_completers
from prompt_toolkit.document import Document

from palyra.cli.terminal.reference_words import KINDS, WITH_COLON, TypedPath, paths_below, typed_kind, typed_path
from palyra.cli.terminal.slash_commands import SLASH_COMMANDS

_ATTACH = "/attach "
Roots = Callable[[], Sequence[Path]]


class CommandCompleter(Completer):
    """Completes the names of slash commands at the beginning of the text."""

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        typed = document.text_before_cursor
        if not typed.startswith("/") or any(character.isspace() for character in typed):
            return
        for command in SLASH_COMMANDS:
            if command.name.startswith(typed):
                text = f"{command.name} " if command.argument else command.name
                yield Completion(text, -len(typed), display=command.name, display_meta=command.text)


class AttachCompleter(Completer):
    """Completes the paths of files after /attach."""

    def __init__(self) -> None:
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        typed = document.text_before_cursor
        if typed.startswith(_ATTACH):
            path = typed.removeprefix(_ATTACH).lstrip()
            yield from self._paths.get_completions(Document(path), complete_event)


class ReferenceCompleter(Completer):
    """Completes the kind of a reference after `@`, and a path of the workspace after `@file:` and its like.

    `roots` returns the workspace of the chat's agent. It has an effect only where the daemon's files are here.
    """

    def __init__(self, roots: Roots) -> None:
        self._roots = roots

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        kind, path = typed_kind(before), typed_path(before)
        if kind is not None:
            yield from _kinds(kind)
        elif path is not None:
            # A relative path means a file below the first root.
            for root in self._roots()[:1]:
                yield from (_path(path, found, is_folder) for found, is_folder in paths_below(root, path))


def _kinds(typed: str) -> Iterable[Completion]:
    for kind, text in KINDS.items():
        if kind.startswith(typed):
            word = f"{kind}:" if kind in WITH_COLON else kind
            yield Completion(word, -len(typed), display=f"@{word}", display_meta=text)


def _path(typed: TypedPath, path: str, is_folder: bool) -> Completion:
    """A path with blanks gets quotes. Those of a folder stay open, because more may follow."""
    opening = '"' if " " in path and not typed.is_quoted else ""
    closing = '"' if (opening or typed.is_quoted) and not is_folder else ""
    slash = "/" if is_folder else ""
    return Completion(f"{opening}{path}{slash}{closing}", -len(typed.path), display=f"{path}{slash}")


def chat_completer(roots: Roots = tuple) -> Completer:
    return merge_completers([CommandCompleter(), AttachCompleter(), ReferenceCompleter(roots)])
