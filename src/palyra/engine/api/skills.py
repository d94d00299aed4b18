"""Skills of agents: showing them, and changing and recording their status.

Does not own: their files (adapters.skills), their place in a prompt (prompt_base), how an open one narrows a run
(core.skills).
"""

import asyncio
import fnmatch
from dataclasses import dataclass

import msgspec

from palyra.core.agents import AgentSpec
from palyra.core.events.system import AdminActed
from palyra.core.events.tool import OpenedSkill
from palyra.core.ids import Principal
from palyra.core.skills import SkillCard, SkillFile, SkillPlace, SkillStatus, opened, policy_name, require_change
from palyra.core.trust import Trust
from palyra.engine.agents import AgentDirectory
from palyra.engine.api.admin_log import AdminLog
from palyra.ports.skills import Skills, SkillWish
from palyra.ports.tools import Catalog

ACT = "skills.change"


class SkillQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Names a skill as an agent sees it; None is the default agent.

    Without a place, the skill in force by that name.
    """

    name: str
    agent: str | None = None
    place: SkillPlace | None = None


class SkillChange(msgspec.Struct, frozen=True, kw_only=True):
    """`sha256` is the hash of the skill that was looked at. If the skill differs now, nothing changes."""

    status: SkillStatus
    sha256: str | None = None


class SkillRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A skill as people see it.

    `unknown_tools` are names it allows that mean none of our tools. `missing_tools` are those the catalog lacks now.
    Both allow nothing. `body` is set only if one skill was asked for.
    """

    id: str
    name: str
    description: str
    place: SkillPlace
    root: str | None
    trust: Trust
    status: SkillStatus
    can_open: bool
    sha256: str
    allowed_tools: tuple[str, ...] | None
    unknown_tools: tuple[str, ...]
    missing_tools: tuple[str, ...]
    files: tuple[SkillFile, ...]
    problem: str | None
    notes: tuple[str, ...]
    body: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillService:
    skills: Skills
    catalog: Catalog
    agents: AgentDirectory
    acts: AdminLog

    async def list(self, agent: str | None) -> tuple[SkillRecord, ...]:
        workspace = self.agents.find(agent).workspace
        cards = await asyncio.to_thread(self.skills.cards, workspace)
        return tuple(self._record(card) for card in cards)

    async def get(self, query: SkillQuery) -> SkillRecord:
        found = await asyncio.to_thread(self.skills.read, self._wish(query))
        return self._record(found.card, found.text)

    async def change(self, principal: Principal, query: SkillQuery, change: SkillChange) -> SkillRecord:
        """Records the change before making it.

        Raises NotFound, or Conflict if the skill is broken or a different one.
        """
        found = (await asyncio.to_thread(self.skills.read, self._wish(query))).card
        wish = SkillWish(name=found.name, workspace=self.agents.find(query.agent).workspace, place=found.place)
        # The change is bound to the recorded hash. If the skill changes in between, nothing is done.
        sha256 = change.sha256 or found.sha256
        require_change(found, change.status, sha256)
        await self.acts.record(principal, _act(found, change.status, sha256))
        return self._record(await asyncio.to_thread(self.skills.mark, wish, change.status, sha256))

    def _wish(self, query: SkillQuery) -> SkillWish:
        return SkillWish(name=query.name, workspace=self.agents.find(query.agent).workspace, place=query.place)

    def _record(self, card: SkillCard, body: str | None = None) -> SkillRecord:
        tools = [spec.name for spec in self.catalog.specs()]
        return SkillRecord(
            id=f"{card.place.value}:{card.name}",
            name=card.name,
            description=card.description,
            place=card.place,
            root=card.root or None,
            trust=card.trust,
            status=card.status,
            can_open=card.can_open,
            sha256=card.sha256,
            allowed_tools=card.allowed_tools,
            unknown_tools=card.unknown_tools,
            missing_tools=tuple(each for each in card.allowed_tools or () if not fnmatch.filter(tools, each)),
            files=card.files,
            problem=card.problem,
            notes=card.notes,
            body=body,
        )


async def opened_skills(skills: Skills, agent: AgentSpec, names: tuple[str, ...]) -> tuple[OpenedSkill, ...]:
    """Returns the skills that opening these names would open. A name that cannot be opened narrows nothing."""
    if not names:
        return ()
    cards = await asyncio.to_thread(skills.cards, agent.workspace)
    return tuple(opened(card) for card in cards if card.can_open and policy_name(card) in names)


def _act(card: SkillCard, status: SkillStatus, sha256: str) -> AdminActed:
    where = card.root or card.place.value
    return AdminActed(action=ACT, target=card.name, detail=f"{status.value}, in {where}, sha256 {sha256}")
