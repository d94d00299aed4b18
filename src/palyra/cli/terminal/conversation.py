"""A chat in the terminal.

Owns: what each line, frame and interrupt does to it.
Does not own: the line being typed (prompt), the keys that answer a question (questions), options (commands.chat).
Everything shown about runs comes from the session's stream. A person therefore also sees what others do in the session,
and a chat continues after the last event if the daemon restarts.
"""

import asyncio
import secrets
import sys
import time
from pathlib import Path

from palyra.cli.client import Client
from palyra.cli.lookup import LOOKED_AT_MAX
from palyra.cli.sse import SseFrame
from palyra.cli.terminal.attachments import read_file, upload
from palyra.cli.terminal.card import card_lines
from palyra.cli.terminal.chat_pins import ChatPins
from palyra.cli.terminal.compaction_view import compaction_lines
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
from palyra.cli.terminal.prompt import make_chat_prompt
from palyra.cli.terminal.questions import CardQuestion, answer_of, brief_arguments, decided_text, question_of
from palyra.cli.terminal.reference_preview import ReferencePreviews
from palyra.cli.terminal.session_ancestry import events_before, said_line
from palyra.cli.terminal.slash_commands import help_text
from palyra.cli.terminal.style import date_time, in_one_line, shown, style_for
from palyra.cli.terminal.transcript import TERMINAL_TYPES, Transcript
from palyra.core.errors import Conflict, NotFound, PalyraError
from palyra.core.events.base import JsonObject

HISTORY_EVENTS = 40
TAPE_EVENTS_MAX = 2_000  # More of an active run comes with the stream.
COMPACT_TIMEOUT_S = 310.0
SESSIONS_SHOWN = 20
LEAVE_WITHIN_S = 3.0  # A second Ctrl-C later than this counts as a first one.
HINT_RUNNING = "type to steer, Ctrl-C to cancel"
HINT_ASKED = "a key, then Enter"  # Short, because the prompt itself names the call.
SEND_WORD = "send"


