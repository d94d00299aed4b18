"""Delegation through the engine: children side by side, their limits, their tools, and who sees them."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from palyra.adapters.providers.prepared_turns import Turn
from palyra.adapters.providers.scripted import Script, ScriptedProvider
from palyra.adapters.skills.skill_index import FolderSkills
from palyra.adapters.tools.agent_delegate import AgentDelegate
from palyra.adapters.tools.skill_open import SkillOpen
from palyra.core.agents import AgentSpec
from palyra.core.delegation import CHILDREN_MAX
from palyra.core.errors import NotFound, Unavailable
from palyra.core.events import Event
from palyra.core.events.run import MessageUser, RunCancelled
from palyra.core.events.session import SessionCreated
from palyra.core.events.tool import ApprovalStatus, Decision, Outcome, ToolHeld
from palyra.core.run.due_end import RESTARTS_MAX
from palyra.core.run.loop import make_limits
from palyra.core.writes import Fence, Write
from palyra.engine.api.requests import ApprovalAnswer, ApprovalsQuery, RunsQuery
from palyra.engine.setup import EngineSettings
from palyra.ports.delegation import DelegationRefused, DelegationRequest
from palyra.ports.journal import Append, Journal
from palyra.ports.provider import Delta, ModelRequest
from palyra.ports.tools import ToolCallContext
from tests.engine.test_heartbeats import Moving
from tests.engine.test_resume import lose_a_send
from tests.support.asking import SLOW, ask, calls, finished, first, says, wait_for
from tests.support.delegating import (
    accepted,
    child_begun,
    children,
    codes,
    delegates,
    delegating,
    events_of,
    every_run,
    results,
    rules,
    run,
)
from tests.support.engines import ALICE, OWNER, Workshop
from tests.support.policies import with_policies
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

DONE = says("All done.")
ONE = (("^go$", (delegates("look"), DONE)), ("^look$", (says("Seen."),)))


class Watched:
    """Keeps what was asked, and answers calls of `when` only once as many are out as `together` says."""

    def __init__(self, *scripts: tuple[str, tuple[Turn, ...]], together: int = 0) -> None:
        self._inner = ScriptedProvider([Script(when=when, turns=turns) for when, turns in scripts])
        self._together = together
        self._out = asyncio.Semaphore(0)
        self.requests: list[ModelRequest] = []
        self._waiting_count = 0
        self._all_out = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        self.requests.append(request)
        asked = request.messages[0]
        if self._together and getattr(asked, "text", "").startswith("look"):
            self._waiting_count += 1
            if self._waiting_count == self._together:
                self._all_out.set()
            await self._all_out.wait()
        async for delta in self._inner.stream(request):
            yield delta

    def tools(self, text: str) -> set[str]:
        request = next(each for each in self.requests if getattr(each.messages[0], "text", "") == text)
        return {spec.name for spec in request.tools}


def watched(root: Path, *scripts: tuple[str, tuple[Turn, ...]], together: int = 0) -> tuple[Workshop, Watched]:
    provider = Watched(*scripts, together=together)
    made = Workshop(root, provider)
    made.has_delegation = True
    return made, provider


async def test_the_answer_of_a_child_is_the_result_of_the_call(tmp_path: Path) -> None:
    async with delegating(tmp_path, *ONE).open() as engine:
        record, events = await run(engine, session_key="s")
        assert record.answer == "All done."
        (result,) = results(events)
        assert (result.outcome, result.output) == (Outcome.OK, "Seen.")
        assert rules(events) == ["delegation"]
        (child,) = await children(engine, record.id)
        tape = await events_of(engine, child)
        opening = tape[0].data
        assert isinstance(opening, SessionCreated)
        assert (opening.purpose, opening.serves, opening.taint) == ("delegation", record.session_id, ())
        told = accepted(tape)
        assert (told.origin, told.can_ask, told.agent) == ("delegation", True, "main")
        assert [each.run_id for each in told.lineage] == [record.id]
        said = next(event for event in tape if isinstance(event.data, MessageUser))
        assert said.actor == "agent:main"
        assert child.principal == OWNER


async def test_children_of_one_turn_run_side_by_side(tmp_path: Path) -> None:
    looks = tuple(f"look {number}" for number in range(4))
    made, _ = watched(tmp_path, ("^go$", (delegates(*looks), DONE)), ("^look", (says("Seen."),)), together=4)
    async with made.open() as engine:
        record, events = await run(engine)
        assert [result.output for result in results(events)] == ["Seen."] * 4
        assert len(await children(engine, record.id)) == 4


async def test_children_nest_three_deep_and_no_deeper(tmp_path: Path) -> None:
    made = delegating(
        tmp_path,
        ("^go$", (delegates("level 1"), DONE)),
        ("^level 1$", (delegates("level 2"), says("1"))),
        ("^level 2$", (delegates("level 3"), says("2"))),
        ("^level 3$", (delegates("level 4"), says("3"))),
    )
    async with made.open() as engine:
        record, _ = await run(engine)
        assert len(await every_run(engine)) == 4
        row = (await children(engine, record.id))[0]
        for _ in range(2):
            (row,) = await children(engine, row.id)
        tape = await events_of(engine, row)
        assert codes(tape) == ["delegation_too_deep"]
        assert len(accepted(tape).lineage) == 3


async def test_a_run_has_a_bounded_number_of_children_also_side_by_side(tmp_path: Path) -> None:
    looks = tuple(f"look {number}" for number in range(CHILDREN_MAX + 2))
    made = delegating(tmp_path, ("^go$", (delegates(*looks), DONE)), ("^look", (says("Seen."),)))
    async with made.open() as engine:
        record, events = await run(engine)
        assert sorted(code or "" for code in codes(events)) == [""] * CHILDREN_MAX + ["delegation_too_many"] * 2
        assert len(await children(engine, record.id)) == CHILDREN_MAX
        assert record.state == "done"


@pytest.mark.parametrize(("agent", "code"), [("nobody", "agent_unknown"), ("chief", "agent_not_allowed")])
async def test_an_agent_that_cannot_be_delegated_to_is_told(tmp_path: Path, agent: str, code: str) -> None:
    made = delegating(tmp_path, ("^go$", (delegates("look", agent=agent), DONE)))
    made.agents = {
        "main": AgentSpec(name="main", delegates=("helper",)),
        "chief": AgentSpec(name="chief"),
        "helper": AgentSpec(name="helper"),
    }
    async with made.open() as engine:
        record, events = await run(engine)
        assert codes(events) == [code]
        assert await children(engine, record.id) == []


async def test_a_child_has_no_tool_that_its_parents_agent_has_not(tmp_path: Path) -> None:
    made, provider = watched(
        tmp_path,
        ("^go$", (delegates("write", agent="free"), DONE)),
        ("^write$", (delegates("deeper"), calls("fs.write", path="a", content="x"), says("Tried."))),
        ("^deeper$", (calls("fs.write", path="a", content="x"), says("Tried."))),
    )
    made.agents = {
        "main": AgentSpec(name="main", tools=("agent.*", "time.*"), workspace=(str(made.workspace),)),
        "free": AgentSpec(name="free", workspace=(str(made.workspace),)),
    }
    async with made.open() as engine:
        record, _ = await run(engine)
        (child,) = await children(engine, record.id)
        (grandchild,) = await children(engine, child.id)
        assert rules(await events_of(engine, child)) == ["delegation", "delegation_narrows"]
        assert rules(await events_of(engine, grandchild)) == ["delegation_narrows"]
        assert provider.tools("write") == provider.tools("deeper") == {"agent.delegate", "time.now"}
        assert accepted(await events_of(engine, child)).lineage[0].tools == ("agent.*", "time.*")
    assert not (made.workspace / "a").exists()


async def test_open_skills_narrow_a_child_too(tmp_path: Path) -> None:
    made, provider = watched(
        tmp_path / "node",
        ("^go$", (calls("skill.open", name="reader"), delegates("write"), DONE)),
        ("^write$", (calls("fs.write", path="a", content="x"), says("Tried."))),
    )
    folder = tmp_path / "home" / "skills" / "reader"
    folder.mkdir(parents=True)
    head = "---\nname: reader\ndescription: Reads.\nallowed-tools: fs.read agent.delegate\n---\nRead.\n"
    (folder / "SKILL.md").write_text(head)
    made.skills = FolderSkills(tmp_path / "home", tmp_path / "no-bundle")
    made.tools.append(SkillOpen(made.skills))
    async with made.open() as engine:
        record, _ = await run(engine)
        (child,) = await children(engine, record.id)
        tape = await events_of(engine, child)
        assert rules(tape) == ["skill_narrows"]
        assert [skill.name for skill in accepted(tape).skills] == ["reader"]
        assert provider.tools("write") == {"fs.read", "agent.delegate", "skill.open"}


async def test_what_a_policy_forbids_an_agent_is_forbidden_to_its_children(tmp_path: Path) -> None:
    made = delegating(
        tmp_path,
        ("^go$", (delegates("write", agent="free"), DONE)),
        ("^write$", (calls("fs.write", path="a", content="x"), says("Tried."))),
    )
    made.agents = {name: AgentSpec(name=name, workspace=(str(made.workspace),)) for name in ("main", "free")}
    made.policy = with_policies(
        """@id("not_main")
        @says("no")
        forbid (principal, action == Action::"call", resource == Tool::"fs.write")
        when { context.agent == Agent::"main" };"""
    )
    async with made.open() as engine:
        record, _ = await run(engine)
        (child,) = await children(engine, record.id)
        assert rules(await events_of(engine, child)) == ["mine/not_main"]


async def test_policies_see_where_the_work_came_from(tmp_path: Path) -> None:
    made = delegating(tmp_path, ("^go$", (delegates("tell"), DONE)), ("^tell$", (calls("time.now"), says("Told."))))
    made.policy = with_policies(
        """@id("not_from_test")
        @says("no")
        forbid (principal, action == Action::"call", resource == Tool::"time.now")
        when { context.channel == Channel::"test" };"""
    )
    async with made.open() as engine:
        record, _ = await run(engine)
        (child,) = await children(engine, record.id)
        assert rules(await events_of(engine, child)) == ["mine/not_from_test"]


async def test_a_child_asks_the_owner_and_its_parent_waits(tmp_path: Path) -> None:
    made = delegating(
        tmp_path, ("^go$", (delegates("send"), DONE)), ("^send$", (calls("mark.send", text="mail"), says("Sent.")))
    )
    async with made.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        (child,) = await child_begun(engine, record.id)
        await wait_for(engine, child.id, "run.waiting")
        assert await engine.approvals.list(ALICE, ApprovalsQuery(status=ApprovalStatus.PENDING)) == ()
        (card,) = await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
        assert card.run_id == child.id
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW))
        assert (await finished(engine, record))[-1].type == "run.done"
        assert len(made.executed()) == 1


async def test_a_parent_that_nobody_can_ask_for_has_children_that_cannot_ask(tmp_path: Path) -> None:
    made = delegating(
        tmp_path, ("^go$", (delegates("send"), DONE)), ("^send$", (calls("mark.send", text="mail"), says("No.")))
    )
    async with made.open() as engine:
        record, _ = await run(engine, can_ask=False)
        (child,) = await children(engine, record.id)
        assert rules(await events_of(engine, child)) == ["nobody_to_ask"]


async def test_a_child_without_an_answer_is_a_failed_call_and_the_parent_goes_on(tmp_path: Path) -> None:
    made = delegating(tmp_path, ("^go$", (delegates("look"), DONE)))
    async with made.open() as engine:
        record, events = await run(engine)
        assert record.answer == "All done."
        assert codes(events) == ["child_provider_error"]
        assert "No script fits" in (results(events)[0].error.message)  # type: ignore[union-attr]


async def test_one_slot_is_enough_for_a_parent_and_its_children(tmp_path: Path) -> None:
    made = delegating(
        tmp_path,
        ("^go$", (delegates("middle"), DONE)),
        ("^middle$", (delegates("look", "look"), says("Both."))),
        ("^look$", (says("Seen."),)),
        settings=EngineSettings(runs_active_max=1),
    )
    async with made.open() as engine:
        record, _ = await run(engine)
        assert record.answer == "All done."


async def test_lists_leave_children_out_unless_they_are_wanted(tmp_path: Path) -> None:
    async with delegating(tmp_path, *ONE).open() as engine:
        record, _ = await run(engine)
        (child,) = await children(engine, record.id)
        assert [each.id for each in await engine.runs.list(OWNER, RunsQuery())] == [record.id]
        assert {each.id for each in await every_run(engine)} == {record.id, child.id}
        own = await engine.runs.list(OWNER, RunsQuery(session_id=child.session_id))
        assert [each.parent_run_id for each in own] == [record.id]
        assert [each.id for each in await engine.sessions.list(OWNER, "", 9)] == [record.session_id]
        both = await engine.sessions.list(OWNER, "", 9, has_delegated=True)
        assert {each.id for each in both} == {record.session_id, child.session_id}


async def test_nobody_else_sees_a_child(tmp_path: Path) -> None:
    async with delegating(tmp_path, *ONE).open() as engine:
        record, _ = await run(engine)
        (child,) = await children(engine, record.id)
        for run_id in (record.id, child.id):
            with pytest.raises(NotFound):
                await engine.trees.get(ALICE, run_id)
            with pytest.raises(NotFound):
                await engine.runs.get(ALICE, run_id)
        with pytest.raises(NotFound):
            await engine.sessions.get(ALICE, child.session_id)
        assert await children(engine, record.id, ALICE) == []
        assert await engine.runs.list(ALICE, RunsQuery(has_delegated=True)) == ()
        assert await engine.sessions.list(ALICE, "", 9, has_delegated=True) == ()


async def test_deleting_a_session_deletes_what_it_delegated(tmp_path: Path) -> None:
    async with delegating(tmp_path, *ONE).open() as engine:
        record, _ = await run(engine)
        (child,) = await children(engine, record.id)
        await engine.sessions.delete(OWNER, record.session_id)
        with pytest.raises(NotFound):
            await engine.sessions.get(OWNER, child.session_id)


async def test_a_tree_shows_states_tasks_and_spend(tmp_path: Path) -> None:
    long = "look " + "at all of it " * 40
    made = delegating(tmp_path, ("^go$", (delegates(long, "miss"), DONE)), ("^look", (says("Seen."),)))
    async with made.open() as engine:
        record, _ = await run(engine)
        tree = await engine.trees.get(OWNER, record.id)
        assert (tree.root.task, tree.root.state, tree.runs_count) == ("go", "done", 3)
        by_state = {node.state: node for node in tree.root.children}
        assert by_state["done"].task.startswith("look at all of it")
        assert by_state["done"].task.endswith("…")
        assert by_state["failed"].reason == "provider_error"
        assert tree.total.output_tokens == tree.root.usage.output_tokens + sum(
            node.usage.output_tokens for node in tree.root.children
        )


async def test_a_tree_has_children_in_the_order_of_their_calls(tmp_path: Path) -> None:
    prompts = [f"look {number}" for number in range(8)]
    made = delegating(tmp_path, ("^go$", (delegates(*prompts), DONE)), ("^look", (says("Seen."),)))
    async with made.open() as engine:
        record, _ = await run(engine)
        tree = await engine.trees.get(OWNER, record.id)
    assert [node.task for node in tree.root.children] == prompts


async def test_cancelling_the_parent_cancels_all_below_it(tmp_path: Path) -> None:
    made = delegating(tmp_path, ("^go$", (delegates("middle"), DONE)), ("^middle$", (delegates("slow"), DONE)))
    made.provider = ScriptedProvider(
        [
            Script(when="^go$", turns=(delegates("middle"), DONE)),
            Script(when="^middle$", turns=(delegates("slow"), DONE)),
            *SLOW,
        ]
    )
    async with made.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        (child,) = await child_begun(engine, record.id)
        (grandchild,) = await child_begun(engine, child.id)
        await wait_for(engine, grandchild.id, "model.delta")
        await engine.runs.cancel(OWNER, record.id)
        for run_id in (record.id, child.id, grandchild.id):
            ended = await first(await engine.runs.follow(OWNER, run_id, None), "run.cancelled")
            assert isinstance(ended.data, RunCancelled)


async def test_cancelling_a_child_is_a_failed_call_of_its_parent(tmp_path: Path) -> None:
    made = delegating(tmp_path)
    made.provider = ScriptedProvider([Script(when="^go$", turns=(delegates("slow"), DONE)), *SLOW])
    async with made.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        (child,) = await child_begun(engine, record.id)
        await engine.runs.cancel(OWNER, child.id)
        events = await finished(engine, record)
        assert codes(events) == ["child_cancelled"]
        assert events[-1].type == "run.done"


async def test_a_child_whose_session_was_deleted_is_not_started_again(tmp_path: Path) -> None:
    async with delegating(tmp_path, *ONE).open() as engine:
        record, events = await run(engine)
        (child,) = await children(engine, record.id)
        await engine.sessions.delete(OWNER, child.session_id)
        context = ToolCallContext(
            session_id=record.session_id,
            run_id=record.id,
            effect_id=results(events)[0].effect_id,
            principal=OWNER,
            agent="main",
            workspace=(),
            now_ms=0,
            emit=lambda stream, text: None,
        )
        refused = await engine.delegations.perform(DelegationRequest(prompt="look"), context)
        assert isinstance(refused, DelegationRefused)
        assert refused.code == "child_gone"


async def test_a_parent_gets_on_while_its_child_waits_for_a_person(tmp_path: Path) -> None:
    made = delegating(
        tmp_path, ("^go$", (delegates("send"), DONE)), ("^send$", (calls("mark.send", text="mail"), says("Sent.")))
    )
    async with made.open() as engine:
        engine.delegations.progress_every_s = 0.01
        record = await engine.runs.start(OWNER, ask())
        (child,) = await child_begun(engine, record.id)
        await wait_for(engine, child.id, "run.waiting")
        before = engine._parts.hub.live_count(record.session_id)
        await until(lambda: engine._parts.hub.live_count(record.session_id) > before + 3, "signs of life")


async def test_time_in_which_a_child_waits_for_a_person_is_not_its_parents(tmp_path: Path) -> None:
    made = delegating(
        tmp_path,
        ("^go$", (delegates("middle", "tell"), DONE)),
        ("^middle$", (delegates("send"), says("Passed on."))),
        ("^send$", (calls("mark.send", text="mail"), says("Sent."))),
        ("^tell$", (calls("time.now"), says("Noon."))),
        settings=EngineSettings(limits=make_limits(wall_clock_ms=60_000)),
    )
    made.clock = clock = Moving()
    async with made.open() as engine:
        record = await engine.runs.start(OWNER, ask())

        def is_paused() -> bool:
            state = engine._parts.loops.known_state(record.session_id)
            return state is not None and state.active is not None and state.active.loop.active_since_ms is None

        await until(is_paused, "the pause")
        clock.at_ms += 600_000
        engine._parts.loops.wake(record.session_id)
        (card,) = await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW))
        events = await finished(engine, record)
        assert events[-1].type == "run.done"
        assert [event.data.is_held for event in events if isinstance(event.data, ToolHeld)] == [True, False]


class Unheld:
    """A journal whose first commits of tool.held fail, as on a disk that is full for a moment."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.failures_left = 2

    def __getattr__(self, name: str) -> object:
        return getattr(self._journal, name)

    async def commit(
        self, appends: Sequence[Append], writes: Sequence[Write] = (), fence: Fence | None = None
    ) -> tuple[Event, ...]:
        if self.failures_left and any(isinstance(one.data, ToolHeld) for append in appends for one in append.drafts):
            self.failures_left -= 1
            raise Unavailable("disk_full", "there is no room on the disk")
        return await self._journal.commit(appends, writes, fence)


