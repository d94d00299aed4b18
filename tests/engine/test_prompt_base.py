"""Kits: the same object turn after turn, and another one as soon as anything it is made of changes."""

from palyra.core.agents import AgentSpec
from palyra.core.events.tool import OpenedSkill
from palyra.core.skills import SkillCard, SkillPlace, SkillStatus
from palyra.core.tools import MissingTool, ToolSpec
from palyra.core.trust import Trust
from palyra.engine.session.prompt_base import BASES_MAX, PromptBases
from palyra.ports.skills import NoSkills
from palyra.ports.tools import Tool
from tests.support.traits import traits_of

AGENT = AgentSpec(name="main", instructions="Be kind.")


def spec(name: str) -> ToolSpec:
    return ToolSpec(name=name, description=f"Does {name}.", input_schema={"type": "object"}, traits=traits_of(name))


class Shelf(NoSkills):
    def __init__(self) -> None:
        self.cards_now: tuple[SkillCard, ...] = ()
        self.asked_count = 0

    def offered(self, workspace: tuple[str, ...]) -> tuple[SkillCard, ...]:
        self.asked_count += 1
        return self.cards_now


class Tools:
    def __init__(self) -> None:
        self.now: tuple[ToolSpec, ...] = (spec("fs.read"), spec("fs.write"), spec("skill.open"))

    def specs(self) -> tuple[ToolSpec, ...]:
        return self.now

    def find(self, name: str) -> Tool | None:
        return None

    def missing(self) -> tuple[MissingTool, ...]:
        return ()


def card(name: str) -> SkillCard:
    return SkillCard(
        name=name,
        place=SkillPlace.HOME,
        trust=Trust.OPERATOR,
        status=SkillStatus.ACTIVE,
        description=f"Knows {name}.",
        can_open=True,
    )


def test_a_kit_stays_the_same_object_until_its_tools_change() -> None:
    tools, shelf = Tools(), Shelf()
    kits = PromptBases(tools, shelf)
    kit = kits.of(AGENT, ())
    assert [tool.name for tool in kit.tools] == ["fs.read", "fs.write", "skill.open"]
    assert kits.of(AGENT, ()) is kit
    tools.now = (spec("fs.read"),)
    assert [tool.name for tool in kits.of(AGENT, ()).tools] == ["fs.read"]
    assert len(kits.of(AGENT, ()).tools_text) < len(kit.tools_text)


def test_skills_that_come_are_named_and_those_that_go_are_not() -> None:
    tools, shelf = Tools(), Shelf()
    kits = PromptBases(tools, shelf)
    assert kits.of(AGENT, ()).instructions == "Be kind."
    shelf.cards_now = (card("knots"),)
    assert "knots: Knows knots." in kits.of(AGENT, ()).instructions
    shelf.cards_now = ()
    assert kits.of(AGENT, ()).instructions == "Be kind."


def test_an_agent_of_the_same_name_with_other_words_gets_its_own() -> None:
    kits = PromptBases(Tools(), Shelf())
    kits.of(AGENT, ())
    assert kits.of(AgentSpec(name="main", instructions="Be brief."), ()).instructions == "Be brief."


def test_an_agent_that_may_open_no_skill_is_told_of_none() -> None:
    tools, shelf = Tools(), Shelf()
    shelf.cards_now = (card("knots"),)
    kit = PromptBases(tools, shelf).of(AgentSpec(name="narrow", instructions="Read.", tools=("fs.*",)), ())
    assert (kit.instructions, shelf.asked_count) == ("Read.", 0)


def test_an_open_skill_narrows_its_run_alone() -> None:
    kits = PromptBases(Tools(), Shelf())
    narrowed = kits.of(AGENT, (OpenedSkill(name="reader", sha256="0" * 64, allowed_tools=("fs.read",)),))
    assert "fs.write" not in {tool.name for tool in narrowed.tools}
    assert "fs.write" in {tool.name for tool in kits.of(AGENT, ()).tools}


def test_kits_that_are_kept_are_bounded() -> None:
    kits = PromptBases(Tools(), Shelf())
    for number in range(BASES_MAX + 10):
        kits.of(AgentSpec(name=f"agent{number}"), ())
    assert len(kits._made) <= BASES_MAX
