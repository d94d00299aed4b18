"""A chat. Owns: what each key, line, frame and interrupt does to it. Not: drawing (screen) or options (chat).

Everything shown about runs comes from the session's stream, so what other people and programs do in the session is seen
too, and a daemon that restarts is followed on from the last event.
"""

import asyncio
import secrets
import time
from pathlib import Path

import typer

from palyra.cli.client import Client
from palyra.cli.sse import SseFrame
from palyra.cli.terminal.attachments import read_file, upload
from palyra.cli.terminal.card import card_lines
from palyra.cli.terminal.editor import Editor
from palyra.cli.terminal.inbox import Connected, Inbox, Interrupted, Item, Retrying, StreamLost, Typed
from palyra.cli.terminal.keys import KeyReader, Press, TypedKey
from palyra.cli.terminal.questions import CardQuestion, answer_of, brief_arguments, question_of
from palyra.cli.terminal.screen import Screen
from palyra.cli.terminal.style import Style, date_time, in_one_line, shown
from palyra.cli.terminal.transcript import TERMINAL_TYPES, Transcript
from palyra.core.errors import Conflict, NotFound, PalyraError
from palyra.core.events.base import JsonObject

HISTORY_EVENTS = 40
SESSIONS_SHOWN = 20
LEAVE_WITHIN_S = 3.0  # A second Ctrl-C later than this begins anew.
HELP = """\
  Enter      send; while a run is active your line steers it
  Ctrl-C     cancel the run; twice to leave
  /attach F  send the file F with your next message; without F, nothing
  /new       begin a new session
  /sessions  list sessions
  /approvals list open questions
  /cancel    cancel the run
  /quit      leave (Ctrl-D too)"""