class Conversation:
    def __init__(self, client: Client, agent: str | None, history: Path) -> None:
        self._client = client
        self._style = style_for(sys.stdout)
        self._agent = agent
        self._inbox = Inbox(client)
        self._roots: tuple[Path, ...] = ()
        self._prompt = make_chat_prompt(self._receive, sys.stdout, self._style, history, lambda: self._roots)
        self._previews = ReferencePreviews(client, self._style, self._prompt.line)
        self._transcript = Transcript(self._prompt, self._style, has_preview=True)
        self._pins = ChatPins(client, self._prompt.line)
        self._stoppable = StoppableTask()
        self._session_id = ""
        self._runs: list[str] = []
        self._questions: dict[str, CardQuestion] = {}
        self._held: tuple[str, Typed] | None = None  # A question, and the text that was typed in place of an answer.
        self._answered: set[str] = set()  # Questions answered here, whose outcome was told at once.
        self._read: set[str] = set()  # Cards that were shown whole.
        self._own: list[str] = []
        self._attached: list[JsonObject] = []
        self._interrupted_at_s: float | None = None
        self._is_apart = False
        self._is_over = False
        self._compacting: asyncio.Task[None] | None = None

    async def talk(self, session: JsonObject) -> None:
        await self._stoppable.run(self._talk(session), self._prompt.interrupt)

    async def _talk(self, session: JsonObject) -> None:
        try:
            await self._enter(session)
            while not self._is_over:
                await self._take(await self._inbox.next())
        finally:
            await self._previews.close()
            await self._prompt.close()
            await self._inbox.close()

    def _receive(self, item: Item) -> None:
        """Takes an item. A second Ctrl-C in a row leaves at once, even while the chat waits for the daemon."""
        now_s = time.monotonic()
        if isinstance(item, Interrupted):
            is_second = self._interrupted_at_s is not None and now_s - self._interrupted_at_s < LEAVE_WITHIN_S
            # A Ctrl-C that cleared a line was meant for that line.
            self._interrupted_at_s = None if item.is_line_cleared else now_s
            if is_second and not item.is_line_cleared:
                self._stoppable.stop()
        self._inbox.put(item)

    async def _enter(self, request: JsonObject) -> None:
        agent: JsonObject = {} if self._agent is None else {"agent": self._agent}
        session = await self._client.post("/sessions", {**request, **agent})
        await self._find_roots(session.get("agent"))
        self._prompt.open()
        self._session_id = str(session["id"])
        seq = session.get("seq")
        self._questions.clear()
        self._pins.enter()
        active = session.get("active_run_id")
        self._runs = [active] if isinstance(active, str) else []
        name = session.get("key") or session.get("label") or self._session_id
        self._prompt.line(self._style.dim(f"session {in_one_line(str(name), 60)} · /help lists the commands"))
        after = await self._show_history(session, seq if isinstance(seq, int) else 0)
        for approval in await self._pending():
            self._ask(question_of(approval, approval.get("arguments")))
        await self._inbox.follow(f"/sessions/{self._session_id}/events", after)
        self._settle()

    async def _find_roots(self, agent: object) -> None:
        """Finds the workspace whose paths are completed. On another machine than the daemon's there is none here."""
        try:
            items = (await self._client.get("/agents")).get("items")
        except PalyraError:
            items = None
        agents = [each for each in items if isinstance(each, dict)] if isinstance(items, list) else []
        roots = next((each.get("workspace") for each in agents if each.get("name") == agent), None)
        self._roots = tuple(Path(str(root)) for root in roots) if isinstance(roots, list) else ()

    async def _show_history(self, session: JsonObject, seq: int) -> int:
        """Shows the last messages, and returns the seq from which to follow.

        `seq` is the last event that changed the session's record. A run that is active has put more on the tape since.
        """
        earlier = await events_before(self._client, session, HISTORY_EVENTS - seq) if seq < HISTORY_EVENTS else []
        path = f"/sessions/{self._session_id}/tape"
        page = await self._client.items(path, TAPE_EVENTS_MAX, after=max(0, seq - HISTORY_EVENTS))
        for event in (*earlier, *page):
            if line := shown(said_line(event)):
                self._prompt.line(self._style.dim(line))
        for event in page:
            self._pins.note(event)
            if event.get("type") == "tool.proposed":
                # The transcript prints nothing for it, and knows the call's tool and arguments from now on.
                self._transcript.show(SseFrame(None, "tool.proposed", event))
        last = page[-1].get("seq") if page else None
        return last if isinstance(last, int) else seq

    async def _pending(self) -> list[JsonObject]:
        approvals = await self._client.items("/approvals", 100, status="pending")
        return [approval for approval in approvals if approval.get("session_id") == self._session_id]

    async def _take(self, item: Item) -> None:
        match item:
            case SseFrame():
                self._show(item)
            case Typed():
                await self._take_line(item)
            case Interrupted(is_line_cleared=is_line_cleared):
                if not is_line_cleared:
                    await self._interrupt()
            case InputEnded():
                self._is_over = True
            case Retrying(error=error):
                self._show_retrying(error)
            case Connected():
                self._show_connected()
            case StreamLost(error=error):
                raise error

    def _show(self, frame: SseFrame) -> None:
        if frame.event.get("session_id") != self._session_id:
            return
        run_id = str(frame.event.get("run_id"))
        if frame.type == "run.accepted":
            self._runs.append(run_id)
        self._settle()
        self._pins.note(frame.event)
        self._show_message(frame)
        if frame.data.get("approval_id") not in self._answered:
            self._transcript.show(frame)
        if frame.type == "approval.requested":
            asked = self._transcript.asked(frame.data)
            self._ask(with_full(question_of(asked, self._transcript.arguments(frame.data.get("call_id")))))
        elif frame.type == "approval.resolved":
            self._close(str(frame.data.get("approval_id")))
        elif frame.type in TERMINAL_TYPES:
            self._runs = [each for each in self._runs if each != run_id]
        self._settle()

    def _show_message(self, frame: SseFrame) -> None:
        """Shows what others said here; the user's own lines are on the screen already."""
        text = frame.data.get("text")
        if frame.type != "message.user" or not isinstance(text, str):
            return
        if text in self._own:
            self._own.remove(text)
        else:
            self._prompt.line(f"{self._style.cyan(shown(str(frame.event.get('actor'))))} › {shown(text)}")

    def _ask(self, question: CardQuestion) -> None:
        """Shows one card at a time: the answer is to the card above the prompt. Others are counted until then."""
        self._questions[question.approval_id] = question
        if len(self._questions) == 1:
            self._draw_card()
        else:
            self._prompt.line(self._style.dim(f"· {_more_wait(len(self._questions) - 1)}"))

    def _draw_card(self) -> None:
        question = next(iter(self._questions.values()), None)
        if question is None:
            return
        lines = card_lines(question, self._style)
        if len(self._questions) > 1:
            lines.append(self._style.dim(f"    {_more_wait(len(self._questions) - 1)}"))
        self._prompt.line("\n".join(lines))

    def _close(self, approval_id: str) -> None:
        """Clears a line typed for a question that somebody else answered, because it is no answer to the next one."""
        is_current = approval_id == next(iter(self._questions), None)
        closed = self._questions.pop(approval_id, None)
        if closed is not None and is_current and answer_of(closed, self._prompt.typed) is not None:
            self._prompt.replace("")
        if closed is not None and is_current:
            self._draw_card()

    def _settle(self) -> None:
        """Names the keys of the first open question in the prompt."""
        question = next(iter(self._questions.values()), None)
        hint = HINT_ASKED if question is not None else HINT_RUNNING if self._runs else ""
        self._prompt.ask(question, hint)

    async def _take_line(self, typed: Typed) -> None:
        try:
            await self._do(typed)
        except PalyraError as error:
            self._prompt.line(self._style.red(f"error: {shown(str(error))}"))
        self._settle()

    async def _do(self, typed: Typed) -> None:
        """Acts on a line. An answer counts only for the question that its writer saw."""
        is_pasted = typed.typed is not None
        answer = None if typed.question is None or is_pasted else answer_of(typed.question, typed.line)
        if typed.question is not None and answer is not None:
            await self._answer(typed.question, answer)
        elif typed.command:
            await self._command(typed.line)
        elif typed.question is not None and typed.question.approval_id in self._questions:
            await self._send_instead(typed.question, typed)
        else:
            await self._send(typed)

    async def _send_instead(self, question: CardQuestion, typed: Typed) -> None:
        """Text that is no answer supersedes the question, which denies its call. So it is confirmed first."""
        held, self._held = self._held, (question.approval_id, typed)
        is_confirmed = typed.typed is None and typed.line.strip().lower() == SEND_WORD
        if held is not None and held[0] == question.approval_id and is_confirmed:
            self._held = None
            await self._send(held[1])
            return
        is_pasted_answer = typed.typed is not None and answer_of(question, typed.line) is not None
        why = "a pasted answer does not count; type it" if is_pasted_answer else question.mistaken(typed.line)
        said = f"· {why}. {question.keys} answer it; {SEND_WORD} sends your text"
        self._prompt.line(self._style.yellow(f"{said} instead, and denies the call"))

    async def _answer(self, question: CardQuestion, body: JsonObject) -> None:
        if question.approval_id not in self._questions:
            self._prompt.line(self._style.dim("· that question is closed already"))
            return
        if body == FULL:
            self._prompt.line(shown(await read_full(self._client, question.approval_id)))
            self._read.add(question.approval_id)
            return
        if needs_reading(question, body, self._read):
            self._prompt.line(self._style.yellow(f"· {UNREAD}"))
            return
        try:
            record = await self._client.post(f"/approvals/{question.approval_id}", body)
        except Conflict as error:
            self._prompt.line(self._style.dim(shown(error.message)))
        else:
            self._answered.add(question.approval_id)
            self._prompt.line(self._style.dim(f"· {decided_text(body, record)}: {question.subject}"))
        if self._questions.pop(question.approval_id, None) is not None:
            self._draw_card()

    async def _send(self, typed: Typed) -> None:
        """Steers the active run, or starts one if none is active."""
        text = typed.line
        self._own = [*self._own, text][-100:]
        try:
            await self._steer_or_start(typed)
            self._previews.begin(text if typed.typed is None else typed.typed, self._session_id)
        except PalyraError as refused:
            if refused.code == "attachment_invalid":
                self._prompt.line(self._style.dim("· /attach without a file sends your message without attachments"))
            self._own.remove(text)
            if not self._prompt.typed:
                self._prompt.replace(text)
            raise

    async def _steer_or_start(self, typed: Typed) -> None:
        said: JsonObject = {"text": typed.line}
        if typed.typed is not None:
            said["typed"] = typed.typed
        if self._runs and not self._attached:
            try:
                await self._client.post(f"/runs/{self._runs[0]}/input", said)
                return
            except (Conflict, NotFound):
                pass  # The run ended at the same moment.
        key = f"chat-{secrets.token_hex(16)}"
        body: JsonObject = {"session_id": self._session_id, **said, "when_busy": "steer", "idempotency_key": key}
        await self._client.start_run({**body, "attachments": self._attached} if self._attached else body)
        self._attached = []

    async def _command(self, line: str) -> None:
        name = line.split()[0]
        argument = line.removeprefix(name).strip()
        match name:
            case "/help" | "/?":
                self._prompt.line(help_text())
            case "/attach":
                await self._attach(argument)
            case "/pin":
                await self._pins.pin(self._session_id, argument)
            case "/unpin":
                await self._pins.unpin(self._session_id, argument)
            case "/pins":
                await self._pins.show(self._session_id)
            case "/new":
                await self._enter({})
            case "/sessions":
                await self._list_sessions()
            case "/approvals":
                await self._list_approvals()
            case "/compact":
                self._compacting = asyncio.create_task(self._compact(), name="compaction")
            case "/cancel":
                await self._cancel()
            case "/quit" | "/exit":
                self._is_over = True
            case other:
                self._prompt.line(f"there is no {shown(other)}; /help lists the commands")

    async def _attach(self, name: str) -> None:
        if name:
            file = await asyncio.to_thread(read_file, Path(name))
            self._attached.append(await upload(self._client, file))
        else:
            self._attached = []
        names = ", ".join(in_one_line(str(each["name"]), 60) for each in self._attached) or "nothing"
        self._prompt.line(self._style.dim(f"· attached to your next message: {names}"))

    async def _compact(self) -> None:
        self._prompt.line(self._style.dim("· summarising the older part; you can go on meanwhile"))
        try:
            answer = await self._client.post(f"/sessions/{self._session_id}/compact", {}, COMPACT_TIMEOUT_S)
        except PalyraError as error:
            self._prompt.line(in_one_line(error.message, 200))
            return
        for line in compaction_lines(answer, self._style):
            self._prompt.line(line)

    async def _list_sessions(self) -> None:
        sessions = await self._client.items("/sessions", LOOKED_AT_MAX)
        newest_first = sorted(sessions, key=lambda each: str(each.get("updated_at_ms")), reverse=True)
        for session in newest_first[:SESSIONS_SHOWN]:
            name = in_one_line(str(session.get("key") or session.get("label") or "–"), 40)
            mark = "▸" if session.get("id") == self._session_id else " "
            self._prompt.line(f"{mark} {session.get('id')}  {date_time(session.get('updated_at_ms'))}  {name}")

    async def _list_approvals(self) -> None:
        approvals = await self._client.items("/approvals", 100, status="pending")
        for approval in approvals:
            question = question_of(approval, approval.get("arguments"))
            self._prompt.line(
                f"{question.approval_id}  {question.title}: {in_one_line(brief_arguments(question.calls[0]), 80)}"
            )
        if not approvals:
            self._prompt.line("nothing waits for an answer")

    async def _interrupt(self) -> None:
        if self._runs:
            await self._cancel()
        else:
            self._prompt.line(self._style.dim("press Ctrl-C again to leave"))

    async def _cancel(self) -> None:
        if not self._runs:
            self._prompt.line("nothing is running")
            return
        self._prompt.line(self._style.dim("· cancelling"))
        try:
            await self._client.post(f"/runs/{self._runs[0]}/cancel")
        except PalyraError as error:
            self._prompt.line(self._style.red(f"error: {shown(str(error))}"))

    def _show_connected(self) -> None:
        if self._is_apart:
            self._is_apart = False
            self._prompt.line(self._style.dim("· connected again"))

    def _show_retrying(self, error: PalyraError) -> None:
        if not self._is_apart:
            self._is_apart = True
            self._prompt.line(self._style.dim(f"· {shown(error.message)}; trying again"))


def _more_wait(count: int) -> str:
    return f"{count} more {'waits' if count == 1 else 'wait'} for an answer"
