"""The tool skill.open: gives a skill's text to the run that opens it, with the trust of the skill's place.

Does not own: skills' files (adapters.skills).
Reading one of its files opens the skill as well: the skill narrows the run, whichever page of it was read.
"""

import os
import posixpath
from functools import partial
from threading import Event

from palyra.adapters.tools.offload import offload
from palyra.core.argument_schemas import arguments_schema, text_schema
from palyra.core.errors import NotFound
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, Outcome, ParallelClass, Risk
from palyra.core.skills import SkillCard, SkillPlace, opened
from palyra.core.taint import label
from palyra.core.tools import CallNature, ToolResult, ToolSpec, Trait, failed
from palyra.core.trust import Trust, is_tainting
from palyra.ports.skills import Skills, SkillWish
from palyra.ports.tools import ToolCallContext

NAME = "skill.open"
NAME_LENGTH_MAX = 64
FILE_LENGTH_MAX = 512
FILES_SHOWN_MAX = 50
MANIFEST_NAME = "SKILL.md"

SPEC = ToolSpec(
    name=NAME,
    description=(
        "Opens a skill: gives you its instructions, to be followed till the run ends. From then on only the tools it allows "
        "can be used. With file it reads one of the files that the skill names."
    ),
    input_schema=arguments_schema(
        {
            "name": text_schema(NAME_LENGTH_MAX, "The skill's name."),
            "file": text_schema(
                FILE_LENGTH_MAX,
                "A file of the skill's folder, such as references/forms.md, instead of its instructions.",
            ),
        },
        ["name"],
    ),
    effect_class=EffectClass.READ_ONLY,
    parallel_class=ParallelClass.READ_ONLY_SAFE,
    risk=Risk.LOW,
    output_trust=Trust.SYSTEM,  # Refusals have this trust. A skill's text has the trust of its place.
    timeout_s=20.0,
    traits=frozenset({Trait.OPENS_SKILLS}),
)


class SkillOpen:
    spec = SPEC

    def __init__(self, skills: Skills) -> None:
        self._skills = skills

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        return CallNature(effect_class=EffectClass.READ_ONLY, parallel_class=ParallelClass.READ_ONLY_SAFE)

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        name, file = arguments.get("name"), arguments.get("file")
        if not isinstance(name, str) or not (file is None or isinstance(file, str)):
            return failed("arguments_invalid", "name is the name of a skill, and file a path in its folder")
        return await offload(partial(self._open, SkillWish(name=name, workspace=context.workspace), file))

    def _open(self, wish: SkillWish, file: str | None, stop: Event) -> ToolResult:
        try:
            found = self._skills.read(wish)
        except NotFound as missing:
            names = ", ".join(sorted(card.name for card in self._skills.offered(wish.workspace)))
            return failed(missing.code, f"There is no skill of that name. There are: {names or 'none'}.")
        card, text = found.card, found.text
        if not card.can_open:
            return _refusal(card)
        if file is not None and posixpath.normpath(file) != MANIFEST_NAME:
            found = self._skills.read_file(wish, posixpath.normpath(file))
            card, text = found.card, f"{file} of the skill {card.name}:\n\n{found.text}"
        else:
            text = f"{_head(card, wish.workspace)}\n\n{text}"
        # The folder is read again. It may have changed between the two readings, and with it who vouches for it.
        if not card.can_open:
            return _refusal(card)
        return ToolResult(
            outcome=Outcome.OK,
            output=text,
            trust=card.trust,
            source=label("skill", card.name) if is_tainting(card.trust) else None,
            skill=opened(card),
        )


def _head(card: SkillCard, workspace: tuple[str, ...]) -> str:
    lines = [f"The skill {card.name} is open till this run ends.{_left(card)}"]
    beside = [file for file in card.files if file.path != MANIFEST_NAME]
    if beside:
        listed = ", ".join(f"{file.path} ({file.bytes} bytes)" for file in beside[:FILES_SHOWN_MAX])
        more = f" and {len(beside) - FILES_SHOWN_MAX} more" if len(beside) > FILES_SHOWN_MAX else ""
        lines.append(f"Its files: {listed}{more}. Read one with {NAME}, giving its path as file.")
    if beside and card.place is SkillPlace.WORKSPACE:
        lines.append(f"They lie in the workspace, in {_folder(card, workspace)}.")
    return "\n".join(lines)


def _left(card: SkillCard) -> str:
    if card.allowed_tools is None:
        return " It narrows no tools."
    if not card.allowed_tools:
        return " It allows no tools."
    return f" Of your tools it leaves: {', '.join(card.allowed_tools)}."


def _folder(card: SkillCard, workspace: tuple[str, ...]) -> str:
    is_first = bool(workspace) and os.path.realpath(workspace[0]) == card.root
    return f"skills/{card.name}" if is_first else f"{card.root}/skills/{card.name}"


def _refusal(card: SkillCard) -> ToolResult:
    """Refuses a skill. Nothing of what a stranger's folder says gets into these words."""
    if card.problem is not None:
        why = "" if is_tainting(card.trust) else f": {card.problem}"
        return failed(
            "skill_broken", f"The skill {card.name} cannot be used{why}. An operator sees more with palyra skills show."
        )
    return failed(
        f"skill_{card.status.value}", f"The skill {card.name} is {card.status.value}. Only an operator can change that."
    )
