"""Turns the frames of a run into text for a person, as the run happens.

Owns: the answer as it streams, and tools with status and duration.
Invariant: live text is shown once, whatever happens to the connection. Each piece has its offset, and text that was
shown before is left out.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from palyra.cli.sse import SseFrame
from palyra.cli.terminal.draft_text import DraftNotes
from palyra.cli.terminal.draft_waits import DraftWaits
from palyra.cli.terminal.live_output import LiveOutput
from palyra.cli.terminal.questions import brief_arguments
from palyra.cli.terminal.style import Style, duration, in_one_line, last_lines, prose, shown
from palyra.core.channels.replies import learned_text
from palyra.core.ids import EffectId, RunId, derive_child_ids

TERMINAL_TYPES = ("run.done", "run.failed", "run.cancelled")
_LINE_MAX = 160
_FAILURE_MAX = 2_000  # A failure is told whole: its end says what to do.
FAILED_LINES_MAX = 10  # The end of what a failed call printed says why it failed.
DELEGATE = "agent.delegate "


class TextSink(Protocol):
    """Receives a transcript: text in pieces, and whole lines."""

    def text(self, text: str) -> None: ...

    def end_line(self) -> None:
        """Ends a text, and starts a new line unless the last one is empty."""

    def line(self, line: str) -> None: ...


class Transcript:
    """`has_preview` is true where references were told before the run already."""

    def __init__(self, sink: TextSink, style: Style, *, has_preview: bool = False) -> None:
        self._sink = sink
        self._style = style
        self._shown_counts: dict[object, int] = {}
        self._tools: dict[object, str] = {}
        self._arguments: dict[object, object] = {}
        self._starts: dict[object, int] = {}
        self._tokens_count = 0
        self._cost_usd: float | None = 0.0
        self._is_estimate = False
        self._began_at_ms = 0
        self._failure_told = ""
        self._live = LiveOutput(lambda line: self._sink.line(self._style.dim(f"    {line}")))
        self._drafts = DraftNotes()
        self._waits = DraftWaits()
        self.has_delegated = False
        self._show_by_type: dict[str, Callable[[SseFrame], None]] = {
            "run.started": self._begin,
            "model.delta": self._stream,
            "model.output": self._complete,
            "model.failed": self._fail_model,
            "tool.delta": self._print_live,
            "guard.tripped": self._warn("no progress:", "guidance"),
            "tool.proposed": self._propose,
            "tool.judged": self._judge,
            "tool.started": self._start,
            "tool.drafted": lambda frame: self._drafts.seal(frame.data),
            "draft.judged": lambda frame: self._drafts.judge(frame.data),
            "draft.applying": lambda frame: self._drafts.leave_out(frame.data),
            "tool.finished": self._finish,
            "tool.uncertain": self._doubt,
            "objectives.checked": self._check,
            "answer.rejected": self._reject,
            "approval.resolved": self._resolve,
            "usage.recorded": self._count,
            "progress": self._progress,
            "learning.applied": self._learn,
        }
        if not has_preview:
            self._show_by_type["reference.resolved"] = self._refer

    def show(self, frame: SseFrame) -> None:
        show = self._end if frame.type in TERMINAL_TYPES else self._show_by_type.get(frame.type)
        self._waits.take(frame.type, frame.data, frame.at_ms)
        if show is not None:
            show(frame)

    def _learn(self, frame: SseFrame) -> None:
        told = learned_text(str(frame.data.get("content") or ""), str(frame.data.get("candidate_id") or ""))
        self._sink.line(self._style.dim(f"· {shown(told)}"))

    def arguments(self, call_id: object) -> object:
        return self._arguments.get(call_id)

    def asked(self, data: Mapping[str, object]) -> Mapping[str, object]:
        """Returns a question with the arguments of its calls, if known."""
        calls = data.get("calls")
        named = calls if isinstance(calls, list) else []
        return {**data, "calls": [{"call_id": each, "arguments": self._arguments.get(each)} for each in named]}

    def _begin(self, frame: SseFrame) -> None:
        self._tokens_count, self._cost_usd, self._began_at_ms = 0, 0.0, frame.at_ms
        self._is_estimate = False
        self._failure_told = ""

    def _fail_model(self, frame: SseFrame) -> None:
        self._failure_told = str(frame.data.get("message") or "")
        self._mark(self._style.yellow("!"), "the model failed:", self._failure_told, _FAILURE_MAX)

    def _print_live(self, frame: SseFrame) -> None:
        self._live.take(*(frame.data.get(name) for name in ("call_id", "stream", "offset", "text")))

    def _stream(self, frame: SseFrame) -> None:
        text, offset = frame.data.get("text"), frame.data.get("offset")
        if isinstance(text, str):
            self._tell(frame.data.get("turn"), text, offset if isinstance(offset, int) else None)

    def _complete(self, frame: SseFrame) -> None:
        text = frame.data.get("text")
        if isinstance(text, str) and text:
            self._tell(frame.data.get("turn"), text, 0)
            self._sink.end_line()

    def _tell(self, turn: object, text: str, offset: int | None) -> None:
        """Shows only text beyond what was shown of this turn. A gap is closed when the whole text arrives."""
        told_count = self._shown_counts.get(turn, 0)
        start = told_count if offset is None else offset
        new = text[max(0, told_count - start) :]
        if start <= told_count and new:
            if not told_count:
                self._sink.end_line()
            self._shown_counts[turn] = told_count + len(new)
            self._sink.text(prose(new))

    def _refer(self, frame: SseFrame) -> None:
        if frame.data.get("ok") is not True:
            self._mark(self._style.yellow("!"), shown(str(frame.data.get("raw"))), str(frame.data.get("warning") or ""))

    def _propose(self, frame: SseFrame) -> None:
        call_id, arguments = frame.data.get("call_id"), frame.data.get("arguments")
        said = f"{frame.data.get('tool')} {brief_arguments(arguments)}"
        self._arguments[call_id] = arguments
        self._tools[call_id] = in_one_line(said, _LINE_MAX)

    def _judge(self, frame: SseFrame) -> None:
        if frame.data.get("verdict") == "deny":
            reason = f"{frame.data.get('rule')}: {frame.data.get('reason')}"
            self._mark(self._style.red("✗"), self._tool(frame), f"denied by {reason}")

    def _start(self, frame: SseFrame) -> None:
        self._starts[frame.data.get("call_id")] = frame.at_ms
        self.has_delegated = self.has_delegated or self._tool(frame).startswith(DELEGATE)
        self._mark(self._style.cyan("▸"), self._tool(frame), "")

    def _finish(self, frame: SseFrame) -> None:
        call_id, outcome, error = (frame.data.get(name) for name in ("call_id", "outcome", "error"))
        name = self._name_of_ended(frame)
        if call_id not in self._starts and outcome == "denied":
            return  # Its verdict was shown already, and it never ran.
        waited_ms = self._waits.of(call_id)
        took = duration(frame.at_ms - self._starts.pop(call_id) - waited_ms) if call_id in self._starts else ""
        is_shown = self._live.end(call_id)
        printed, changed = self._drafts.end(frame.data)
        if outcome == "ok":
            self._mark(self._style.green("✓"), name, took)
        else:
            message = f": {error.get('message')}" if isinstance(error, dict) else ""
            self._mark(self._style.red("✗"), name, f"{outcome}{message} {took}".rstrip())
            for line in () if is_shown else last_lines(printed, FAILED_LINES_MAX):
                self._sink.line(self._style.dim(f"    {line}"))
        for line in changed:
            self._sink.line(self._style.dim(f"    {line}"))

    def _name_of_ended(self, frame: SseFrame) -> str:
        """Returns the tool's name. Several delegations end in any order, so each ends with its task and its run."""
        said = self._tool(frame)
        run_id, effect_id = frame.event.get("run_id"), frame.data.get("effect_id")
        if not said.startswith(DELEGATE) or not isinstance(run_id, str) or not isinstance(effect_id, str):
            return said.partition(" ")[0]
        _, child_id = derive_child_ids(RunId(run_id), EffectId(effect_id))
        return f"{said} {self._style.dim(child_id)}"

    def _doubt(self, frame: SseFrame) -> None:
        self._mark(self._style.yellow("?"), self._tool(frame), "was started, and nobody knows whether it happened")

    def _check(self, frame: SseFrame) -> None:
        """Warns of objectives that nobody could check. Those that are not met are told with the answer's rejection."""
        results = frame.data.get("results")
        for number, result in enumerate(results if isinstance(results, list) else (), 1):
            if isinstance(result, dict) and result.get("state") == "unchecked":
                self._mark(
                    self._style.yellow("!"), f"objective {number} was not checked:", str(result.get("note") or "")
                )

    def _reject(self, frame: SseFrame) -> None:
        problems = frame.data.get("problems")
        self._mark(self._style.yellow("!"), "the answer is not complete:", "; ".join(map(str, problems or ())))  # type: ignore[call-overload]

    def _resolve(self, frame: SseFrame) -> None:
        reason = f": {frame.data['reason']}" if frame.data.get("reason") else ""
        said = f"{frame.data.get('status')} by {frame.data.get('decided_by')}{reason}"
        self._mark(self._style.dim("·"), in_one_line(said, _LINE_MAX), "")

    def _progress(self, frame: SseFrame) -> None:
        said = str(frame.data.get("message") or frame.data.get("phase") or "")
        self._mark(self._style.dim("·"), in_one_line(said, _LINE_MAX), "")

    def _count(self, frame: SseFrame) -> None:
        counts = [frame.data.get(name) for name in ("input_tokens", "output_tokens")]
        self._tokens_count += sum(count for count in counts if isinstance(count, int))
        self._is_estimate = self._is_estimate or frame.data.get("is_estimate") is True
        cost = frame.data.get("cost_usd")
        known = self._cost_usd is not None and isinstance(cost, int | float)
        self._cost_usd = self._cost_usd + cost if known else None  # type: ignore[operator]

    def _end(self, frame: SseFrame) -> None:
        for known in (
            self._shown_counts,
            self._tools,
            self._arguments,
            self._starts,
            self._live,
            self._drafts,
            self._waits,
        ):
            known.clear()
        took = [duration(frame.at_ms - self._began_at_ms)] if self._began_at_ms else []
        about = "~" if self._is_estimate else ""
        tokens = [f"{about}{self._tokens_count} tokens"] if self._tokens_count else []
        cost = [f"{about}${self._cost_usd:.4f}"] if self._cost_usd else []
        facts = " · ".join([*took, *tokens, *cost])
        if frame.type == "run.done":
            self._mark(self._style.dim("·"), self._style.dim(f"done {facts}".rstrip()), "")
        else:
            state, reason = frame.type.removeprefix("run."), str(frame.data.get("reason"))
            what = in_one_line(state if reason == state else f"{state}: {reason}", _LINE_MAX)
            message = str(frame.data.get("message") or "")
            # What the model's failure said stands right above.
            told = "" if self._failure_told and message == self._failure_told else message
            text = " · ".join(filter(None, (told, facts)))
            self._mark(self._style.red("✗"), f"{what}:" if told else what, text, _FAILURE_MAX)

    def _warn(self, what: str, member: str) -> Callable[[SseFrame], None]:
        def warn(frame: SseFrame) -> None:
            self._mark(self._style.yellow("!"), what, str(frame.data.get(member) or ""))

        return warn

    def _tool(self, frame: SseFrame) -> str:
        return self._tools.get(frame.data.get("call_id"), "tool")

    def _mark(self, mark: str, what: str, detail: str, length_max: int = _LINE_MAX) -> None:
        tail = f" {self._style.dim(in_one_line(detail, length_max))}" if detail else ""
        self._sink.line(f"{mark} {what}{tail}")
