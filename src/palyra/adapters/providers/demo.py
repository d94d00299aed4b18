"""The demo guide: a tour without a key that streams, calls real tools and asks for an approval.

Does not own: a model. Every answer says so.
The guide is a pure function of the conversation and keeps nothing. So after a restart, a branch or a cancel in the
middle, the tour continues where the tape stands. What it says of a tool is what the tool reported.
"""

import re
from collections.abc import AsyncGenerator, Callable

from msgspec.structs import replace

from palyra.adapters.providers.prepared_turns import (
    ConversationPoint,
    PreparedCall,
    PreparedFailure,
    Turn,
    find_standing,
    play,
)
from palyra.core.context.messages import ToolMessage
from palyra.core.events.model import ModelError, Usage
from palyra.core.events.tool import Outcome
from palyra.core.service_runs import SERVICES
from palyra.ports.provider import Delta, ModelRequest

LABEL = "This is Palyra's demo guide, not a language model."
FOLDER = "palyra-demo"
NOTE_PATH = f"{FOLDER}/hello.txt"
HOOK_PATH = f"{FOLDER}/.githooks/pre-commit"
ABSENT_PATH = f"{FOLDER}/there-is-no-such-file.txt"
PACE_MS = 12  # Between words: quick to read, visibly a stream.
SLOW_PACE_MS = 150
REPORT_LENGTH_MAX = 300
BLIND = "The guide cannot see the images you attached; a model with `vision = true` in `palyra.toml` can."

_NOTHING_SPENT = Usage(input_tokens=0, output_tokens=0)
_NOTE = "Hello from Palyra's demo guide.\nThis file was written by the tool fs.write, and the tape says so.\n"
_HOOK = "#!/bin/sh\n# Written by Palyra's demo guide after a person allowed it. It does nothing.\nexit 0\n"

_CHOICES = (
    "Try one of these words:\n"
    "- `tour`: the clock, writing a file, reading it back, and one call that needs your approval\n"
    "- `approval`: only the call that needs your approval\n"
    "- `slow`: an answer that streams slowly, so that you can cancel it\n"
    "- `fail`: a tool that fails, and what becomes of that\n"
    "- `help`: this list\n"
    "For real work, name a provider and a model in `palyra.toml` (docs/providers.md), and restart."
)


class DemoProvider:
    """`pace_ms` and `slow_pace_ms` are the pauses between words; tests set them to nothing."""

    def __init__(self, pace_ms: int = PACE_MS, slow_pace_ms: int = SLOW_PACE_MS) -> None:
        self._pace_ms = pace_ms
        self._slow_pace_ms = slow_pace_ms

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        scene = find_scene(find_standing(request.messages).asked)
        turn = next_turn(request)
        pace_ms = self._slow_pace_ms if scene == "slow" else self._pace_ms
        return play(
            Turn(text=turn.text, calls=turn.calls, failure=turn.failure, usage=_NOTHING_SPENT, delay_ms=pace_ms)
        )


def next_turn(request: ModelRequest) -> Turn:
    """Returns what the guide says and does next in this conversation."""
    if request.answer_schema is not None:
        message = "The demo guide is no language model and cannot answer in a given schema. Configure a provider."
        return Turn(failure=PreparedFailure(ModelError.BAD_REQUEST, message))
    if any(spec.instructions and spec.instructions in request.instructions for spec in SERVICES.values()):
        message = "The demo guide is no language model and cannot do the daemon's own work. Configure a provider."
        return Turn(failure=PreparedFailure(ModelError.BAD_REQUEST, message))
    standing = find_standing(request.messages)
    scene = find_scene(standing.asked)
    needed = _TOOLS_NEEDED.get(scene, frozenset())
    missing = sorted(needed - {spec.name for spec in request.tools})
    if missing:
        return _say(f"To show this I would need {', '.join(missing)}, which this agent may not use.")
    turn = _SCENES[scene](standing)
    is_blind = standing.has_images and standing.answered_count == 0
    return replace(turn, text=f"{turn.text}\n\n{BLIND}") if is_blind else turn


def find_scene(asked: str) -> str:
    """Returns the first word that names something the guide can show."""
    words = re.findall(r"[a-z]+", asked.lower()[:2000])
    return next((_WORDS[word] for word in words if word in _WORDS), "greeting")


def _greet(standing: ConversationPoint) -> Turn:
    return _say(
        f"It cannot understand free text; it shows what Palyra does with a model's answers, with real tools. {_CHOICES}"
    )


def _help(standing: ConversationPoint) -> Turn:
    return _say(_CHOICES)


