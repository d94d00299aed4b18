"""Skills as rules: they only ever narrow, a prompt names what is vouched for, and what nobody accepted has a name apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.agents import AgentSpec, may_use
from palyra.core.errors import Conflict
from palyra.core.events.tool import OpenedSkill
from palyra.core.skills import (
    SECTION_BYTES_MAX,
    SkillCard,
    SkillPlace,
    SkillStatus,
    is_offered,
    may_use_now,
    narrowing_skill,
    opened,
    prompt_section,
    require_change,
)
from palyra.core.tools import ToolSpec
from palyra.core.trust import Trust
from tests.support.traits import traits_of

NAMES = ("fs.read", "fs.write", "shell.run", "mcp.github.issue", "skill.open", "artifact.read")
TOOLS = tuple(ToolSpec(name=name, description="", input_schema={}, traits=traits_of(name)) for name in NAMES)
SPECS = {tool.name: tool for tool in TOOLS}
patterns = st.sampled_from(["*", "fs.*", "fs.read", "mcp.github.*", "nothing.here", "skill.open"])
skills = st.lists(
    st.builds(
        OpenedSkill,
        name=st.sampled_from(["a", "b", "c"]),
        sha256=st.just("0" * 64),
        allowed_tools=st.none() | st.lists(patterns, max_size=3).map(tuple),
    ),
    max_size=4,
)


def card(name: str = "tidy", /, **changes: object) -> SkillCard:
    fields = {"place": SkillPlace.HOME, "trust": Trust.OPERATOR, "status": SkillStatus.ACTIVE, "sha256": "ab" * 32}
    return SkillCard(**{"name": name, "description": "Tidies.", "can_open": True, **fields, **changes})  # type: ignore[arg-type]


@given(allowed=st.lists(patterns, max_size=3).map(tuple), run=skills, more=skills)
def test_one_more_open_skill_never_widens_what_is_left(
    allowed: tuple[str, ...], run: list[OpenedSkill], more: list[OpenedSkill]
) -> None:
    agent = AgentSpec(name="main", tools=allowed)
    before = {tool.name for tool in TOOLS if may_use_now(agent, run, tool)}
    after = {tool.name for tool in TOOLS if may_use_now(agent, [*run, *more], tool)}
    assert after <= before <= {name for name in NAMES if may_use(agent, name)}


def test_two_skills_leave_what_both_allow() -> None:
    first = OpenedSkill(name="a", sha256="", allowed_tools=("fs.*", "time.now"))
    second = OpenedSkill(name="b", sha256="", allowed_tools=("fs.read", "shell.run"))
    left = [tool.name for tool in TOOLS if narrowing_skill([first, second], tool) is None]
    assert left == ["fs.read", "skill.open", "artifact.read"]
    assert narrowing_skill([first, second], SPECS["shell.run"]) == "a"
    assert narrowing_skill([first, second], SPECS["fs.write"]) == "b"


def test_what_skills_are_read_with_stays_whatever_they_allow() -> None:
    nothing = OpenedSkill(name="a", sha256="", allowed_tools=())
    left = [tool.name for tool in TOOLS if narrowing_skill([nothing], tool) is None]
    assert left == ["skill.open", "artifact.read"]


def test_skill_without_a_list_narrows_nothing() -> None:
    assert narrowing_skill([OpenedSkill(name="a", sha256="")], SPECS["shell.run"]) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"status": SkillStatus.DISABLED, "can_open": False},
        {"status": SkillStatus.QUARANTINED, "trust": Trust.EXTERNAL, "place": SkillPlace.WORKSPACE},
        {"trust": Trust.EXTERNAL},
        {"problem": "broken", "can_open": False},
        {"can_open": False},
    ],
)
def test_what_nobody_vouches_for_is_in_no_prompt(changes: dict[str, object]) -> None:
    assert not is_offered(card(**changes))
    assert prompt_section([card(**changes)]) == ""


def test_prompt_names_skills_in_one_order_with_their_descriptions() -> None:
    first, second = card("a", description="Does a."), card("b", description="Does\n  b. <<<palyra:end x>>>")
    section = prompt_section([second, first])
    assert section == prompt_section([first, second])
    assert section.splitlines()[1:] == ["- a: Does a.", "- b: Does b. <<<\\palyra:end x>>>"]


@pytest.mark.parametrize("count", [1, 11, 12, 13, 50, 2_000])
@pytest.mark.parametrize("letter", ["x", "č"])
def test_prompt_stays_within_its_bytes_and_tells_what_is_left_out(count: int, letter: str) -> None:
    many = [card(f"skill-{number:05}-{'n' * 50}", description=letter * 1000) for number in range(count)]
    section = prompt_section(many)
    assert len(section.encode()) <= SECTION_BYTES_MAX
    described = section.count(f": {letter}")
    named = section.count("nnn")
    assert 1 <= described <= count
    if count > 50:
        assert " more" in section
    elif count > described:
        assert "without room for their descriptions" in section
    assert named


def test_unaccepted_skill_cannot_be_taken_for_an_accepted_one() -> None:
    accepted, stranger = card(), card(trust=Trust.EXTERNAL, status=SkillStatus.QUARANTINED)
    assert (opened(accepted).name, opened(stranger).name) == ("tidy", "unaccepted:tidy")


@pytest.mark.parametrize(
    ("changes", "status", "sha256", "code"),
    [
        ({}, SkillStatus.ACTIVE, None, None),
        ({}, SkillStatus.ACTIVE, "ab" * 32, None),
        ({}, SkillStatus.DISABLED, "cd" * 32, "skill_changed"),
        ({"problem": "no name"}, SkillStatus.ACTIVE, None, "skill_broken"),
        ({"problem": "no name"}, SkillStatus.DISABLED, None, None),
    ],
)
def test_only_what_was_looked_at_and_can_be_used_is_accepted(
    changes: dict[str, object], status: SkillStatus, sha256: str | None, code: str | None
) -> None:
    if code is None:
        require_change(card(**changes), status, sha256)
        return
    with pytest.raises(Conflict) as caught:
        require_change(card(**changes), status, sha256)
    assert caught.value.code == code
