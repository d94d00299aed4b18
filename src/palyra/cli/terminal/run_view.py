"""One run at a terminal or in a pipe.

Owns: starting it, following it, asking, cancelling.
Does not own: options (commands.run), the line being typed (prompt), the keys that answer a question (questions).
The answer goes to standard output: as it streams on a terminal, whole and alone elsewhere, so that it can be piped.
Everything else goes to standard error. A prompt is open only while a question is.
"""

import shutil
import sys
from collections.abc import Mapping

import msgspec
import typer

from palyra.cli.client import Client
from palyra.cli.sse import SseFrame
from palyra.cli.terminal.card import card_lines
from palyra.cli.terminal.full_card import FULL, UNREAD, needs_reading, read_full, with_full
from palyra.cli.terminal.inbox import (
    Connected,
    Inbox,
    InputEnded,
    Interrupted,
    Item,
    Retrying,
    StoppableTask,
    StreamLost,
    Typed,
)
from palyra.cli.terminal.prompt import Prompt, make_prompt
from palyra.cli.terminal.questions import CardQuestion, answer_of, question_of
from palyra.cli.terminal.run_tree import total_text
from palyra.cli.terminal.style import prose, shown, style_for
from palyra.cli.terminal.transcript import TERMINAL_TYPES, Transcript
from palyra.cli.terminal.word_wrap import WordWrap, fit
from palyra.core.errors import Conflict, PalyraError
from palyra.core.events.base import JsonObject


class RunViewOptions(msgspec.Struct, frozen=True):
    """How this run is shown."""

    is_streamed: bool
    is_answer_printed: bool
    can_ask: bool


async def run_to_end(client: Client, body: JsonObject, options: RunViewOptions) -> JsonObject:
    """Starts a run, follows it, and returns its record once it has ended."""
    record = await client.start_run(body)
    follower = _FollowedRun(client, str(record["id"]), options)
    await follower.until_end()
    await follower.tell_totals()
    return await client.get(f"/runs/{record['id']}")


class StreamSink:
    """Writes text to standard output if wanted and lines to standard error, never both in one line of a terminal.

    While a prompt is open, both are printed above it. On a terminal lines are broken between words.
    """

    def __init__(self, is_streamed: bool) -> None:
        self.prompt: Prompt | None = None
        self._is_streamed = is_streamed
        self._is_within_line = False
        self._words = WordWrap(lambda: shutil.get_terminal_size().columns) if sys.stdout.isatty() else None

    def text(self, text: str) -> None:
        if not self._is_streamed or not text:
            return
        if self.prompt is not None:
            self.prompt.text(text)
        else:
            self._write(text if self._words is None else self._words.add(text))

    def end_line(self) -> None:
        if self.prompt is not None:
            self.prompt.end_line()
            return
        if self._words is not None:
            self._write(self._words.end())
        if self._is_within_line:
            self._write("\n")

    def line(self, line: str) -> None:
        if self.prompt is not None:
            self.prompt.line(line)
            return
        self.end_line()
        typer.echo(fit(line, sys.stderr), err=True)

    def _write(self, text: str) -> None:
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
            self._is_within_line = not text.endswith("\n")


