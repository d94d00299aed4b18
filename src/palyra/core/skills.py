"""Skills as the rules see them. Owns: how an opened skill narrows what a run may use. Not: their files (adapters.skills)."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from palyra.core.agents import AgentSpec, may_use
from palyra.core.events.tool import OpenedSkill

# Whatever a skill allows: what it is read with, and what pages through results too long to be shown.
ALWAYS_ALLOWED = frozenset({"skill.open", "artifact.read"})


def may_use_now(agent: AgentSpec, skills: Iterable[OpenedSkill], tool: str) -> bool:
    """Each opened skill narrows further; none can widen what the agent or another skill leaves."""
    return may_use(agent, tool) and narrowing_skill(skills, tool) is None


def narrowing_skill(skills: Iterable[OpenedSkill], tool: str) -> str | None:
    """The opened skill that leaves this tool out, if there is one."""
    if tool in ALWAYS_ALLOWED:
        return None
    for skill in skills:
        patterns = skill.allowed_tools
        if patterns is not None and not any(fnmatchcase(tool, pattern) for pattern in patterns):
            return skill.name
    return None
