"""Draws the card of a question for a terminal of any width.

Does not own: what is asked (questions), colours (style).
Invariants: no line is wider than the terminal. Everything left out is counted. Text of a call reaches the terminal only
in a harmless form.
"""

import shutil
import time
from collections.abc import Mapping, Sequence

import msgspec

from palyra.cli.terminal.questions import CardQuestion, arguments_text, brief_arguments, seen_text, text_of
from palyra.cli.terminal.style import Style, clock_time, in_one_line, shown
from palyra.cli.terminal.word_wrap import wrap
from palyra.core.spelling import spell_out

PREVIEW_LINES_MAX = 12
CALLS_SHOWN_MAX = 6
TOUCHED_SHOWN_MAX = 6
ARGUMENT_LENGTH_MAX = 400
WIDTH_MIN = 20
RISK_DEFAULT = "medium"  # An event leaves out a member that has its default.
_INDENT = "    "
_LABEL_CELLS = 9


def card_lines(question: CardQuestion, style: Style, width: int | None = None, now_ms: int | None = None) -> list[str]:
    """Returns the card's lines. `width` and `now_ms` default to the terminal's width and the clock."""
    columns = max(WIDTH_MIN, shutil.get_terminal_size().columns if width is None else width)
    moment_ms = int(time.time() * 1000) if now_ms is None else now_ms
    lines = [style.yellow(line) for line in wrap(f"? {question.title}", columns, "  ")]
    lines += [style.dim(line) for line in _calls(question, columns)]
    lines += _preview(question, style, columns)
    for label, said in _facts(question.record, moment_ms):
        lines += [style.dim(line) for line in _labelled(label, said, columns)]
    width = max((len(choice.shown_key) for choice in question.choices), default=0)
    for choice in question.choices:
        indent = f"{_INDENT}{' ' * width}  "
        first, *rest = wrap(f"{_INDENT}{choice.shown_key:<{width}}  {choice.text}", columns, indent)
        lines += [first.replace(choice.shown_key, style.bold(choice.shown_key), 1), *rest]
    return lines


def _calls(question: CardQuestion, columns: int) -> list[str]:
    """Shows the one call, or each different call as far as there is room."""
    said = [line for each in _untold(question) if (line := _call_line(question.record, each))]
    distinct = list(dict.fromkeys(said))
    lines = [line for each in distinct[:CALLS_SHOWN_MAX] for line in wrap(_INDENT + each, columns, f"{_INDENT}  ")]
    rest_count = len(distinct) - CALLS_SHOWN_MAX
    if rest_count > 0:
        lines += wrap(f"{_INDENT}… and {rest_count} more; see palyra approvals show", columns, _INDENT)
    return lines


def _untold(question: CardQuestion) -> tuple[object, ...]:
    """Returns the arguments that the preview does not show: for one shown command, its other arguments."""
    preview = question.record.get("preview")
    match question.calls:
        case ({"command": str(command), **rest},) if isinstance(preview, str) and _is_shown(command, preview):
            return (msgspec.json.encode(rest).decode(),) if rest else ()
        case _:
            return question.calls


def _is_shown(command: str, preview: str) -> bool:
    """Tells whether the preview shows the command, marked as shell.run marks it, up to the preview's limit."""
    lines = shown(preview).split("\n")
    start = next((place for place, line in enumerate(lines[:PREVIEW_LINES_MAX]) if line.startswith("$ ")), None)
    if start is None:
        return False
    is_of_draft = start == 0  # There the command is one line, and the difference follows.
    said = lines[0][2:] if is_of_draft else "\n".join(line[2:] for line in lines[start:])
    told = spell_out(command) if is_of_draft else shown(command)
    return said == told or (said.endswith("…") and told.startswith(said[:-1]))


def _call_line(record: Mapping[str, object], arguments: object) -> str:
    has_preview = bool(record.get("preview"))
    said = brief_arguments(arguments) if has_preview else arguments_text(arguments)
    return in_one_line(said, ARGUMENT_LENGTH_MAX)


def _preview(question: CardQuestion, style: Style, columns: int) -> list[str]:
    preview = question.record.get("preview")
    lines = [line for line in shown(preview).splitlines() if line] if isinstance(preview, str) else []
    # A single line more takes no more room than the words that it is missing.
    shown_count = len(lines) if len(lines) == PREVIEW_LINES_MAX + 1 else PREVIEW_LINES_MAX
    drawn: list[str] = []
    for line in lines[:shown_count]:
        paint = {"+": style.green, "-": style.red}.get(line[0], style.dim)
        drawn += [paint(piece) for piece in wrap(_INDENT + line, columns, f"{_INDENT}  ")]
    rest_count = len(lines) - shown_count
    if rest_count > 0:
        said = f"{_INDENT}… {rest_count} more lines; see palyra approvals show"
        drawn += [style.dim(line) for line in wrap(said, columns, _INDENT)]
    return drawn


def _facts(record: Mapping[str, object], now_ms: int) -> list[tuple[str, str]]:
    facts = [("touches", touched_text(record.get("touches"))), ("why", why_text(record))]
    facts += [("risk", text_of(record.get("risk")) or RISK_DEFAULT), ("has seen", seen_text(record))]
    facts += [("waits", _waits(record, now_ms))]
    return [(label, said) for label, said in facts if said]


def touched_text(touches: object) -> str:
    if not isinstance(touches, Mapping):
        return ""
    parts: list[str] = []
    for kind in ("paths", "hosts", "commands"):
        found = touches.get(kind)
        names = [in_one_line(str(each), 80) for each in found] if isinstance(found, Sequence) else []
        rest_count = len(names) - TOUCHED_SHOWN_MAX
        parts += names[:TOUCHED_SHOWN_MAX] + ([f"{rest_count} more {kind}"] if rest_count > 0 else [])
    return ", ".join(parts)


def why_text(record: Mapping[str, object]) -> str:
    """Returns the deciding policy's sentence and its name."""
    policies = record.get("policies")
    named = [str(each) for each in policies] if isinstance(policies, Sequence) else []
    name = in_one_line(", ".join(named) or text_of(record.get("rule")), 120)
    reason = in_one_line(text_of(record.get("reason")), 300)
    return f"{reason} ({name})" if reason and name else reason or name


def _waits(record: Mapping[str, object], now_ms: int) -> str:
    expires_at_ms = record.get("expires_at_ms")
    if not isinstance(expires_at_ms, int):
        return ""
    left_s = -((now_ms - expires_at_ms) // 1000)  # Rounded up: a question that was just asked has all its time.
    return "its time is over" if left_s <= 0 else f"{rough(left_s)}, till {clock_time(expires_at_ms)[:8]}"


def rough(seconds: int) -> str:
    for unit_s, unit in ((86_400, "days"), (3600, "hours"), (60, "min")):
        if seconds >= 2 * unit_s:
            return f"{seconds // unit_s} {unit}"
    return f"{seconds} s"


def _labelled(label: str, said: str, columns: int) -> list[str]:
    """Puts label and text beside each other if there is room for both."""
    margin = _INDENT + " " * _LABEL_CELLS
    if columns < 60:
        return wrap(f"{_INDENT}{label}: {said}", columns, f"{_INDENT}  ")
    return wrap(f"{_INDENT}{label.ljust(_LABEL_CELLS)}{said}", columns, margin)
