"""Procedures: sequences of tool calls that worked in several runs.

Owns: the general form of a sequence, how sure a repetition makes us, and the SKILL.md of a procedure.
Does not own: the files of skills (adapters.skills), whether one is used (a person, by accepting it).
The general form has tools, names of arguments and the program of a command, and no value: values are a session's own.
A skill lies in the home, where every agent and every person with a role can see it.
"""

import hashlib
import re

import msgspec

from palyra.core.learning.model import EVIDENCE_SEQS_MAX, CandidateKind
from palyra.core.learning.observed_run import ObservedRun, ToolStep
from palyra.core.learning.rules import Find
from palyra.core.trust import lowest

RUNS_MIN = 2  # A sequence is proposed once it worked in so many runs.
STEPS_MIN = 2
STEPS_MAX = 12
SEEN_ONCE_BPS = 5_000
SEEN_TWICE_BPS = 8_000
EACH_MORE_BPS = 250
# Below the threshold from which something is applied without a person: a skill is instructions.
SEEN_OFTEN_BPS = 9_400
ALLOWED_TOOLS = "allowed_tools"
MARK_LENGTH = 6  # With more, the name looks like a random token, and is redacted where it is written down.

_PROGRAM = re.compile(r"[A-Za-z][\w.-]{0,31}")
_TOOL = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_NAME = re.compile(r"[^a-z0-9]+")


class SkillDraft(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    text: str


def find_procedure(run: ObservedRun) -> Find | None:
    """Returns the procedure of a run in which every call worked, or None if it has none.

    Seen once it is only kept in mind. The confidence grows when the same form is found again (confidence_of).
    """
    general = _general_steps(run.steps)
    is_whole = run.is_done and all(step.is_ok for step in run.steps)
    if not is_whole or not STEPS_MIN <= len(general) <= STEPS_MAX or len(set(general)) < STEPS_MIN:
        return None
    if all(step.is_looking for step in run.steps):
        return None  # What only looks is no procedure.
    content = "\n".join(f"{number}. {step}" for number, step in enumerate(general, 1))
    tools = " ".join(sorted({step.tool for step in run.steps if _TOOL.fullmatch(step.tool)}))
    return Find(
        kind=CandidateKind.PROCEDURE,
        content=content,
        confidence_bps=SEEN_ONCE_BPS,
        seqs=tuple(step.seq for step in run.steps)[:EVIDENCE_SEQS_MAX],
        trust=lowest([run.trust, *(step.trust for step in run.steps)]),
        taint=run.taint,
        details={ALLOWED_TOOLS: tools},
    )


def confidence_of(runs_count: int) -> int:
    """Returns how sure we are of a procedure that worked in so many runs."""
    if runs_count < RUNS_MIN:
        return SEEN_ONCE_BPS
    return min(SEEN_OFTEN_BPS, SEEN_TWICE_BPS + EACH_MORE_BPS * (runs_count - RUNS_MIN))


def skill_of(content: str, tools: str) -> SkillDraft:
    """Returns the skill of a procedure. The same steps have the same name and the same bytes."""
    mark = hashlib.sha256(content.encode()).hexdigest()[:MARK_LENGTH]
    first = _NAME.sub("-", tools.split(" ")[-1].casefold()).strip("-")[:40].strip("-") if tools else ""
    name = f"learned-{first}-{mark}" if first else f"learned-{mark}"
    described = ", then ".join(_tool_of(line) for line in content.splitlines())[:800]
    allowed = f"allowed-tools: {tools}\n" if tools else ""
    text = (
        f"---\nname: {name}\ndescription: A procedure that worked before. Use it for a task of this kind. {_plain(described)}\n"
        f"{allowed}---\n# Procedure\n\n{content}\n\nAsk if a step does not fit the task.\n"
    )
    return SkillDraft(name=name, text=text)


def _general_steps(steps: tuple[ToolStep, ...]) -> tuple[str, ...]:
    """The same step several times in a row is one: how often depends on the task."""
    general: list[str] = []
    for step in steps:
        told = _general(step)
        if not general or general[-1] != told:
            general.append(told)
    return tuple(general)


def _general(step: ToolStep) -> str:
    names = sorted(name for name in step.arguments if _PROGRAM.fullmatch(name))
    command = step.arguments.get("command")
    program = command.split(maxsplit=1)[0] if isinstance(command, str) and command.strip() else ""
    if program and _PROGRAM.fullmatch(program):
        return f"Call `{step.tool}` with a command of `{program}`."
    given = ", ".join(f"`{name}`" for name in names)
    return f"Call `{step.tool}` with {given}." if given else f"Call `{step.tool}`."


def _tool_of(line: str) -> str:
    found = re.search(r"`([^`]+)`", line)
    return found[1] if found is not None else line


def _plain(text: str) -> str:
    """Returns a text that YAML reads as plain words."""
    return re.sub(r"[^\w .,-]", " ", text).strip()
