"""Completion of what is typed in a chat.

Owns: the list of completers, each for one form of text.
Does not own: when and how the menu is shown (prompt).
A new form of text (a reference, say) is one more entry in `COMPLETERS`.
"""

from collections.abc import Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter, merge_completers
from prompt_toolkit.document import Document

from palyra.cli.terminal.slash_commands import SLASH_COMMANDS

_ATTACH = "/attach "


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


COMPLETERS: tuple[type[Completer], ...] = (CommandCompleter, AttachCompleter)


def chat_completer() -> Completer:
    return merge_completers([make() for make in COMPLETERS])
