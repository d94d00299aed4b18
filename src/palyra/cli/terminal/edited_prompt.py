"""A prompt with line editing, on prompt_toolkit.

Owns: what Enter, Ctrl-C, Ctrl-D and a paste do to the line, and printing above it while somebody types.
Does not own: editing, keys, drawing, the terminal's mode (prompt_toolkit), what a line means (conversation, run_view).
Invariants: streaming text is drawn at most every DRAW_EVERY_S, however small its pieces are. Lines are broken between
words (word_wrap). A line is printed above the prompt once it is complete. Until then it is drawn as a part of the
prompt.
"""

import asyncio
import os
import select
import sys
from collections.abc import Iterable
from typing import TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, get_common_complete_suffix
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, emacs_insert_mode, has_focus
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.history import History
from prompt_toolkit.input.posix_utils import PosixStdinReader
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout.processors import TabsProcessor
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.utils import get_cwidth

from palyra.cli.terminal.inbox import InputEnded, Interrupted, Put, Typed
from palyra.cli.terminal.pasted import PastedMarks
from palyra.cli.terminal.questions import CardQuestion, answer_of, label_of
from palyra.cli.terminal.reference_words import is_reference_typed
from palyra.cli.terminal.style import Style, shown
from palyra.cli.terminal.word_wrap import WordWrap, wrap_lines

DRAW_EVERY_S = 0.04  # Twenty-five times a second looks like streaming.
PASTE_LENGTH_MAX = 1_000_000  # The daemon refuses longer text.
ROWS_DEFAULT, COLUMNS_DEFAULT = 24, 80