async def test_a_pause_that_could_not_be_recorded_is_recorded_later(tmp_path: Path) -> None:
    """The child does nothing while it waits, so nothing it does could be the reason to try again."""
    made = delegating(
        tmp_path, ("^go$", (delegates("send"), DONE)), ("^send$", (calls("mark.send", text="mail"), says("Sent.")))
    )
    made.wrap_journal = Unheld  # type: ignore[assignment]
    async with made.open() as engine:
        engine.delegations.progress_every_s = 0.01
        record = await engine.runs.start(OWNER, ask())
        async with asyncio.timeout(20):
            held = await wait_for(engine, record.id, "tool.held")
        assert isinstance(held.data, ToolHeld)
        assert held.data.is_held


async def test_restarts_while_a_child_waits_for_a_person_end_nothing(tmp_path: Path) -> None:
    """A person may take a day, in which a daemon may be updated more often than a run may be interrupted."""
    made = delegating(
        tmp_path,
        ("^go$", (delegates("middle"), DONE)),
        ("^middle$", (delegates("send"), says("Passed on."))),
        ("^send$", (calls("mark.send", text="mail"), says("Sent."))),
    )
    async with made.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await wait_for(engine, record.id, "tool.held")
    for _ in range(RESTARTS_MAX):
        async with made.open() as engine:

            def is_held() -> bool:
                state = engine._parts.loops.known_state(record.session_id)
                return state is not None and state.active is not None and state.active.loop.active_since_ms is None

            await until(is_held, "the pause", timeout_s=20)
    async with made.open() as engine:
        (card,) = await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW))
        events = await finished(engine, record)
        assert events[-1].type == "run.done"