class Conversation:
    def __init__(self, client: Client, ink: Style, agent: str | None) -> None:
        self._client = client
        self._ink = ink
        self._agent = agent
        self._inbox = Inbox(client)
        self._keys = KeyReader()
        self._editor = Editor()
        self._screen = Screen(self._editor, ink)
        self._transcript = Transcript(self._screen, ink)
        self._session_id = ""
        self._runs: list[str] = []
        self._questions: dict[str, CardQuestion] = {}
        self._own: list[str] = []
        self._attached: list[JsonObject] = []
        self._interrupted_at_s: float | None = None
        self._is_apart = False
        self._is_over = False

    async def talk(self, key: str) -> None:
        with self._screen.taken():
            self._inbox.catch_interrupts()
            try:
                await self._enter({"key": key})
                self._inbox.listen()
                while not self._is_over:
                    await self._take(await self._inbox.next())
            finally:
                self._inbox.hush()
                await self._inbox.close()
                self._inbox.release_interrupts()

    async def _enter(self, request: JsonObject) -> None:
        agent: JsonObject = {} if self._agent is None else {"agent": self._agent}
        session = await self._client.post("/sessions", {**request, **agent})
        self._session_id = str(session["id"])
        seq = session.get("seq")
        after = seq if isinstance(seq, int) else 0
        self._questions.clear()
        active = session.get("active_run_id")
        self._runs = [active] if isinstance(active, str) else []
        name = session.get("key") or session.get("label") or self._session_id
        self._screen.line(self._ink.dim(f"session {in_one_line(str(name), 60)} · /help tells what there is"))
        await self._show_history(after)
        for approval in await self._pending():
            self._ask(question_of(approval, approval.get("arguments")))
        self._inbox.follow(f"/sessions/{self._session_id}/events", after)
        self._settle()

    async def _show_history(self, seq: int) -> None:
        path = f"/sessions/{self._session_id}/tape"
        page = await self._client.items(path, HISTORY_EVENTS, after=max(0, seq - HISTORY_EVENTS))
        for event in page:
            data = event.get("data")
            text = shown(str(data.get("text"))) if isinstance(data, dict) and data.get("text") else ""
            if text and event.get("type") == "message.user":
                self._screen.line(self._ink.dim(f"› {text}"))
            elif text and event.get("type") == "message.assistant":
                self._screen.line(self._ink.dim(text))
            elif event.get("type") == "tool.proposed":
                self._transcript.show(
                    SseFrame(None, "tool.proposed", event)
                )  # Says nothing: its name is known from now on.

    async def _pending(self) -> list[JsonObject]:
        approvals = await self._client.items("/approvals", 100, status="pending")
        return [approval for approval in approvals if approval.get("session_id") == self._session_id]

    async def _take(self, item: Item) -> None:
        match item:
            case SseFrame():
                self._show(item)
            case Typed(text=""):
                self._is_over = True
            case Typed(text=text):
                for key in self._keys.feed(text):
                    await self._press(key)
            case Interrupted():
                await self._interrupt()
            case Retrying(error=error):
                self._say_apart(error)
            case Connected():
                self._say_together()
            case StreamLost(error=error):
                raise error

    def _show(self, frame: SseFrame) -> None:
        if frame.event.get("session_id") != self._session_id:
            return
        run_id = str(frame.event.get("run_id"))
        if frame.type == "run.accepted":
            self._runs.append(run_id)
        self._settle()
        self._show_message(frame)
        self._transcript.show(frame)
        if frame.type == "approval.requested":
            asked = self._transcript.asked(frame.data)
            self._ask(question_of(asked, self._transcript.arguments(frame.data.get("call_id"))))
        elif frame.type == "approval.resolved":
            self._close(str(frame.data.get("approval_id")))
        elif frame.type in TERMINAL_TYPES:
            self._runs = [each for each in self._runs if each != run_id]
        self._settle()

    def _show_message(self, frame: SseFrame) -> None:
        """What somebody else said here; what was typed is on the screen already."""
        text = frame.data.get("text")
        if frame.type != "message.user" or not isinstance(text, str):
            return
        if text in self._own:
            self._own.remove(text)
        else:
            self._screen.line(f"{self._ink.cyan(shown(str(frame.event.get('actor'))))} › {shown(text)}")

    def _ask(self, question: CardQuestion) -> None:
        self._questions[question.approval_id] = question
        self._screen.line("\n".join(card_lines(question, self._ink)))

    def _close(self, approval_id: str) -> None:
        """What is being typed for a question that somebody else answered is no answer to the next."""
        is_current = approval_id == next(iter(self._questions), None)
        closed = self._questions.pop(approval_id, None)
        if closed is not None and is_current and answer_of(closed, self._editor.text) is not None:
            self._editor.replace("")

    def _settle(self) -> None:
        """The prompt is seen when nothing runs, or when something is asked."""
        question = next(iter(self._questions.values()), None)
        self._screen.is_quiet = not self._runs or question is not None
        self._screen.prompt = "› " if question is None else f"{question.keys} › "
        self._screen.draw()

    async def _press(self, key: TypedKey) -> None:
        if key.press is Press.INTERRUPT:
            await self._interrupt()
        elif key.press is Press.LEAVE and not self._editor.text:
            self._is_over = True
        elif key.press is Press.REDRAW:
            self._screen.clear()
        else:
            line = self._editor.press(key)
            if line is None:
                self._screen.draw()
            else:
                await self._say(line)

    async def _say(self, line: str) -> None:
        if not line.strip():
            self._screen.draw()
            return
        self._screen.commit(shown(line))
        try:
            await self._do(line.strip())
        except PalyraError as error:
            self._screen.line(self._ink.red(f"error: {shown(str(error))}"))
        self._settle()

    async def _do(self, line: str) -> None:
        question = next(iter(self._questions.values()), None)
        answer = None if question is None else answer_of(question, line)
        if question is not None and answer is not None:
            await self._answer(question, answer)
        elif line.startswith("/"):
            await self._command(line)
        else:
            await self._send(line)

    async def _answer(self, question: CardQuestion, body: JsonObject) -> None:
        try:
            await self._client.post(f"/approvals/{question.approval_id}", body)
        except Conflict as error:
            self._screen.line(self._ink.dim(shown(error.message)))
        self._questions.pop(question.approval_id, None)

    async def _send(self, text: str) -> None:
        """Steers the active run; begins one where none is."""
        self._own = [*self._own, text][-100:]
        try:
            await self._steer_or_start(text)
        except PalyraError:
            self._own.remove(text)
            self._editor.replace(text)
            raise

    async def _steer_or_start(self, text: str) -> None:
        if self._runs and not self._attached:
            try:
                await self._client.post(f"/runs/{self._runs[0]}/input", {"text": text})
                return
            except (Conflict, NotFound):
                pass  # It ended in the same moment.
        key = f"chat-{secrets.token_hex(16)}"
        body: JsonObject = {"session_id": self._session_id, "text": text, "when_busy": "steer", "idempotency_key": key}
        await self._client.start_run({**body, "attachments": self._attached} if self._attached else body)
        self._attached = []

    async def _command(self, line: str) -> None:
        match line.split()[0]:
            case "/help" | "/?":
                self._screen.line(HELP)
            case "/attach":
                await self._attach(line.removeprefix("/attach").strip())
            case "/new":
                await self._enter({})
            case "/sessions":
                await self._list_sessions()
            case "/approvals":
                await self._list_approvals()
            case "/cancel":
                await self._cancel()
            case "/quit" | "/exit":
                self._is_over = True
            case other:
                self._screen.line(f"there is no {shown(other)}; /help tells what there is")

    async def _attach(self, name: str) -> None:
        if name:
            file = await asyncio.to_thread(read_file, Path(name))
            self._attached.append(await upload(self._client, file))
        else:
            self._attached = []
        names = ", ".join(in_one_line(str(each["name"]), 60) for each in self._attached) or "nothing"
        self._screen.line(self._ink.dim(f"· with your next message goes: {names}"))

    async def _list_sessions(self) -> None:
        for session in await self._client.items("/sessions", SESSIONS_SHOWN):
            name = in_one_line(str(session.get("key") or session.get("label") or "–"), 40)
            mark = "▸" if session.get("id") == self._session_id else " "
            self._screen.line(f"{mark} {session.get('id')}  {date_time(session.get('updated_at_ms'))}  {name}")

    async def _list_approvals(self) -> None:
        approvals = await self._client.items("/approvals", 100, status="pending")
        for approval in approvals:
            question = question_of(approval, approval.get("arguments"))
            self._screen.line(
                f"{question.approval_id}  {question.title}: {in_one_line(brief_arguments(question.calls[0]), 80)}"
            )
        if not approvals:
            self._screen.line("nothing waits for an answer")

    async def _interrupt(self) -> None:
        """Clears the line, cancels the run, or leaves, in this order; twice in a row leaves."""
        now_s = time.monotonic()
        is_second = self._interrupted_at_s is not None and now_s - self._interrupted_at_s < LEAVE_WITHIN_S
        self._interrupted_at_s = now_s
        if is_second:
            self._is_over = True
        elif self._editor.text:
            self._editor.replace("")
            self._screen.draw()
        elif self._runs:
            await self._cancel()
        else:
            self._screen.line(self._ink.dim("Ctrl-C once more to leave"))

    async def _cancel(self) -> None:
        if not self._runs:
            self._screen.line("nothing is running")
            return
        self._screen.line(self._ink.dim("· cancelling"))
        try:
            await self._client.post(f"/runs/{self._runs[0]}/cancel")
        except PalyraError as error:
            self._screen.line(self._ink.red(f"error: {shown(str(error))}"))

    def _say_together(self) -> None:
        if self._is_apart:
            self._is_apart = False
            self._screen.line(self._ink.dim("· connected again"))

    def _say_apart(self, error: PalyraError) -> None:
        if not self._is_apart:
            self._is_apart = True
            self._screen.line(self._ink.dim(f"· {shown(error.message)}; trying again"))


async def converse(client: Client, key: str, agent: str | None, ink: Style) -> None:
    await Conversation(client, ink, agent).talk(key)
    typer.echo("")
