"""The place where a person types, and the text that appears above it.

Owns: what a chat and a run may ask of a prompt, and which kind a terminal gets.
Does not own: either kind (edited_prompt, plain_prompt). prompt_toolkit is imported only where lines can be edited.
"""

import os
from pathlib import Path
from typing import Protocol, TextIO

from palyra.cli.terminal.inbox import Put
from palyra.cli.terminal.questions import CardQuestion
from palyra.cli.terminal.style import Style
from palyra.cli.terminal.transcript import TextSink


class Prompt(TextSink, Protocol):
    """Text and lines are printed whether it is open or not. What a person does goes to the `Put` it was made with."""

    @property
    def typed(self) -> str:
        """The line so far."""

    def open(self) -> None:
        """Keys are read from now on; nothing changes where they are already."""

    async def close(self) -> None:
        """The terminal has its own mode back, and everything is printed."""

    def ask(self, question: CardQuestion | None, hint: str) -> None:
        """What stands before the line, and what an empty line says while something runs."""

    def replace(self, text: str) -> None:
        """Puts another text in the place of the line so far."""

    def interrupt(self) -> None:
        """Ctrl-C, where it comes as a signal."""


def make_prompt(put: Put, out: TextIO, style: Style) -> Prompt:
    if _is_plain():
        from palyra.cli.terminal.plain_prompt import PlainPrompt

        return PlainPrompt(put, out)
    from palyra.cli.terminal.edited_prompt import EditedPrompt

    return EditedPrompt(put, out, style)


def make_chat_prompt(put: Put, out: TextIO, style: Style, history: Path) -> Prompt:
    """With completion, and with the lines of earlier chats."""
    if _is_plain():
        return make_prompt(put, out, style)
    from palyra.cli.terminal.completion import chat_completer
    from palyra.cli.terminal.edited_prompt import EditedPrompt
    from palyra.cli.terminal.history import ChatHistory

    return EditedPrompt(put, out, style, ChatHistory(history), chat_completer())


def _is_plain() -> bool:
    return os.environ.get("TERM", "dumb") in ("", "dumb", "unknown")
