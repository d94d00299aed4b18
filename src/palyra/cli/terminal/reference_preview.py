"""Tells in a chat what the references of a message bring, or why they bring nothing.

Owns: asking the daemon beside the chat, and the lines.
Does not own: resolving references (the daemon).
"""

import asyncio
from collections.abc import Callable

from palyra.cli.client import Client
from palyra.cli.terminal.style import Style, in_one_line
from palyra.core.errors import PalyraError
from palyra.core.events.base import JsonObject
from palyra.core.references.parser import parse_references

RAW_LENGTH_MAX = 80
WARNING_LENGTH_MAX = 200


class ReferencePreviews:
    """Asks in tasks of its own, so that a slow page does not hold up the chat."""

    def __init__(self, client: Client, style: Style, show: Callable[[str], None]) -> None:
        self._client = client
        self._style = style
        self._show = show
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, text: str, session_id: str) -> None:
        if not parse_references(text):
            return
        task = asyncio.create_task(self._preview(text, session_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _preview(self, text: str, session_id: str) -> None:
        try:
            answer = await self._client.post("/context/preview", {"text": text, "session_id": session_id})
        except PalyraError as error:
            self._show(self._style.dim(f"· references could not be previewed: {in_one_line(error.message, 200)}"))
            return
        for line in reference_lines(answer, self._style):
            self._show(line)


def reference_lines(answer: JsonObject, style: Style) -> list[str]:
    references = answer.get("references")
    return [_line(each, style) for each in references if isinstance(each, dict)] if isinstance(references, list) else []


def _line(reference: JsonObject, style: Style) -> str:
    raw = in_one_line(str(reference.get("raw")), RAW_LENGTH_MAX)
    if reference.get("ok") is True:
        return style.dim(
            f"· {raw}  {reference.get('chars')} characters, {in_one_line(str(reference.get('trust')), 20)}"
        )
    warning = in_one_line(str(reference.get("warning")), WARNING_LENGTH_MAX)
    return style.yellow(f"· {raw}  not included ({in_one_line(str(reference.get('code')), 40)}): {warning}")
