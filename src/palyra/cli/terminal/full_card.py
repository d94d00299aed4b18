"""Cards that are too long for a screen: whether one is, its whole text, and the key that shows it.

Does not own: drawing (card), what counts as read on the daemon's side (engine.api.approvals).
Invariant: where the screen left out some of what a yes would allow, nobody says yes before the whole was shown there.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from palyra.cli.client import Client
from palyra.cli.terminal.card import CALLS_SHOWN_MAX, PREVIEW_LINES_MAX
from palyra.cli.terminal.questions import ARGUMENTS_LENGTH_MAX, AnswerChoice, CardQuestion, arguments_text
from palyra.cli.terminal.style import shown
from palyra.core.events.base import JsonObject

PREVIEW_CHARS_MAX = 3_000  # Tools cut their previews at 4 KiB, so that a longer one may be no longer whole.
FULL: JsonObject = {"show": "full"}
UNREAD = "the card does not show all that this would allow; f shows it, d denies it"


def with_full(question: CardQuestion) -> CardQuestion:
    """Returns the question with a key that shows it whole, if the screen does not."""
    if not is_cut(question):
        return question
    return replace(
        question, choices=(*question.choices, AnswerChoice("f", "show it whole, which comes before a yes", FULL))
    )


def is_cut(question: CardQuestion) -> bool:
    record, preview = question.record, question.record.get("preview")
    if record.get("full") is not None or record.get("is_cut") is True or len(question.calls) > CALLS_SHOWN_MAX:
        return True
    if isinstance(preview, str) and preview:
        lines = [line for line in shown(preview).splitlines() if line]
        return len(lines) > PREVIEW_LINES_MAX + 1 or len(preview) > PREVIEW_CHARS_MAX
    return any(len(arguments_text(call)) >= ARGUMENTS_LENGTH_MAX for call in question.calls)


def needs_reading(question: CardQuestion, body: Mapping[str, object], read: set[str]) -> bool:
    """Tells whether an answer is a yes to what was not shown whole yet."""
    return body.get("decision") == "allow" and is_cut(question) and question.approval_id not in read


async def read_full(client: Client, approval_id: str) -> str:
    """Reads all pages of what a yes would allow."""
    parts: list[str] = []
    offset: object = 0
    while isinstance(offset, int):
        page = await client.get(f"/approvals/{approval_id}/full", offset=offset)
        parts.append(str(page.get("text") or ""))
        offset = page.get("next_offset")
    return "".join(parts)
