"""A timeline: recorded events in words, one line each, with times. Does not own: live text (transcript)."""

import shutil
from collections.abc import Callable, Sequence
from typing import TextIO

import msgspec

from palyra.cli.terminal.draft_text import draft_applying_text, draft_conflicted_text, draft_judged_text, drafted_text
from palyra.cli.terminal.draft_waits import DraftWaits
from palyra.cli.terminal.questions import brief_arguments
from palyra.cli.terminal.style import Style, clock_time, duration, in_one_line, last_lines
from palyra.cli.terminal.word_wrap import wrap
from palyra.core.events.base import JsonObject
from palyra.core.plurals import counted

TEXT_LENGTH_MAX = 160
OUTPUT_LINES_MAX = 20
_MARGIN = " " * 32
_NAME_WIDTH = 18
_COLUMNS_MIN = 60  # Narrower than that, the terminal wraps the lines itself.

Words = Callable[[JsonObject], str]


def timeline(events: Sequence[JsonObject], style: Style, columns: int | None = None) -> list[str]:
    """Returns each event with its time of day, the time since the event before, and its seq.

    With `columns`, as on a terminal, no line is wider: words go on under the event's name.
    """
    lines = []
    before_ms: int | None = None
    waits = DraftWaits()
    for recorded in events:
        event = _without_wait(recorded, waits)
        at_ms = event.get("at_ms")
        # An event may carry the time at which its command began, or a clock was set back.
        gap = duration(max(0, at_ms - before_ms)) if isinstance(at_ms, int) and before_ms is not None else ""
        before_ms = at_ms if isinstance(at_ms, int) else before_ms
        name = str(event.get("type")).ljust(_NAME_WIDTH)
        said = f"{clock_time(at_ms)} {gap:>9} {event.get('seq')!s:>5}  {name}  {describe(event)}".rstrip()
        first, *rest = [said] if columns is None else wrap(said, max(columns, _COLUMNS_MIN), _MARGIN)
        lines += [first.replace(name, _painted(name, event, style), 1), *rest]
        told = _output_lines(event)
        room = None if columns is None else max(columns, _COLUMNS_MIN) - len(_MARGIN)
        lines += [style.dim(f"{_MARGIN}{line if room is None else in_one_line(line, room)}") for line in told]
    return lines


def _without_wait(event: JsonObject, waits: DraftWaits) -> JsonObject:
    """Returns the event; the end of a call with a beginning that leaves out how long a person took to answer."""
    data, at_ms = event.get("data"), event.get("at_ms")
    if not isinstance(data, dict) or not isinstance(at_ms, int):
        return event
    waits.take(event.get("type"), data, at_ms)
    attestation, waited_ms = data.get("attestation"), waits.of(data.get("call_id"))
    started = attestation.get("started_at_ms") if isinstance(attestation, dict) else None
    if not isinstance(attestation, dict) or not isinstance(started, int) or not waited_ms:
        return event
    return {**event, "data": {**data, "attestation": {**attestation, "started_at_ms": started + waited_ms}}}


def terminal_columns(stream: TextIO) -> int | None:
    """Returns the width of the terminal that the stream is, or None: a pipe takes lines of any length."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def _output_lines(event: JsonObject) -> list[str]:
    """Returns the end of what a tool printed, if that is more than the event's own line shows."""
    data = event.get("data")
    output = data.get("output") if isinstance(data, dict) and event.get("type") == "tool.finished" else None
    lines = last_lines(output, OUTPUT_LINES_MAX)
    is_told = len(lines) < 2 and not (isinstance(data, dict) and data.get("error"))
    return [] if is_told else lines


def describe(event: JsonObject) -> str:
    """Returns what the event says, in one line."""
    data = event.get("data")
    if not isinstance(data, dict):
        return ""
    if "erased" in data:
        return f"erased: {in_one_line(str(data['erased']), TEXT_LENGTH_MAX)}"
    words = _WORDS.get(str(event.get("type")))
    return in_one_line(words(data) if words else _members(data), TEXT_LENGTH_MAX)


def _painted(padded: str, event: JsonObject, style: Style) -> str:
    data = event.get("data")
    verdict = str(data.get("verdict") or data.get("outcome") or "") if isinstance(data, dict) else ""
    name = padded.rstrip()
    if name in ("run.failed", "run.cancelled", "model.failed") or verdict in ("deny", "failed", "denied", "timeout"):
        return style.red(padded)
    if name.startswith("approval.") or name in ("tool.uncertain", "guard.tripped", "answer.rejected"):
        return style.yellow(padded)
    return style.green(padded) if name == "run.done" else style.cyan(padded)


def _members(data: JsonObject) -> str:
    return msgspec.json.encode(data).decode() if data else ""


def _of_text(data: JsonObject) -> str:
    return str(data.get("text", ""))


def _of_accepted(data: JsonObject) -> str:
    return f"agent {data.get('agent')}, from {data.get('origin')}{'' if data.get('can_ask') else ', nobody to ask'}"


def _of_route(data: JsonObject) -> str:
    reserved = data.get("reserved")
    cost = reserved.get("cost_usd") if isinstance(reserved, dict) else None
    most = f", at most ${cost:.6f}" if isinstance(cost, int | float) else ""
    candidates = data.get("candidates")
    offered = candidates if isinstance(candidates, list) else []
    passed = [each for each in offered if isinstance(each, dict) and each.get("reasons")]
    past = "".join(f"; not {each.get('model')} ({', '.join(map(str, each['reasons']))})" for each in passed)
    mode = "" if data.get("mode") == "enforced" else f" ({data.get('mode')})"
    chosen = data.get("chosen") or "no model"
    return f"turn {data.get('turn')}: {chosen}{mode}, budget {data.get('budget')}{most}{past} {data.get('message', '')}"