async def test_a_parent_that_works_beside_a_waiting_child_uses_its_own_time(tmp_path: Path) -> None:
    made = delegating(tmp_path)
    made.provider = ScriptedProvider(
        [
            Script(when="^go$", turns=(delegates("send", "slow"), DONE)),
            Script(when="^send$", turns=(calls("mark.send", text="mail"), says("Sent."))),
            *SLOW,
        ]
    )
    async with made.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await wait_for(engine, record.id, "tool.held")
        state = engine._parts.loops.known_state(record.session_id)
        assert state is not None
        assert state.active is not None
        assert state.active.loop.active_since_ms is not None


async def test_a_child_that_does_nothing_is_no_progress_of_its_parent(tmp_path: Path) -> None:
    class Silent:
        async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
            if getattr(request.messages[0], "text", "") == "look":
                await asyncio.Event().wait()
            async for delta in ScriptedProvider([Script(turns=(delegates("look"), DONE))]).stream(request):
                yield delta

    made = Workshop(tmp_path, Silent())
    made.has_delegation = True
    async with made.open() as engine:
        engine.delegations.progress_every_s = 0.01
        record = await engine.runs.start(OWNER, ask())
        (child,) = await child_begun(engine, record.id)
        await wait_for(engine, child.id, "model.requested")
        counts: list[int] = []

        def is_still() -> bool:
            counts.append(engine._parts.hub.live_count(record.session_id))
            return len(counts) > 10 and counts[-1] == counts[-10]

        # The last frames of the child are told first; from then on nothing is.
        await until(is_still, "the silence of the parent", pause_s=0.02)


