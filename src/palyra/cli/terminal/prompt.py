"""The prompt of a chat or a run: where a person types, and the text that appears above it.

Owns: the interface of a prompt, and which kind a terminal gets.
Does not own: either kind (edited_prompt, plain_prompt). prompt_toolkit is imported only if lines can be edited.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TextIO

from palyra.cli.terminal.inbox import Put
from palyra.cli.terminal.questions import CardQuestion
from palyra.cli.terminal.style import Style
from palyra.cli.terminal.transcript import TextSink


class Prompt(TextSink, Protocol):
    """The interface of a prompt. Text and lines are printed whether it is open or not.

    What a person types goes to the `Put` that the prompt was made with.
    """

    @property
    def typed(self) -> str:
        """The line so far."""

    def open(self) -> None:
        """Reads keys from now on. Opening an open prompt changes nothing."""

    async def close(self) -> None:
        """Prints everything that is left, and restores the terminal's mode."""

    def ask(self, question: CardQuestion | None, hint: str) -> None:
        """Sets the question before the line, and the hint that an empty line shows while something runs."""

    def replace(self, text: str) -> None:
        """Replaces the line so far."""

    def interrupt(self) -> None:
        """Acts as Ctrl-C does, if it arrives as a signal."""


def make_prompt(put: Put, out: TextIO, style: Style) -> Prompt:
    if _is_plain():
        from palyra.cli.terminal.plain_prompt import PlainPrompt

        return PlainPrompt(put, out)
    from palyra.cli.terminal.edited_prompt import EditedPrompt

    return EditedPrompt(put, out, style)


def make_chat_prompt(put: Put, out: TextIO, style: Style, history: Path, roots: Callable[[], Sequence[Path]]) -> Prompt:
    """Makes a prompt with completion and the lines of earlier chats. `roots` are those that references complete."""
    if _is_plain():
        return make_prompt(put, out, style)
    from palyra.cli.terminal.completion import chat_completer
    from palyra.cli.terminal.edited_prompt import EditedPrompt
    from palyra.cli.terminal.history import ChatHistory

    return EditedPrompt(put, out, style, ChatHistory(history), chat_completer(roots))


def _is_plain() -> bool:
    return os.environ.get("TERM", "dumb") in ("", "dumb", "unknown")