def _of_context(data: JsonObject) -> str:
    layers = data.get("layers")
    taint = data.get("taint")
    seen = f", has seen {', '.join(map(str, taint))}" if isinstance(taint, list) and taint else ""
    layers_count = len(layers) if isinstance(layers, list) else 0
    budget = data.get("budget_tokens")
    room = f" of {budget}" if budget else ""
    return (
        f"turn {data.get('turn')}: {counted(layers_count, 'layer')}, {data.get('input_tokens') or 0}{room} tokens{seen}"
    )


def _of_output(data: JsonObject) -> str:
    calls = data.get("tool_calls")
    names = [str(call.get("tool")) for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    wants = f"wants {', '.join(names)}; " if names else ""
    return f"turn {data.get('turn')}, {data.get('finish')}: {wants}{data.get('text', '')}"


def _of_usage(data: JsonObject) -> str:
    cost = data.get("cost_usd")
    price = f"${cost:.6f}" if isinstance(cost, int | float) else "price unknown"
    tokens = f"{data.get('input_tokens')} in, {data.get('output_tokens')} out, {data.get('cached_tokens', 0)} cached"
    return f"{data.get('model')}: {tokens}, {price}{' (estimated)' if data.get('is_estimate') else ''}"


def _of_proposed(data: JsonObject) -> str:
    return f"{data.get('call_id')} {data.get('tool')} {brief_arguments(data.get('arguments'))}"


def _of_judged(data: JsonObject) -> str:
    return f"{data.get('call_id')} {data.get('verdict')} by {data.get('rule')}: {data.get('reason')}"


def _of_started(data: JsonObject) -> str:
    attempt = data.get("attempt", 1)
    return f"{data.get('call_id')}{f' (attempt {attempt})' if attempt != 1 else ''}"


def _of_finished(data: JsonObject) -> str:
    error, attestation = data.get("error"), data.get("attestation")
    said = f"{error.get('code')}: {error.get('message')}" if isinstance(error, dict) else data.get("output", "")
    took = ""
    if isinstance(attestation, dict):
        times = attestation.get("finished_at_ms"), attestation.get("started_at_ms")
        took = f" in {duration(times[0] - times[1])}" if isinstance(times[0], int) and isinstance(times[1], int) else ""
    return f"{data.get('call_id')} {data.get('outcome')}{took} {said or data.get('artifact_id') or ''}"


def _of_requested(data: JsonObject) -> str:
    return f"{data.get('approval_id')} {data.get('kind')}: {data.get('tool') or ''} {data.get('preview') or ''}"


def _of_resolved(data: JsonObject) -> str:
    scope = data.get("scope", "once")
    reason = f": {data['reason']}" if data.get("reason") else ""
    return f"{data.get('approval_id')} {data.get('status')} ({scope}) by {data.get('decided_by')}{reason}"


def _of_objectives(data: JsonObject) -> str:
    results = data.get("results")
    told = [each for each in results if isinstance(each, dict)] if isinstance(results, list) else []
    words = [f"{number} {each.get('state')} {each.get('note') or ''}".rstrip() for number, each in enumerate(told, 1)]
    return f"turn {data.get('turn')}: {'; '.join(words)}"


def _of_recalled(data: JsonObject) -> str:
    items = data.get("items")
    told = [str(each.get("content")) for each in items if isinstance(each, dict)] if isinstance(items, list) else []
    return f"turn {data.get('turn')}: {'; '.join(told) or ('timed out' if data.get('timed_out') else 'nothing fits')}"


def _of_document(data: JsonObject) -> str:
    return f"{data.get('path')}, {data.get('chars')} characters, trust {data.get('trust')}"


def _of_model(data: JsonObject) -> str:
    return f"turn {data.get('turn')}: {data.get('model')}"


def _of_waiting(data: JsonObject) -> str:
    ids = data.get("approval_ids") or data.get("call_ids")
    return f"for {', '.join(map(str, ids))}" if isinstance(ids, list) else _members(data)


def _of_resumed(data: JsonObject) -> str:
    return f"after {data.get('cause')}"


def _of_end(data: JsonObject) -> str:
    return f"{data.get('reason')}: {data['message']}" if data.get("message") else str(data.get("reason"))


_WORDS: dict[str, Words] = {
    "run.accepted": _of_accepted,
    "run.done": _of_end,
    "run.failed": _of_end,
    "run.cancelled": _of_end,
    "run.waiting": _of_waiting,
    "run.resumed": _of_resumed,
    "memory.recalled": _of_recalled,
    "document.read": _of_document,
    "model.requested": _of_model,
    "message.user": _of_text,
    "message.assistant": _of_text,
    "route.planned": _of_route,
    "context.assembled": _of_context,
    "model.output": _of_output,
    "usage.recorded": _of_usage,
    "tool.proposed": _of_proposed,
    "tool.judged": _of_judged,
    "tool.started": _of_started,
    "tool.drafted": drafted_text,
    "draft.judged": draft_judged_text,
    "draft.applying": draft_applying_text,
    "draft.conflicted": draft_conflicted_text,
    "tool.finished": _of_finished,
    "objectives.checked": _of_objectives,
    "approval.requested": _of_requested,
    "approval.resolved": _of_resolved,
}