def _tour(standing: ConversationPoint) -> Turn:
    match standing.answered_count:
        case 0:
            text = f"{LABEL} This is the tour; every step of it is recorded on this session's tape. First, the clock."
            return Turn(text=text, calls=(PreparedCall("time.now"),))
        case 1:
            text = f"The clock reported: {_report(standing, 0)}\n\nNext I write a small file into your workspace."
            return Turn(text=text, calls=(_write(NOTE_PATH, _NOTE),))
        case 2:
            text = f"Writing it reported: {_report(standing, 1)}\n\nNow I read it back."
            return Turn(text=text, calls=(PreparedCall("fs.read", {"path": NOTE_PATH}),))
        case 3:
            text = f"Reading it reported:\n\n{_report(standing, 2)}\n\n{_ASKING}"
            return Turn(text=text, calls=(_write(HOOK_PATH, _HOOK),))
        case _:
            return _say(f"{_what_became(standing, 3)}\n\nThat was the tour. {_NEXT_AFTER_TOUR}")


def _approval(standing: ConversationPoint) -> Turn:
    if standing.answered_count == 0:
        return Turn(text=f"{LABEL} {_ASKING}", calls=(_write(HOOK_PATH, _HOOK),))
    return _say(f"{_what_became(standing, 0)}\n\nTry next: `approval` again with the other answer, `fail`, or `tour`.")


def _slow(standing: ConversationPoint) -> Turn:
    counted = ", ".join(str(number) for number in range(1, 201))
    return _say(
        f"This answer streams slowly on purpose. Cancel it now: what has arrived by then is kept on the tape, and the run "
        f"ends as cancelled.\n\nCounting: {counted}.\n\nIt was not cancelled. Try next: `slow` again, then cancel; or `tour`."
    )


def _fail(standing: ConversationPoint) -> Turn:
    if standing.answered_count == 0:
        text = f"{LABEL} I read a file that does not exist, to show what becomes of a failure."
        return Turn(text=text, calls=(PreparedCall("fs.read", {"path": ABSENT_PATH}),))
    return _say(
        f"The tool reported: {_report(standing, 0)}\n\nA failure is a result like any other: it is recorded, the model is told, "
        "and the run goes on. Three equal failures in a row would bring a warning, then end the run.\n\n"
        "Try next: `approval`, `slow`, or `tour`."
    )


_SCENES: dict[str, Callable[[ConversationPoint], Turn]] = {
    "greeting": _greet,
    "help": _help,
    "tour": _tour,
    "approval": _approval,
    "slow": _slow,
    "fail": _fail,
}
_TOOLS_NEEDED = {
    "tour": frozenset({"time.now", "fs.write", "fs.read"}),
    "approval": frozenset({"fs.write"}),
    "fail": frozenset({"fs.read"}),
}
_WORDS = {
    "help": "help",
    "tour": "tour",
    "approval": "approval",
    "approvals": "approval",
    "approve": "approval",
    "slow": "slow",
    "slowly": "slow",
    "cancel": "slow",
    "fail": "fail",
    "fails": "fail",
    "failure": "fail",
}
_ASKING = (
    "Now something that needs your approval: a git hook, which git could run outside every sandbox. This one does "
    "nothing. The call waits until you answer it here or with `palyra approvals`; you may close everything "
    "and even restart the daemon meanwhile. Unanswered, it expires to a no."
)
_NEXT_AFTER_TOUR = (
    "In another terminal, `palyra runs show last` shows every step, and `palyra verify` checks the journal. "
    "Try next: `fail`, `slow` and cancel it, or `approval` with the other answer."
)


def _say(text: str) -> Turn:
    return Turn(text=f"{LABEL} {text}")


def _write(path: str, content: str) -> PreparedCall:
    return PreparedCall("fs.write", {"path": path, "content": content})


def _what_became(standing: ConversationPoint, index: int) -> str:
    result = _result(standing, index)
    if result is None:
        return "I do not see what became of that call."
    if result.is_error and result.text.startswith(Outcome.DENIED.value):
        return f"The call was refused, so it did not run and nothing was written. What came back: {_report(standing, index)}"
    if result.is_error:
        return f"The call did not succeed. What came back: {_report(standing, index)}"
    return f"It was allowed, ran, and reported: {_report(standing, index)}"


def _report(standing: ConversationPoint, index: int) -> str:
    result = _result(standing, index)
    if result is None:
        return "nothing I can see."
    text = result.text.strip()
    return text if len(text) <= REPORT_LENGTH_MAX else text[:REPORT_LENGTH_MAX] + " …"


def _result(standing: ConversationPoint, index: int) -> ToolMessage | None:
    return standing.results[index] if index < len(standing.results) else None
