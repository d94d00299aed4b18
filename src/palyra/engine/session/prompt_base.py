"""The stable beginning of every prompt of an agent: its instructions and its tools.

Owns: assembling it once, and keeping it until a part of it changes. A provider's adapter can then reuse its own form of
the same tools. Does not own: who may use what (core.agents, core.skills).
"""

import msgspec

from palyra.core.agents import AgentSpec, may_use
from palyra.core.delegation import narrowing_ancestor
from palyra.core.events.run import Ancestor
from palyra.core.events.tool import OpenedSkill
from palyra.core.skills import SkillCard, may_use_now, prompt_section
from palyra.core.taint import MANY, Taint, find_source
from palyra.core.tools import ToolSpec, Trait
from palyra.ports.skills import Skills
from palyra.ports.tools import Catalog

BASES_MAX = 256


class PromptBase(msgspec.Struct, frozen=True, kw_only=True):
    """`tools` is the identical tuple while nothing changes; `tools_text` is about what of a prompt they take.

    `sources` are those of descriptions that nobody has accepted.
    """

    tools: tuple[ToolSpec, ...]
    instructions: str
    tools_text: str
    sources: tuple[str, ...] = ()


class _Made(msgspec.Struct, frozen=True):
    agent: AgentSpec
    catalog: tuple[ToolSpec, ...]
    opens_skills: bool
    offered: tuple[SkillCard, ...]
    base: PromptBase


_Key = tuple[str, tuple[OpenedSkill, ...], tuple[tuple[str, ...], ...]]


class PromptBases:
    def __init__(self, catalog: Catalog, skills: Skills) -> None:
        self._catalog = catalog
        self._skills = skills
        self._made: dict[_Key, _Made] = {}

    def of(self, agent: AgentSpec, skills: tuple[OpenedSkill, ...], lineage: tuple[Ancestor, ...] = ()) -> PromptBase:
        """Returns the base for a run of this agent with these skills open, below the runs of this lineage.

        The catalog and the skills return the identical object until they change.
        """
        catalog = self._catalog.specs()
        key = (agent.name, skills, tuple(ancestor.tools for ancestor in lineage))
        made = self._made.get(key)
        if made is not None and (made.agent is not agent or made.catalog is not catalog):
            made = None
        opens_skills = made.opens_skills if made is not None else _can_open(agent, catalog)
        offered = self._skills.offered(agent.workspace) if opens_skills else ()
        if made is None or made.offered is not offered:
            base = _make(agent, skills, _left(catalog, lineage), offered)
            made = _Made(agent, catalog, opens_skills, offered, base)
            if len(self._made) >= BASES_MAX:
                self._made.clear()
            self._made[key] = made
        return made.base


def tools_for(base: PromptBase, taint: Taint) -> tuple[ToolSpec, ...]:
    """Returns the tools that a model may read about in a session with this taint.

    A description that nobody accepted is left out while its source is not in the taint: a server may have listed it
    after the context was assembled, so the calls that it leads to would be judged without it (L8).
    """
    if not base.sources or find_source(taint, MANY) is not None:
        return base.tools
    met = {"", *(each.source for each in taint)}
    if met.issuperset(base.sources):
        return base.tools
    return tuple(spec for spec in base.tools if spec.described_by in met)


def _can_open(agent: AgentSpec, catalog: tuple[ToolSpec, ...]) -> bool:
    return any(Trait.OPENS_SKILLS in spec.traits and may_use(agent, spec.name) for spec in catalog)


def _left(catalog: tuple[ToolSpec, ...], lineage: tuple[Ancestor, ...]) -> tuple[ToolSpec, ...]:
    """Returns the tools that every run above may use."""
    if not lineage:
        return catalog
    return tuple(spec for spec in catalog if narrowing_ancestor(lineage, spec) is None)


def _make(
    agent: AgentSpec, skills: tuple[OpenedSkill, ...], catalog: tuple[ToolSpec, ...], offered: tuple[SkillCard, ...]
) -> PromptBase:
    tools = tuple(spec for spec in catalog if may_use_now(agent, skills, spec))
    instructions = _instructions(agent, tools, offered)
    sources = tuple(sorted({spec.described_by for spec in tools if spec.described_by}))
    tools_text = "\n".join(map(text_of, tools))
    return PromptBase(tools=tools, instructions=instructions, tools_text=tools_text, sources=sources)


def _instructions(agent: AgentSpec, tools: tuple[ToolSpec, ...], offered: tuple[SkillCard, ...]) -> str:
    """Returns the agent's own instructions, then the skills it may open. The bytes stay the same until those change."""
    if not any(Trait.OPENS_SKILLS in spec.traits for spec in tools):
        return agent.instructions
    section = prompt_section(offered)
    return f"{agent.instructions}\n\n{section}" if section else agent.instructions


def text_of(spec: ToolSpec) -> str:
    return f"{spec.name} {spec.description} {msgspec.json.encode(spec.input_schema).decode()}"
