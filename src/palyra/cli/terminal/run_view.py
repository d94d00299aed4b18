"""One run at a terminal or in a pipe. Owns: starting it, following it, asking, cancelling. Not: options (run).

The answer goes to standard output: as it streams on a terminal, whole and alone elsewhere, so that it can be piped.
Everything else goes to standard error.
"""

import sys
from collections.abc import Mapping

import msgspec
import typer

from palyra.cli.client import Client
from palyra.cli.sse import SseFrame
from palyra.cli.terminal.card import card_lines
from palyra.cli.terminal.inbox import Connected, Inbox, Interrupted, Item, Retrying, StreamLost, Typed
from palyra.cli.terminal.questions import CardQuestion, answer_of, question_of
from palyra.cli.terminal.style import ink_for, prose
from palyra.cli.terminal.transcript import TERMINAL_TYPES, Transcript
from palyra.core.errors import Conflict, PalyraError
from palyra.core.events.base import JsonObject


class RunViewOptions(msgspec.Struct, frozen=True):
    """How this run is shown."""

    is_streamed: bool
    is_answer_printed: bool
    can_ask: bool


async def run_to_end(client: Client, body: JsonObject, manner: RunViewOptions) -> JsonObject:
    """The record of the ended run."""
    record = await client.start_run(body)
    follower = _Following(client, str(record["id"]), manner)
    await follower.until_end()
    return await client.get(f"/runs/{record['id']}")


class StreamSink:
    """Text to standard output if wanted, lines to standard error, and never both in one line of a terminal."""

    def __init__(self, is_streamed: bool) -> None:
        self._is_streamed = is_streamed
        self._is_within_line = False

    def text(self, text: str) -> None:
        if self._is_streamed and text:
            sys.stdout.write(text)
            sys.stdout.flush()
            self._is_within_line = not text.endswith("\n")

    def end_line(self) -> None:
        if self._is_within_line:
            self.text("\n")

    def line(self, line: str) -> None:
        self.end_line()
        typer.echo(line, err=True)


class _Following:
    def __init__(self, client: Client, run_id: str, manner: RunViewOptions) -> None:
        self._client = client
        self._run_id = run_id
        self._manner = manner
        self._inbox = Inbox(client)
        self._paper = StreamSink(manner.is_streamed)
        self._ink = ink_for(sys.stderr)
        self._transcript = Transcript(self._paper, self._ink)
        self._questions: dict[str, CardQuestion] = {}
        self._interrupts_count = 0
        self._is_apart = False

    async def until_end(self) -> None:
        self._inbox.catch_interrupts()
        self._inbox.follow(f"/runs/{self._run_id}/events", None)
        try:
            while not await self._took_last(await self._inbox.next()):
                pass
        finally:
            self._inbox.hush()
            await self._inbox.close()
            self._inbox.release_interrupts()

    async def _took_last(self, item: Item) -> bool:
        match item:
            case SseFrame():
                return await self._show(item)
            case Typed(text=text):
                await self._answer(text)
            case Interrupted():
                await self._interrupt()
            case Retrying(error=error):
                self._say_apart(error)
            case Connected():
                self._say_together()
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
            self._settle(str(frame.data.get("approval_id")))
        elif frame.type == "message.assistant" and self._manner.is_answer_printed:
            typer.echo(prose(str(frame.data.get("text") or "")))
        return frame.type in TERMINAL_TYPES

    def _ask(self, data: Mapping[str, object]) -> None:
        question = question_of(self._transcript.asked(data), self._transcript.arguments(data.get("call_id")))
        for line in card_lines(question, self._ink):
            self._paper.line(line)
        if not self._manner.can_ask:
            self._paper.line(f"    answer with: palyra approvals allow {question.approval_id} (or deny)")
            return
        if not self._questions:
            _forget_typed()
            self._inbox.listen()
        self._questions[question.approval_id] = question
        self._prompt()

    def _settle(self, approval_id: str) -> None:
        """What was typed for a question that somebody else answered is no answer to the next."""
        was_open = self._questions.pop(approval_id, None) is not None
        if not self._questions:
            self._inbox.hush()
        elif was_open:
            _forget_typed()
            self._prompt()

    async def _answer(self, text: str) -> None:
        if not text:
            self._paper.line("the input has ended; answer with palyra approvals")
        for line in text.splitlines():
            question = next(iter(self._questions.values()), None)
            if question is not None:
                await self._send(question, answer_of(question, line))

    async def _send(self, question: CardQuestion, body: JsonObject | None) -> None:
        if body is None:
            self._prompt()
            return
        try:
            await self._client.post(f"/approvals/{question.approval_id}", body)
        except Conflict as error:
            self._paper.line(error.message)
        self._settle(question.approval_id)

    def _prompt(self) -> None:
        question = next(iter(self._questions.values()))
        typer.echo(f"  {question.keys} › ", nl=False, err=True)

    async def _interrupt(self) -> None:
        """The first cancels the run and waits for its end; the second leaves at once."""
        self._interrupts_count += 1
        if self._interrupts_count > 1:
            raise typer.Exit(1)
        self._paper.line("cancelling; once more to leave without waiting")
        try:
            await self._client.post(f"/runs/{self._run_id}/cancel")
        except PalyraError as error:
            self._paper.line(f"error: {error}")

    def _say_together(self) -> None:
        if self._is_apart:
            self._is_apart = False
            self._paper.line(self._ink.dim("· connected again"))

    def _say_apart(self, error: PalyraError) -> None:
        if not self._is_apart:
            self._is_apart = True
            self._paper.line(self._ink.dim(f"· {error.message}; trying again"))


def _forget_typed() -> None:
    """What was typed before the question is no answer to it."""
    import termios

    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
