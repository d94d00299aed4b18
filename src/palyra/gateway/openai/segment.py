"""One segment of a run: from what a request gave to the run, to what its answer tells.

Owns: following a run until it is over, until it waits for the caller's tools, or until it waits for a person.
Does not own: the wire forms of what it tells (chat_chunks, response_events), starting runs (exchange).
Invariants: text that was streamed is not told again when its output is recorded. Tokens that wait together leave as
one piece. A request that ends never ends the run.
"""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from palyra.core.events import Event
from palyra.core.events.base import JsonObject
from palyra.core.events.model import Finish, ModelOutput, UsageRecorded
from palyra.core.events.run import MessageAssistant, RunCancelled, RunDone, RunFailed, RunWaiting, WaitKind
from palyra.core.events.tool import ToolProposed
from palyra.core.ids import RunId, StreamId
from palyra.engine.api.requests import RunError
from palyra.engine.hub import Frame, Frames, LiveFrame, Tap

TEXT = "model.delta"
END = "segment.end"
BETWEEN_TURNS = "\n\n"


class CallOut(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the caller is to execute, as the caller sees it."""

    id: str
    name: str
    arguments: str


class SegmentEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a segment ended. `text` is its answer. `notice` is what a person has to do, if the run waits for one."""

    finish: str
    text: str = ""
    calls: tuple[CallOut, ...] = ()
    notice: str = ""
    approval_ids: tuple[str, ...] = ()
    error: RunError | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """What the run waits for, asked once it does. None for a notice says that it no longer waits."""

    calls: Callable[[RunWaiting, dict[str, ToolProposed]], Awaitable[tuple[CallOut, ...]]]
    notice: Callable[[RunWaiting], Awaitable[str | None]]


class _Said:
    """What was streamed of the present turn. Turns come one after the other; 0 is before the first."""

    __slots__ = ("length", "pieces", "turn")

    def __init__(self) -> None:
        self.turn = self.length = 0
        self.pieces: list[str] = []

    def length_of(self, turn: int) -> int:
        return self.length if turn == self.turn else 0

    def text_of(self, turn: int) -> str:
        return "".join(self.pieces) if turn == self.turn else ""

    def add(self, turn: int, text: str) -> None:
        if turn != self.turn:
            self.turn, self.length, self.pieces = turn, 0, []
        self.length += len(text)
        self.pieces.append(text)


class SegmentFrames(Frames):
    """Text as live frames, and one last frame of type END whose data holds the SegmentEnd.

    With `is_whole` only an accepted answer is told: a caller that wants JSON cannot use text from between tool calls.
    """

    def __init__(self, run_id: RunId, frames: Frames, waits: Waits, *, is_whole: bool = False) -> None:
        super().__init__()
        self._run_id = run_id
        self._frames = frames
        self._waits = waits
        self._is_whole = is_whole
        self._said = _Said()
        self._proposed: dict[str, ToolProposed] = {}
        self._output: ModelOutput | None = None
        self._answer = ""
        self._input_tokens = self._output_tokens = self._cached_tokens = 0

    async def take(self) -> Sequence[Frame]:
        if self.is_over:
            return ()
        told: list[Frame] = []
        for frame in await self._frames.take():
            piece = self._live(frame) if isinstance(frame, LiveFrame) else await self._recorded(frame)
            if piece is not None:
                _put(told, piece)
            if piece is not None and piece.type == END:
                return told
        if self._frames.is_over:
            _put(told, self._ended(SegmentEnd(finish="stop", text=self._answer)))
        return told

    def tap(self, tap: Tap) -> None:
        def hand(frame: LiveFrame) -> bool:
            said = self._said
            before = (said.turn, said.length, said.pieces, len(said.pieces))
            piece = self._live(frame)
            if piece is None or tap(piece):
                return True
            said.turn, said.length, said.pieces = before[:3]
            del said.pieces[before[3] :]
            return False

        self._frames.tap(hand)

    def wake(self) -> None:
        self._frames.wake()

    def close(self) -> None:
        self._frames.close()

    def _live(self, frame: LiveFrame) -> LiveFrame | None:
        turn, offset, text = (frame.data.get(name) for name in ("turn", "offset", "text"))
        if frame.type != TEXT or not (isinstance(turn, int) and isinstance(offset, int) and isinstance(text, str)):
            return None
        known = self._said.length_of(turn)
        return self._say(turn, text[known - offset :]) if offset <= known else None

    def _say(self, turn: int, text: str) -> LiveFrame | None:
        if not text:
            return None
        lead = BETWEEN_TURNS if self._said.turn not in (0, turn) else ""
        self._said.add(turn, text)
        return None if self._is_whole else self._frame(TEXT, {"text": lead + text})

    async def _recorded(self, event: Event) -> LiveFrame | None:
        match event.data:
            case UsageRecorded() as usage:
                self._input_tokens += usage.input_tokens
                self._output_tokens += usage.output_tokens
                self._cached_tokens += usage.cached_tokens
            case ModelOutput() as output:
                return self._heard(output)
            case ToolProposed(call_id=call_id) as proposed:
                self._proposed[call_id] = proposed
            case MessageAssistant(text=text):
                self._answer = text
            case RunWaiting() as waiting:
                return await self._waiting(waiting)
            case RunDone():
                is_cut = self._output is not None and self._output.finish is Finish.LENGTH
                return self._ended(SegmentEnd(finish="length" if is_cut else "stop", text=self._answer))
            case RunFailed() | RunCancelled() as ended:
                return self._failed(RunError(code=ended.reason.value, message=ended.message))
            case _:
                pass
        return None

    def _heard(self, output: ModelOutput) -> LiveFrame | None:
        """Tells what of an output was not streamed: all of it where the run is read from its tape."""
        if output.finish is not Finish.INTERRUPTED:
            self._output = output
        said = self._said.text_of(output.turn)
        return self._say(output.turn, output.text[len(said) :]) if output.text.startswith(said) else None

    async def _waiting(self, waiting: RunWaiting) -> LiveFrame | None:
        text = self._output.text if self._output is not None else ""
        if waiting.kind is WaitKind.CALLER_TOOL:
            calls = await self._waits.calls(waiting, self._proposed)
            return self._ended(SegmentEnd(finish="tool_calls", text=text, calls=calls))
        notice = await self._waits.notice(waiting)
        if notice is None:
            return None
        ended = SegmentEnd(finish="stop", text=text, notice=notice, approval_ids=tuple(waiting.approval_ids))
        return self._ended(ended)

    def _failed(self, error: RunError) -> LiveFrame:
        """A cut answer is no failure for a caller who set the limit that cut it."""
        output = self._output
        if output is not None and output.finish is Finish.LENGTH and output.text:
            return self._ended(SegmentEnd(finish="length", text=output.text))
        if output is not None and output.finish is Finish.CONTENT_FILTER:
            return self._ended(SegmentEnd(finish="content_filter", text=output.text))
        return self._ended(SegmentEnd(finish="error", error=error))

    def _ended(self, end: SegmentEnd) -> LiveFrame:
        self.is_over = True
        self._frames.close()
        counted = msgspec.structs.replace(
            end, input_tokens=self._input_tokens, output_tokens=self._output_tokens, cached_tokens=self._cached_tokens
        )
        return self._frame(END, {"end": counted})

    def _frame(self, type_name: str, data: JsonObject) -> LiveFrame:
        return LiveFrame(StreamId(""), self._run_id, type_name, data)


async def read_end(frames: SegmentFrames) -> SegmentEnd:
    """Waits for the end of a segment, for a caller who wants the whole answer at once."""
    try:
        async for frame in frames:
            if frame.type == END and isinstance(frame, LiveFrame):
                end = frame.data["end"]
                assert isinstance(end, SegmentEnd)
                return end
    finally:
        frames.close()
    return SegmentEnd(finish="stop")


def _put(told: list[Frame], piece: LiveFrame) -> None:
    """Joins text with the text before it, so that tokens which wait together leave together."""
    last = told[-1] if told else None
    if piece.type == TEXT and isinstance(last, LiveFrame) and last.type == TEXT:
        text = f"{last.data['text']}{piece.data['text']}"
        told[-1] = LiveFrame(last.session_id, last.run_id, TEXT, {"text": text})
    else:
        told.append(piece)