class EditedPrompt:
    def __init__(
        self, put: Put, out: TextIO, style: Style, history: History | None = None, completer: Completer | None = None
    ) -> None:
        self._put = put
        self._out = out
        self._style = style
        self._pending = ""  # Text that is not drawn yet.
        self._tail = ""  # Text that is drawn and not a complete line yet.
        self._drawing: asyncio.TimerHandle | None = None
        self._drawn_at_s = 0.0
        self._question: CardQuestion | None = None
        self._hint = ""
        self._marks = PastedMarks()
        self._is_pasting = False
        self._is_key = False  # True while one typed character is put into the line.
        self._offered = OfferedCompletions(completer) if completer is not None else None
        self._session = self._make_session(history, self._offered)
        self._session.default_buffer.on_text_changed += self._follow_change
        self._words = WordWrap(self._columns)
        self._task: asyncio.Task[None] | None = None
        self._is_gone = False  # True once the terminal is closed; then nothing is printed.

    def open(self) -> None:
        """Starts reading keys. Keys left unread by an earlier prompt are dropped."""
        if self._task is not None:
            return
        clear_typeahead(self._session.app.input)
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is None:
            return
        if not self._session.app.is_running:
            task.cancel()  # The prompt has not begun, or has ended by itself.
        elif not self._session.app.is_done:
            self._session.app.exit()
        await asyncio.wait([task])
        self._end_line()
        self._draw()

    def ask(self, question: CardQuestion | None, hint: str) -> None:
        self._question, self._hint = question, hint
        self._session.app.invalidate()

    @property
    def typed(self) -> str:
        return self._session.default_buffer.text

    def replace(self, text: str) -> None:
        self._session.default_buffer.text = text
        self._session.default_buffer.cursor_position = len(text)

    def interrupt(self) -> None:
        is_line_cleared = bool(self.typed)
        self._session.default_buffer.reset()
        self._marks.clear()
        self._put(Interrupted(is_line_cleared))

    def text(self, text: str) -> None:
        self._pending += self._words.add(text)
        self._schedule()

    def end_line(self) -> None:
        self._pending += self._words.end()
        self._end_line()
        self._schedule()

    def line(self, line: str) -> None:
        self._end_line()
        self._pending += wrap_lines(line, self._columns()) + "\n"
        self._schedule()

    def _columns(self) -> int:
        return self._session.app.output.get_size().columns

    def _end_line(self) -> None:
        self._pending += self._words.end_line()
        if not (self._pending or self._tail or "\n").endswith("\n"):
            self._pending += "\n"

    def _schedule(self) -> None:
        """Schedules drawing. Text that comes after a pause is drawn at once."""
        if not self._session.app.is_running:
            self._draw()
        elif self._drawing is None:
            loop = asyncio.get_running_loop()
            self._drawing = loop.call_at(max(loop.time(), self._drawn_at_s + DRAW_EVERY_S), self._draw)

    def _draw(self) -> None:
        """Prints complete lines above the prompt; the rest is drawn as a part of the prompt."""
        if self._drawing is not None:
            self._drawing.cancel()
            self._drawing = None
        whole, end, rest = (self._tail + self._pending).rpartition("\n")
        self._pending = ""
        app = self._session.app
        if self._is_gone:
            return
        if not app.is_running:
            self._out.write((whole + end + rest).removeprefix(self._tail))
            self._out.flush()
            self._tail = rest
            return
        self._drawn_at_s = asyncio.get_running_loop().time()
        size = app.output.get_size()
        if len(rows := rows_of(rest, size.columns)) > (rows_max := max(3, size.rows // 2)):
            head = "".join(rows[:rows_max])
            head = head[: head.rfind(" ") + 1] or head
            whole, end, rest = f"{whole}{end}{head}", "\n", rest.removeprefix(head)
        self._tail = rest
        if end:
            app.renderer.erase()
            app.output.write_raw(whole + end)
            app.output.flush()
        app.invalidate()

    async def _run(self) -> None:
        """Runs the prompt. Unfinished text from before stays where it is; unfinished text at the end is printed."""
        if self._tail:
            self._end_line()
            self._draw()
        try:
            await self._session.app.run_async(handle_sigint=False, set_exception_handler=False)
        except (EOFError, OSError):
            self._is_gone = True
            self._put(InputEnded())
        finally:
            self._pending, self._tail = self._tail + self._pending, ""

    def _make_session(self, history: History | None, completer: Completer | None) -> PromptSession[None]:
        return PromptSession(
            self._message,
            multiline=True,
            history=history,
            completer=completer,
            complete_while_typing=Condition(self._offers_completions),
            prompt_continuation=lambda width, number, is_soft: "" if is_soft else " " * width,
            placeholder=lambda: ANSI(self._style.dim(self._hint)),
            key_bindings=self._bindings(),
            input_processors=[TabsProcessor(char1=" ", char2=" ")],
            enable_suspend=True,
            erase_when_done=True,
            include_default_pygments_style=False,
            input=_input(),
            output=_output(self._out),
        )

    def _offers_completions(self) -> bool:
        before = self._session.default_buffer.document.text_before_cursor
        return self.typed.startswith("/") or is_reference_typed(before)

    def _message(self) -> StyleAndTextTuples:
        rows = rows_of(self._tail + self._words.held, self._columns())
        above: StyleAndTextTuples = [("", f"{row.expandtabs()}\n") for row in rows]
        return above + to_formatted_text(ANSI(self._label))

    @property
    def _label(self) -> str:
        return self._style.cyan(label_of(self._question))

    def _bindings(self) -> KeyBindings:
        bindings = KeyBindings()
        is_line = has_focus(DEFAULT_BUFFER)  # False in the history search.
        bindings.add(Keys.Enter, filter=is_line)(self._press_enter)
        bindings.add(Keys.Escape, Keys.Enter, filter=is_line)(lambda event: event.current_buffer.insert_text("\n"))
        bindings.add(Keys.Tab, filter=is_line)(_complete)
        bindings.add(Keys.BracketedPaste, filter=is_line)(self._paste)
        bindings.add(Keys.Any, filter=is_line & emacs_insert_mode, save_before=_begins_undo)(self._type)
        bindings.add(Keys.ControlC, filter=is_line)(lambda event: self.interrupt())
        is_empty = Condition(lambda: not get_app().current_buffer.text)
        bindings.add(Keys.ControlD, filter=is_line & is_empty)(lambda event: self._put(InputEnded()))
        return bindings

    def _press_enter(self, event: KeyPressEvent) -> None:
        """Takes the marked completion, adds a line after a backslash, or sends what was typed."""
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None
        elif buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        elif line := buffer.text.strip():
            typed, head = self._marks.typed(), self._marks.head()
            is_answer = self._question is not None and answer_of(self._question, line) is not None
            self.line(f"{self._label}{self._style.bold(shown(line))}")
            # A line of the history is taken for typed when it comes back. So one with a paste is left out.
            buffer.reset(append_to_history=not is_answer and typed is None)
            self._marks.clear()
            self._put(Typed(line, self._question, typed, head))
        else:
            buffer.reset()
            self._marks.clear()

    def _follow_change(self, buffer: Buffer) -> None:
        is_offered = self._offered is not None and self._offered.begins_with(buffer.document.text_before_cursor)
        is_known = not self._is_pasting and (is_offered or buffer.text in buffer.history.get_strings())
        self._marks.change(
            buffer.text, buffer.cursor_position, is_paste=self._is_pasting, is_known=is_known, is_key=self._is_key
        )

    def _type(self, event: KeyPressEvent) -> None:
        """Inserts a character as prompt_toolkit does. A key is told apart from an undo that brings the same text."""
        self._is_key = True
        try:
            event.current_buffer.insert_text(event.data * event.arg)
        finally:
            self._is_key = False

    def _paste(self, event: KeyPressEvent) -> None:
        """Inserts pasted text with its line ends and tabs, marked as pasted.

        Other invisible characters are dropped, or they would be sent unseen.
        """
        lines = event.data[:PASTE_LENGTH_MAX].replace("\r\n", "\n").replace("\r", "\n")
        self._is_pasting = True
        try:
            event.current_buffer.insert_text("".join(each for each in lines if each.isprintable() or each in "\n\t"))
        finally:
            self._is_pasting = False


class OfferedCompletions(Completer):
    """Remembers what was offered last: what a person chooses of it was typed by them."""

    def __init__(self, completer: Completer) -> None:
        self._completer = completer
        self._lines: set[str] = set()

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        self._lines.clear()
        before = document.text_before_cursor
        for each in self._completer.get_completions(document, complete_event):
            self._lines.add(before[: len(before) + each.start_position] + each.text)
            yield each

    def begins_with(self, before: str) -> bool:
        return bool(before) and any(line.startswith(before) for line in self._lines)


def rows_of(text: str, columns: int) -> list[str]:
    """Returns the text in rows, as a terminal of this width breaks it."""
    rows = [""] if text else []
    width = 0
    for character in text:
        character_width = 8 - width % 8 if character == "\t" else get_cwidth(character)
        if width + character_width > columns:
            rows.append("")
            width = 0
        rows[-1] += character
        width += character_width
    return rows


def _begins_undo(event: KeyPressEvent) -> bool:
    """Tells whether an undo goes back to before this key: characters typed in a row are one step."""
    return not event.is_repeat


def _complete(event: KeyPressEvent) -> None:
    """Completes as far as only one completion is possible, else shows the menu.

    prompt_toolkit itself would lose a Tab that arrives together with text.
    """
    buffer = event.current_buffer
    if buffer.complete_state is not None:
        buffer.complete_next()
        return
    asked = CompleteEvent(completion_requested=True)
    found = list(buffer.completer.get_completions(buffer.document, asked))
    if suffix := get_common_complete_suffix(buffer.document, found):
        buffer.insert_text(suffix)
    elif found:
        buffer.start_completion()


class _TerminalReader(PosixStdinReader):
    """Notices a closed terminal. Without a SIGHUP, prompt_toolkit would read from it for ever."""

    def read(self, count: int = 1024) -> str:
        data = super().read(count)
        if not data:
            poll = select.poll()
            poll.register(self.stdin_fd, 0)
            self.closed = self.closed or bool(poll.poll(0))
        return data


def _input() -> Vt100Input:
    terminal = Vt100Input(sys.stdin)
    terminal.stdin_reader = _TerminalReader(sys.stdin.fileno(), encoding=terminal.stdin.encoding)
    return terminal


def _output(out: TextIO) -> Vt100_Output:
    """Never asks the terminal for its cursor position: the answer arrives as keys, and some terminals send none."""

    def size() -> Size:
        try:
            columns, rows = os.get_terminal_size(out.fileno())
        except OSError:
            columns, rows = 0, 0
        return Size(rows=rows or ROWS_DEFAULT, columns=columns or COLUMNS_DEFAULT)

    return Vt100_Output(out, size, term=os.environ.get("TERM"), enable_cpr=False)
