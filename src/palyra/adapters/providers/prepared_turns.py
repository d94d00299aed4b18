"""Prepared turns: what a turn known beforehand consists of, playing it as deltas, and where a conversation stands.

Does not own: choosing the turn (scripted, demo).
The place in a conversation is its last real user message plus the assistant's messages since. There is no other memory,
so a restarted daemon continues at the right turn.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Annotated

import msgspec

from palyra.core.context.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palyra.core.events.base import JsonObject
from palyra.core.events.model import Finish, ModelError, Usage
from palyra.ports.provider import CallDelta, Completed, Delta, Failed, ReasoningDelta, TextDelta

DELAY_MS_MAX = 60_000
PIECES_A_READ = 8
NOTE_PREFIX = "[palyra]"  # How core.context marks what the daemon itself says to a model.
_PIECE = re.compile(r"\s*\S{1,12}|\s+")  # A word with the space before it, or a part of a long one: about a token.

DelayMs = Annotated[int, msgspec.Meta(ge=0, le=DELAY_MS_MAX)]


class Chunk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Text after a pause."""

    text: str
    delay_ms: DelayMs = 0


class PreparedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`arguments` given as text is sent as it is, so that arguments that do not parse can be played too."""

    tool: str
    arguments: JsonObject | str = {}


class PreparedFailure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    code: ModelError
    message: str = "The script says so."
    retry_after_s: float | None = None


class Turn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One answer of the model. `delay_ms` passes before every delta, a chunk's own delay once before its text."""

    text: str = ""
    chunks: tuple[Chunk, ...] = ()
    reasoning: str = ""
    calls: tuple[PreparedCall, ...] = ()
    finish: Finish | None = None
    usage: Usage | None = None
    delay_ms: DelayMs = 0
    failure: PreparedFailure | None = None


class ConversationPoint(msgspec.Struct, frozen=True):
    """Where a conversation stands: the last question, the number of answers since, and what tools said since.

    `has_images` tells whether images came with the question.
    """

    asked: str
    answered_count: int
    results: tuple[ToolMessage, ...]
    has_images: bool = False


def find_standing(messages: Sequence[Message]) -> ConversationPoint:
    asked, answered_count, results, has_images = "", 0, [], False
    for message in reversed(messages):
        match message:
            case UserMessage(text=text) if not text.startswith(NOTE_PREFIX):
                asked, has_images = text, bool(message.attachments)
                break
            case AssistantMessage():
                answered_count += 1
            case ToolMessage():
                results.append(message)
            case _:
                pass
    return ConversationPoint(asked, answered_count, tuple(reversed(results)), has_images)


async def play(turn: Turn) -> AsyncGenerator[Delta, None]:
    """Yields the turn as a stream. Closing the generator, or cancelling its reader, stops it at the next pause."""
    for delta, delay_ms in _timed(turn):
        # Yields to other tasks even without a delay: a stream that never pauses would block everybody else.
        await asyncio.sleep(delay_ms / 1000)
        yield delta
    yield _ending(turn)


def _timed(turn: Turn) -> Iterator[tuple[Delta, int]]:
    for piece in _pieces(turn.reasoning):
        yield ReasoningDelta(piece), turn.delay_ms
    for chunk in (Chunk(turn.text), *turn.chunks):
        delay_ms = chunk.delay_ms
        for piece in _pieces(chunk.text) if turn.delay_ms else _reads(chunk.text):
            yield TextDelta(piece), delay_ms + turn.delay_ms
            delay_ms = 0
    for index, call in enumerate(turn.calls):
        yield from ((delta, turn.delay_ms) for delta in _call_deltas(index, call))


def _call_deltas(index: int, call: PreparedCall) -> Iterator[Delta]:
    arguments = call.arguments if isinstance(call.arguments, str) else msgspec.json.encode(call.arguments).decode()
    yield CallDelta(index, call.tool, "")
    for piece in _reads(arguments):
        yield CallDelta(index, "", piece)


def _ending(turn: Turn) -> Delta:
    if turn.failure is not None:
        return Failed(turn.failure.code, turn.failure.message, turn.failure.retry_after_s)
    finish = turn.finish or (Finish.TOOL_CALLS if turn.calls else Finish.STOP)
    return Completed(finish, turn.usage)


def _pieces(text: str) -> list[str]:
    return _PIECE.findall(text)


def _reads(text: str) -> list[str]:
    """Joins text without a pause into packets of several tokens, as a fast server sends it."""
    pieces = _pieces(text)
    return ["".join(pieces[start : start + PIECES_A_READ]) for start in range(0, len(pieces), PIECES_A_READ)]
