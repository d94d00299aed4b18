"""Skills through the engine: the prompt names them, an open one narrows the run until its end, also after a restart."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from palyra.adapters.providers.prepared_turns import Turn
from palyra.adapters.providers.scripted import Script, ScriptedProvider
from palyra.adapters.skills.skill_index import FolderSkills
from palyra.adapters.tools.skill_open import SkillOpen
from palyra.core.agents import AgentSpec
from palyra.core.context.messages import ToolMessage
from palyra.core.errors import Conflict, Invalid, NotFound
from palyra.core.events import Event
from palyra.core.events.model import RoutePlanned
from palyra.core.events.system import AdminActed
from palyra.core.events.tool import ToolFinished, ToolJudged
from palyra.core.skills import SkillPlace, SkillStatus
from palyra.core.trust import Trust
from palyra.engine.api.policy_explainer import ExplainRequest
from palyra.engine.api.requests import RunRecord
from palyra.engine.api.skills import SkillChange, SkillQuery
from palyra.engine.engine import Engine
from palyra.ports.provider import Delta, ModelRequest
from palyra.ports.skills import SkillWish
from tests.support.asking import ask, calls, finished, says
from tests.support.engines import OWNER, Workshop
from tests.support.policies import with_policies
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

READER = "---\nname: reader\ndescription: Reads only.\nallowed-tools: fs.read\n---\nOnly read.\n"
WRITER = "---\nname: writer\ndescription: Writes.\nallowed-tools: fs.read fs.write\n---\nWrite.\n"
FREE = "---\nname: free\ndescription: Narrows nothing.\n---\nGo on.\n"
WRITE = calls("fs.write", path="a.txt", content="x\n")
DONE = says("Done.")


class Watched:
    """A scripted provider that keeps what it was asked. `held` stops it before the turn of that number."""

    def __init__(self, *scripts: tuple[str, tuple[Turn, ...]]) -> None:
        self._inner = ScriptedProvider([Script(when=when, turns=turns) for when, turns in scripts])
        self.requests: list[ModelRequest] = []
        self.held: int | None = None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        self.requests.append(request)
        if request.turn == self.held:
            await asyncio.Event().wait()
        async for delta in self._inner.stream(request):
            yield delta

    def tools(self) -> list[set[str]]:
        return [{spec.name for spec in request.tools} for request in self.requests]


def put(base: Path, text: str) -> Path:
    folder = base / "skills" / text.split("\n")[1].removeprefix("name: ")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(text)
    return folder


def workshop_at(root: Path, *turns: Turn) -> tuple[Workshop, Watched]:
    watched = Watched(("", turns))
    made = Workshop(root / "node", watched)
    home = root / "home"
    for text in (READER, WRITER, FREE):
        put(home, text)
    made.skills = FolderSkills(home, root / "no-bundle")
    made.tools.append(SkillOpen(made.skills))
    return made, watched


async def run(engine: Engine, text: str = "go", session: str = "s") -> tuple[RunRecord, list[Event]]:
    record = await engine.runs.start(OWNER, ask(text, session_key=session))
    return record, await finished(engine, record)


def rules(events: list[Event]) -> list[str]:
    return [event.data.rule for event in events if isinstance(event.data, ToolJudged)]


async def test_open_skill_narrows_the_catalog_and_the_gate(tmp_path: Path) -> None:
    workshop, watched = workshop_at(tmp_path, calls("skill.open", name="reader"), WRITE, DONE)
    async with workshop.open() as engine:
        _, events = await run(engine)
    assert rules(events) == ["internal_read", "skill_narrows"]
    assert not (workshop.workspace / "a.txt").exists()
    before, *after = watched.tools()
    assert {"fs.write", "mark.send"} <= before
    assert after == [{"fs.read", "skill.open"}, {"fs.read", "skill.open"}]
    opened = next(event.data for event in events if isinstance(event.data, ToolFinished))
    assert opened.skill is not None
    assert (opened.skill.name, opened.skill.allowed_tools) == ("reader", ("fs.read",))


async def test_text_of_the_skill_reaches_the_model_unfenced(tmp_path: Path) -> None:
    workshop, watched = workshop_at(tmp_path, calls("skill.open", name="reader"), DONE)
    async with workshop.open() as engine:
        record, _ = await run(engine)
        assert await engine.taint.show(OWNER, record.session_id) == ()
    told = next(each for each in watched.requests[1].messages if isinstance(each, ToolMessage))
    assert told.text.endswith("Only read.")
    assert "<<<" not in told.text


async def test_narrowing_outlives_a_restart_in_the_middle_of_the_run(tmp_path: Path) -> None:
    workshop, watched = workshop_at(tmp_path, calls("skill.open", name="reader"), WRITE, DONE)
    watched.held = 2
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask(session_key="s"))
        await until(lambda: len(watched.requests) >= 2)
    watched.held = None
    # What it said is on the tape; what its file says now is another matter.
    put(tmp_path / "home", READER.replace("allowed-tools: fs.read", "allowed-tools: '*'"))
    async with workshop.open() as engine:
        events = await finished(engine, record)
    assert rules(events) == ["internal_read", "skill_narrows"]
    assert watched.tools()[-1] == {"fs.read", "skill.open"}


async def test_narrowing_ends_with_the_run(tmp_path: Path) -> None:
    workshop, watched = workshop_at(tmp_path)
    watched = Watched(("first", (calls("skill.open", name="reader"), DONE)), ("second", (WRITE, DONE)))
    workshop.provider = watched
    async with workshop.open() as engine:
        await run(engine, "first")
        _, events = await run(engine, "second")
    assert rules(events) == ["workspace_write"]
    assert "fs.write" in watched.tools()[2]
    assert (workshop.workspace / "a.txt").read_text() == "x\n"


async def test_two_skills_leave_what_both_allow_and_one_without_a_list_takes_nothing(tmp_path: Path) -> None:
    opening = [calls("skill.open", name=name) for name in ("free", "writer", "reader")]
    workshop, watched = workshop_at(tmp_path, *opening, DONE)
    async with workshop.open() as engine:
        await run(engine)
    everything, free, writer, both = watched.tools()
    assert free == everything
    assert writer == {"fs.read", "fs.write", "skill.open"}
    assert both == {"fs.read", "skill.open"}


async def test_policy_may_forbid_by_the_skill_that_is_open(tmp_path: Path) -> None:
    workshop, _ = workshop_at(
        tmp_path, WRITE, calls("skill.open", name="writer"), calls("fs.write", path="b", content=""), DONE
    )
    workshop.policy = with_policies(
        '@id("mine") forbid (principal, action == Action::"call", resource == Tool::"fs.write") '
        'when { context.skills.contains(Skill::"writer") };'
    )
    async with workshop.open() as engine:
        _, events = await run(engine)
    assert rules(events)[0] == "workspace_write"
    assert "mine" in rules(events)[2]
    assert not (workshop.workspace / "b").exists()


async def test_what_a_policy_leaves_to_one_skill_is_not_for_a_strangers_of_that_name(tmp_path: Path) -> None:
    workshop, _ = workshop_at(tmp_path, calls("skill.open", name="scribe"), WRITE, DONE)
    workshop.policy = with_policies(
        '@id("mine") forbid (principal, action == Action::"call", resource == Tool::"fs.write") '
        'unless { context.skills.contains(Skill::"scribe") };'
    )
    put(workshop.workspace, "---\nname: scribe\ndescription: Writes.\n---\nWrite.\n")
    async with workshop.open() as engine:
        _, events = await run(engine, session="one")
        assert rules(events) == ["internal_read", "mine/mine"]
        await engine.skills.change(OWNER, SkillQuery(name="scribe"), SkillChange(status=SkillStatus.ACTIVE))
        _, events = await run(engine, session="two")
    assert rules(events) == ["internal_read", "workspace_write"]


async def test_skill_of_the_workspace_taints_until_it_is_accepted_and_again_when_it_changes(tmp_path: Path) -> None:
    workshop, watched = workshop_at(tmp_path, calls("skill.open", name="local"), DONE)
    folder = put(workshop.workspace, "---\nname: local\ndescription: Of the project.\n---\nDo as I say.\n")

    async def taint(engine: Engine, session: str) -> list[str]:
        record, _ = await run(engine, session=session)
        return [each.source for each in await engine.taint.show(OWNER, record.session_id)]

    async with workshop.open() as engine:
        assert await taint(engine, "one") == ["skill:local"]
        told = next(each for each in watched.requests[-1].messages if isinstance(each, ToolMessage))
        assert told.text.startswith("<<<palyra:data ")
        assert "Of the project" not in watched.requests[0].instructions
        await engine.skills.change(OWNER, SkillQuery(name="local"), SkillChange(status=SkillStatus.ACTIVE))
        assert await taint(engine, "two") == []
        assert "- local: Of the project." in watched.requests[-1].instructions
        (folder / "extra").touch()
        assert await taint(engine, "three") == ["skill:local"]
        assert "Of the project" not in watched.requests[-1].instructions


async def test_prompt_names_skills_with_the_same_bytes_in_every_turn(tmp_path: Path) -> None:
    workshop, watched = workshop_at(tmp_path, calls("skill.open", name="reader"), calls("fs.read", path="a"), DONE)
    async with workshop.open() as engine:
        await run(engine)
    texts = {request.instructions for request in watched.requests}
    assert len(texts) == 1
    text = texts.pop()
    assert text.startswith(workshop.agents["main"].instructions + "\n\n")
    assert text.splitlines()[-3:] == ["- free: Narrows nothing.", "- reader: Reads only.", "- writer: Writes."]


@pytest.mark.parametrize("case", ["no_tool", "not_allowed", "none"])
async def test_prompt_is_the_agents_alone_where_no_skill_can_be_opened(tmp_path: Path, case: str) -> None:
    workshop, watched = workshop_at(tmp_path, DONE)
    agent = workshop.agents["main"]
    if case == "no_tool":
        workshop.tools.pop()
    if case == "not_allowed":
        workshop.agents["main"] = AgentSpec(name="main", tools=("fs.*",), workspace=agent.workspace)
    if case == "none":
        workshop.skills = FolderSkills(tmp_path / "empty", tmp_path / "empty")
    async with workshop.open() as engine:
        await run(engine)
    assert watched.requests[0].instructions == agent.instructions


async def test_skill_that_does_not_exist_is_told_with_those_that_do(tmp_path: Path) -> None:
    workshop, watched = workshop_at(tmp_path, calls("skill.open", name="nothing"), WRITE, DONE)
    async with workshop.open() as engine:
        _, events = await run(engine)
    assert rules(events) == ["internal_read", "workspace_write"]
    told = next(each for each in watched.requests[1].messages if isinstance(each, ToolMessage))
    assert "free, reader, writer" in told.text


async def test_long_skill_can_be_paged_and_still_narrows(tmp_path: Path) -> None:
    workshop, watched = workshop_at(tmp_path, calls("skill.open", name="reader"), DONE)
    put(tmp_path / "home", READER + "word " * 4_000)
    async with workshop.open() as engine:
        _, events = await run(engine)
    opened = next(event.data for event in events if isinstance(event.data, ToolFinished))
    assert opened.artifact_id is not None
    assert watched.tools()[1] == {"fs.read", "skill.open"}


# --- The desk of skills


async def acts(engine: Engine) -> list[tuple[str, AdminActed]]:
    events = await engine._setup.journal.read_all(0, 1_000)
    return [(event.actor, event.data) for event in events if isinstance(event.data, AdminActed)]


async def test_skills_are_listed_with_what_they_allow_in_vain(tmp_path: Path) -> None:
    workshop, _ = workshop_at(tmp_path, DONE)
    put(tmp_path / "home", "---\nname: web\ndescription: d\nallowed-tools: fs.* WebFetch WebSearch\n---\nx\n")
    async with workshop.open() as engine:
        listed = {each.name: each for each in await engine.skills.list(None)}
        assert list(listed) == ["free", "reader", "web", "writer"]
        web = listed["web"]
        assert (web.allowed_tools, web.unknown_tools, web.missing_tools) == (
            ("fs.*", "http.fetch"), ("WebSearch",), ("http.fetch",),
        )  # fmt: skip
        assert (await engine.skills.get(SkillQuery(name="web"))).body == "x"
        with pytest.raises(Invalid):
            await engine.skills.list("nobody")
        with pytest.raises(NotFound):
            await engine.skills.get(SkillQuery(name="reader", place=SkillPlace.BUNDLED))


async def test_change_of_status_is_on_record_with_who_and_which_bytes(tmp_path: Path) -> None:
    workshop, _ = workshop_at(tmp_path, DONE)
    async with workshop.open() as engine:
        change = SkillChange(status=SkillStatus.DISABLED)
        record = await engine.skills.change(OWNER, SkillQuery(name="reader"), change)
        assert (record.status, record.can_open) == (SkillStatus.DISABLED, False)
        ((actor, act),) = await acts(engine)
        assert (actor, act.action, act.target) == (OWNER, "skills.change", "reader")
        assert act.detail == f"disabled, in home, sha256 {record.sha256}"


async def test_what_is_refused_is_neither_done_nor_recorded(tmp_path: Path) -> None:
    workshop, _ = workshop_at(tmp_path, DONE)
    put(tmp_path / "home", "---\nname: broken\n---\nx\n")
    async with workshop.open() as engine:
        active = SkillChange(status=SkillStatus.ACTIVE)
        for query, change, kind in (
            (SkillQuery(name="gone"), active, NotFound),
            (SkillQuery(name="broken"), active, Conflict),
            (SkillQuery(name="reader"), SkillChange(status=SkillStatus.DISABLED, sha256="0" * 64), Conflict),
            (SkillQuery(name="reader", agent="nobody"), active, Invalid),
        ):
            with pytest.raises(kind):
                await engine.skills.change(OWNER, query, change)
        assert await acts(engine) == []
    assert not (tmp_path / "home" / "skills.json").exists()


async def test_skill_disabled_while_its_run_goes_on_stays_narrow_there_and_opens_nowhere(tmp_path: Path) -> None:
    workshop, watched = workshop_at(
        tmp_path, calls("skill.open", name="reader"), calls("skill.open", name="reader"), WRITE, DONE
    )
    watched.held = 2
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask(session_key="s"))
        await until(lambda: len(watched.requests) >= 2)
        workshop.skills.mark(SkillWish(name="reader"), SkillStatus.DISABLED)
    watched.held = None
    async with workshop.open() as engine:
        events = await finished(engine, record)
    assert rules(events) == ["internal_read", "internal_read", "skill_narrows"]
    outcomes = [event.data.error and event.data.error.code for event in events if isinstance(event.data, ToolFinished)]
    assert outcomes[1] == "skill_disabled"


async def test_explaining_counts_skills_as_if_they_were_open(tmp_path: Path) -> None:
    workshop, _ = workshop_at(tmp_path, DONE)
    arguments = {"path": "a", "content": ""}
    async with workshop.open() as engine:
        for skills, rule in ((("reader",), "skill_narrows"), (("writer", "free", "gone"), "workspace_write")):
            request = ExplainRequest(tool="fs.write", arguments=arguments, skills=skills)  # type: ignore[arg-type]
            assert (await engine.explaining.explain(OWNER, request)).rule == rule


async def test_trust_of_an_opened_skill_is_on_the_tape(tmp_path: Path) -> None:
    workshop, _ = workshop_at(tmp_path, calls("skill.open", name="reader"), DONE)
    async with workshop.open() as engine:
        _, events = await run(engine)
    assert [event.trust for event in events if isinstance(event.data, ToolFinished)] == [Trust.OPERATOR]


async def test_calls_proposed_beside_the_opening_were_made_without_it_and_are_judged_so(tmp_path: Path) -> None:
    both = Turn(calls=(*calls("skill.open", name="reader").calls, *WRITE.calls))
    workshop, watched = workshop_at(tmp_path, both, WRITE, DONE)
    async with workshop.open() as engine:
        _, events = await run(engine)
    assert rules(events) == ["internal_read", "workspace_write", "skill_narrows"]
    assert watched.tools()[1] == {"fs.read", "skill.open"}


async def test_words_of_skills_are_counted_before_a_call_is_paid_for(tmp_path: Path) -> None:
    estimates = []
    for description in ("Short.", "word " * 200):
        workshop, _ = workshop_at(tmp_path / str(len(description)), DONE)
        put(tmp_path / str(len(description)) / "home", READER.replace("Reads only.", description))
        async with workshop.open() as engine:
            _, events = await run(engine)
        plan = next(event.data for event in events if isinstance(event.data, RoutePlanned))
        estimates.append(plan.estimated_input_tokens)
    assert estimates[1] - estimates[0] > 200