class _FollowedRun:
    def __init__(self, client: Client, run_id: str, options: RunViewOptions) -> None:
        self._client = client
        self._run_id = run_id
        self._options = options
        self._inbox = Inbox(client)
        self._sink = StreamSink(options.is_streamed)
        self._style = style_for(sys.stderr)
        self._transcript = Transcript(self._sink, self._style)
        self._questions: dict[str, CardQuestion] = {}
        self._read: set[str] = set()  # Cards that were shown whole.
        self._interrupts_count = 0
        self._is_apart = False

    async def until_end(self) -> None:
        await StoppableTask().run(self._follow(), lambda: self._inbox.put(Interrupted()))

    async def tell_totals(self) -> None:
        """Tells the run's id, and what it used together with the runs it delegated."""
        said = f"run {self._run_id}"
        if self._transcript.has_delegated:
            found = await self._client.get(f"/runs/{self._run_id}/tree")
            said += f", with what it delegated {total_text(found)}"
        self._sink.line(self._style.dim(f"· {said}"))

    async def _follow(self) -> None:
        try:
            await self._inbox.follow(f"/runs/{self._run_id}/events", None)
            while not await self._took_last(await self._inbox.next()):
                pass
        finally:
            await self._close_prompt()
            await self._inbox.close()

    async def _took_last(self, item: Item) -> bool:
        match item:
            case SseFrame():
                return await self._show(item)
            case Typed():
                await self._answer(item)
            case InputEnded():
                await self._close_prompt()
                self._sink.line("the input has ended; answer with palyra approvals allow or deny")
            case Interrupted():
                await self._interrupt()
            case Retrying(error=error):
                self._show_retrying(error)
            case Connected():
                self._show_connected()
            case StreamLost(error=error):
                raise error
        return False

    async def _show(self, frame: SseFrame) -> bool:
        if frame.event.get("run_id") != self._run_id:
            return False
        self._transcript.show(frame)
        if frame.type == "approval.requested":
            self._ask(frame.data)
        elif frame.type == "approval.resolved":
            await self._settle(str(frame.data.get("approval_id")))
        elif frame.type == "message.assistant" and self._options.is_answer_printed:
            typer.echo(prose(str(frame.data.get("text") or "")))
        return frame.type in TERMINAL_TYPES

    def _ask(self, data: Mapping[str, object]) -> None:
        asked = question_of(self._transcript.asked(data), self._transcript.arguments(data.get("call_id")))
        question = with_full(asked) if self._options.can_ask else asked
        for line in card_lines(question, self._style):
            self._sink.line(line)
        if not self._options.can_ask:
            self._tell_waiting(question.approval_id)
            return
        self._questions[question.approval_id] = question
        if len(self._questions) == 1:
            self._open_prompt()
        self._show_next()

    def _tell_waiting(self, approval_id: str) -> None:
        """Tells where nobody can type an answer that the run waits, and the commands by which somebody answers."""
        self._sink.line(f"the run waits for your answer to approval {approval_id}:")
        for verb in ("show", "allow", "deny"):
            self._sink.line(f"    palyra approvals {verb} {approval_id}")

    async def _settle(self, approval_id: str) -> None:
        """Clears a line typed for a question that somebody else answered, because it is no answer to the next one."""
        was_open = self._questions.pop(approval_id, None) is not None
        if not self._questions:
            await self._close_prompt()
        elif was_open and self._sink.prompt is not None:
            _forget_typed()
            self._sink.prompt.replace("")
            self._show_next()

    async def _answer(self, typed: Typed) -> None:
        """Sends an answer. It counts only for the question that its writer saw."""
        question = typed.question
        body = None if question is None or typed.typed is not None else answer_of(question, typed.line)
        if question is None or body is None or question.approval_id not in self._questions:
            return
        if body == FULL:
            self._sink.line(shown(await read_full(self._client, question.approval_id)))
            self._read.add(question.approval_id)
            return
        if needs_reading(question, body, self._read):
            self._sink.line(UNREAD)
            return
        try:
            await self._client.post(f"/approvals/{question.approval_id}", body)
        except Conflict as error:
            self._sink.line(error.message)
        await self._settle(question.approval_id)

    def _open_prompt(self) -> None:
        _forget_typed()
        self._sink.end_line()
        self._sink.prompt = make_prompt(self._inbox.put, sys.stderr, self._style)
        self._sink.prompt.open()

    def _show_next(self) -> None:
        if self._sink.prompt is not None:
            self._sink.prompt.ask(next(iter(self._questions.values())), "")

    async def _close_prompt(self) -> None:
        prompt, self._sink.prompt = self._sink.prompt, None
        if prompt is not None:
            await prompt.close()

    async def _interrupt(self) -> None:
        """The first interrupt cancels the run and waits for its end; the second leaves at once."""
        self._interrupts_count += 1
        if self._interrupts_count > 1:
            raise typer.Exit(1)
        self._sink.line("cancelling; press Ctrl-C again to leave without waiting")
        try:
            await self._client.post(f"/runs/{self._run_id}/cancel")
        except PalyraError as error:
            self._sink.line(f"error: {error}")

    def _show_connected(self) -> None:
        if self._is_apart:
            self._is_apart = False
            self._sink.line(self._style.dim("· connected again"))

    def _show_retrying(self, error: PalyraError) -> None:
        if not self._is_apart:
            self._is_apart = True
            self._sink.line(self._style.dim(f"· {error.message}; trying again"))


def _forget_typed() -> None:
    """Drops keys typed before the question, because they are no answer to it."""
    import termios

    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