async def test_a_call_that_times_out_cancels_its_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AgentDelegate, "spec", replace(AgentDelegate.spec, timeout_s=2.0))
    made = delegating(tmp_path)
    made.provider = ScriptedProvider([Script(when="^go$", turns=(delegates("slow"), DONE)), *SLOW])
    async with made.open() as engine:
        record, events = await run(engine)
        assert [result.outcome for result in results(events)] == [Outcome.TIMEOUT]
        assert record.state == "done"
        (child,) = await children(engine, record.id)
        await first(await engine.runs.follow(OWNER, child.id, None), "run.cancelled")


async def test_an_uncertain_call_of_the_parent_asks_in_its_child(tmp_path: Path) -> None:
    made = delegating(
        tmp_path,
        ("^go$", (calls("mark.send", text="mail"), delegates("send"), DONE)),
        ("^send$", (calls("mark.send", text="mail"), says("Tried."))),
    )
    record = await lose_a_send(made)
    async with made.open() as engine:
        (child,) = await child_begun(engine, record.id)
        await wait_for(engine, child.id, "run.waiting")
        assert rules(await events_of(engine, child)) == ["uncertain_repeat"]
    assert len(made.executed()) == 1


async def test_a_stop_of_the_daemon_cancels_no_child(tmp_path: Path) -> None:
    made = delegating(tmp_path)
    parent = Script(when="^go$", turns=(delegates("slow"), DONE))
    made.provider = ScriptedProvider([parent, *SLOW])
    async with made.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        (child,) = await child_begun(engine, record.id)
        await wait_for(engine, child.id, "model.delta")
    made.provider = ScriptedProvider([parent, Script(turns=(says("Here again."),))])
    async with made.open() as engine:
        events = await finished(engine, record)
        assert [result.output for result in results(events)] == ["Here again."]
        assert [row.id for row in await children(engine, record.id)] == [child.id]
