"""Skills as the rules see them: whether one may be opened, how it narrows a run, and what a prompt says of it.

Does not own: the files of skills (adapters.skills).
Invariants: nothing a skill says can widen what its run may use. A skill that nobody accepted is never in a prompt. The
tape and the policies know it under a name that no accepted skill can have.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from fnmatch import fnmatchcase

import msgspec

from palyra.core.agents import AgentSpec, may_use
from palyra.core.errors import Conflict
from palyra.core.events.tool import OpenedSkill
from palyra.core.fences import neutralise
from palyra.core.tools import ToolSpec, Trait
from palyra.core.trust import Trust, is_tainting

# These tools stay whatever a skill allows: one opens skills, the other pages through long results.
ALWAYS_ALLOWED = frozenset({Trait.OPENS_SKILLS, Trait.PAGES_RESULTS})
SECTION_BYTES_MAX = 16 * 1024  # About 4,000 tokens in every request; some fifty skills with a sentence or two each.
NAMES_BYTES_MAX = 4 * 1024  # The part kept for the names of skills whose descriptions no longer fit.

_HEAD = (
    "Skills are written procedures for certain tasks. When one fits the task, open it with skill.open before you begin and "
    "follow it. While it is open only the tools it allows can be used, till the run ends."
)


class SkillPlace(Enum):
    """Where a skill lies. Among skills of the same name the home's wins, then the bundled one, then the workspace's."""

    HOME = "home"
    BUNDLED = "bundled"
    WORKSPACE = "workspace"


class SkillStatus(Enum):
    ACTIVE = "active"
    QUARANTINED = "quarantined"
    DISABLED = "disabled"


class SkillFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a skill's folder; `path` is below that folder."""

    path: str
    bytes: int


class SkillCard(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a skill without opening it.

    `root` is the workspace it lies in. `sha256` covers its whole folder, names and bytes. `allowed_tools` None narrows
    nothing. `unknown_tools` are names in it that match no tool and so allow none. `problem` says why the skill cannot
    be used. `can_open` is false if there is a problem, if another skill of the same name hides it, or if a person
    disabled it.
    """

    name: str
    place: SkillPlace
    trust: Trust
    status: SkillStatus
    description: str = ""
    root: str = ""
    sha256: str = ""
    allowed_tools: tuple[str, ...] | None = None
    unknown_tools: tuple[str, ...] = ()
    files: tuple[SkillFile, ...] = ()
    problem: str | None = None
    notes: tuple[str, ...] = ()
    can_open: bool = False


def is_offered(card: SkillCard) -> bool:
    """Tells whether a prompt names the skill. A skill that nobody vouches for is not mentioned to a model."""
    return card.can_open and card.status is SkillStatus.ACTIVE and not is_tainting(card.trust)


def opened(card: SkillCard) -> OpenedSkill:
    return OpenedSkill(name=policy_name(card), sha256=card.sha256, allowed_tools=card.allowed_tools)


def policy_name(card: SkillCard) -> str:
    """Returns the name that policies see.

    A policy that permits a skill by name means one that a person put there or accepted, not any skill of that name.
    """
    return f"unaccepted:{card.name}" if is_tainting(card.trust) else card.name


def require_change(card: SkillCard, status: SkillStatus, sha256: str | None) -> None:
    """Raises Conflict if the skill cannot be used, or has changed since the person looked at it."""
    if card.problem is not None and status is SkillStatus.ACTIVE:
        raise Conflict("skill_broken", f"the skill {card.name} cannot be used: {card.problem}", is_retryable=False)
    if sha256 is not None and sha256 != card.sha256:
        message = f"the skill {card.name} is not the one you looked at any more; look at it again, then decide"
        raise Conflict("skill_changed", message, is_retryable=False)


def may_use_now(agent: AgentSpec, skills: Iterable[OpenedSkill], spec: ToolSpec) -> bool:
    """Tells whether every opened skill leaves the tool in.

    No skill can widen what the agent or another skill leaves.
    """
    return may_use(agent, spec.name) and narrowing_skill(skills, spec) is None


def narrowing_skill(skills: Iterable[OpenedSkill], spec: ToolSpec) -> str | None:
    """Returns the opened skill that leaves this tool out, if there is one."""
    if spec.traits & ALWAYS_ALLOWED:
        return None
    for skill in skills:
        patterns = skill.allowed_tools
        if patterns is not None and not any(fnmatchcase(spec.name, pattern) for pattern in patterns):
            return skill.name
    return None


def prompt_section(cards: Sequence[SkillCard]) -> str:
    """Returns names and descriptions for a prompt: the same bytes for the same skills, and nothing for none."""
    offered = sorted((card for card in cards if is_offered(card)), key=lambda card: card.name)
    if not offered:
        return ""
    lines = [_HEAD]
    left = SECTION_BYTES_MAX - NAMES_BYTES_MAX
    hidden: list[str] = []
    for card in offered:
        line = f"- {card.name}: {neutralise(' '.join(card.description.split()))}"
        left -= len(line.encode()) + 1
        if left >= 0:
            lines.append(line)
        else:
            hidden.append(card.name)
            left = 0  # From here on only names are shown, so that one long text does not decide the rest.
    return "\n".join([*lines, *_by_name(hidden)])


def _by_name(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    shown: list[str] = []
    left = NAMES_BYTES_MAX - 200  # Leaves room for the words around the names.
    for name in names:
        left -= len(name) + 2
        if left < 0:
            break
        shown.append(name)
    rest = len(names) - len(shown)
    more = f", and {rest} more" if rest else ""
    return [f"- without room for their descriptions: {', '.join(shown)}{more}"]
