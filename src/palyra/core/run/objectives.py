"""Objectives of a run: what its caller says the answer has to achieve.

Owns: their form, which of them can be checked without a model, and the words for those that are not met.
Does not own: checking them (engine.session.objective_check), asking a reviewer (core.review).
`file:PATH exists` and `tool:NAME succeeded` are checked without a model. Any other text is for a reviewer.
"""

import re
from collections.abc import Sequence

import msgspec

from palyra.core.errors import Invalid
from palyra.core.events.run import ObjectiveResult, ObjectiveState
from palyra.core.events.tool import Outcome

OBJECTIVES_MAX = 16  # A reviewer has to keep them apart, and the model has to keep them in mind.
OBJECTIVE_LENGTH_MAX = 1_000
NOTE_LENGTH_MAX = 400
OBJECTIVES_HEAD = "Your final answer counts only if each of these objectives is met:"

_FILE = re.compile(r"file:\s*(?P<path>\S(?:.*\S)?)\s+exists", re.DOTALL)
_TOOL = re.compile(r"tool:\s*(?P<tool>\S+)\s+succeeded")


class FileObjective(msgspec.Struct, frozen=True):
    path: str


class ToolObjective(msgspec.Struct, frozen=True):
    tool: str


class TextObjective(msgspec.Struct, frozen=True):
    text: str


Objective = FileObjective | ToolObjective | TextObjective


def parse_objective(text: str) -> Objective:
    """Reads one objective. A text that begins like a check and is none is refused: a reviewer cannot look at files."""
    said = text.strip()
    if not said or len(said) > OBJECTIVE_LENGTH_MAX:
        raise Invalid("objective_invalid", f"an objective has 1 to {OBJECTIVE_LENGTH_MAX} characters")
    if match := _FILE.fullmatch(said):
        return FileObjective(match["path"])
    if match := _TOOL.fullmatch(said):
        return ToolObjective(match["tool"])
    if said.startswith(("file:", "tool:")):
        message = f"{said[:80]!r} is no check; write `file:PATH exists`, `tool:NAME succeeded`, or plain text"
        raise Invalid("objective_invalid", message)
    return TextObjective(said)


def parse_objectives(texts: Sequence[str]) -> tuple[Objective, ...]:
    if len(texts) > OBJECTIVES_MAX:
        raise Invalid("objective_invalid", f"a run takes at most {OBJECTIVES_MAX} objectives, not {len(texts)}")
    return tuple(parse_objective(text) for text in texts)


def recorded_objectives(texts: Sequence[str]) -> tuple[Objective, ...]:
    """Reads objectives of a tape. Redaction may have changed one since it was accepted; it is plain text then."""
    return tuple(_recorded(text) for text in texts)


def check_tool(objective: ToolObjective, outcomes: Sequence[tuple[str, Outcome]]) -> ObjectiveResult:
    """Tells whether a call of the tool succeeded in this run."""
    if (objective.tool, Outcome.OK) in outcomes:
        return ObjectiveResult(state=ObjectiveState.MET)
    return unmet(f"No call of {objective.tool} succeeded in this run.")


def unmet(note: str) -> ObjectiveResult:
    return ObjectiveResult(state=ObjectiveState.UNMET, note=note[:NOTE_LENGTH_MAX])


def unchecked(note: str) -> ObjectiveResult:
    return ObjectiveResult(state=ObjectiveState.UNCHECKED, note=note[:NOTE_LENGTH_MAX])


def unmet_words(texts: Sequence[str], results: Sequence[ObjectiveResult], *, can_retell: bool) -> tuple[str, ...]:
    """Returns what the model is told of objectives that are not met.

    A reviewer's note is left out if text from outside may have shaped it (L8): the model would take it for ours.
    """
    return tuple(
        f'The objective "{text}" is not met. {result.note if can_retell or not result.is_reviewed else ""}'.rstrip()
        for text, result in zip(texts, results, strict=False)
        if result.state is ObjectiveState.UNMET
    )


def tell_objectives(texts: Sequence[str]) -> str:
    """Returns the objectives as a model is told them with its instructions."""
    return "\n".join((OBJECTIVES_HEAD, *(f"{number}. {text}" for number, text in enumerate(texts, 1))))


def _recorded(text: str) -> Objective:
    try:
        return parse_objective(text)
    except Invalid:
        return TextObjective(text)
