"""The rules of delegation: ids, lineage, narrowing, caps, and where an answer comes from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palyra.core.addresses import is_known_address
from palyra.core.agents import AgentSpec, may_delegate, may_use
from palyra.core.budget import Budget, BudgetScope, Spender, draws_of
from palyra.core.context.window import Window, extend
from palyra.core.delegation import (
    agents_above,
    cap_nano_usd,
    channel_of,
    child_limits,
    end_children_job,
    extend_lineage,
    inherited_taint,
    is_born_tainted,
    narrowing_ancestor,
    origin_of_answer,
)
from palyra.core.errors import Invalid
from palyra.core.events.run import Ancestor
from palyra.core.events.session import TaintSource
from palyra.core.events.tool import EffectClass, ParallelClass, ToolHeld, ToolJudged, Verdict
from palyra.core.ids import (
    EffectId,
    RunId,
    SessionId,
    StreamId,
    agent_principal,
    derive_child_ids,
    parse_job_id,
    parse_run_id,
    parse_session_id,
)
from palyra.core.run.loop import make_limits
from palyra.core.run.state import Run
from palyra.core.tools import ToolSpec
from palyra.core.trust import Trust
from tests.support.runs import ALICE, RUN, SESSION, Script, call_id

PARENT = SessionId(SESSION)
NAMES = ("fs.read", "fs.write", "shell.run", "mcp.github.issue")
patterns = st.lists(st.sampled_from((*NAMES, "*", "fs.*", "mcp.*")), max_size=3).map(tuple)


def spec(name: str) -> ToolSpec:
    return ToolSpec(name=name, description="", input_schema={})


def a_run() -> Run:
    return Script().begin().state


def below(run: Run, *agents: AgentSpec) -> Run:
    """The run as a child of runs of these agents."""
    for number, agent in enumerate(agents):
        parent = replace(run, agent=agent.name, origin="http" if number == 0 else "delegation")
        run = replace(run, lineage=extend_lineage(parent, PARENT, agent), origin="delegation")
    return run


@given(st.text(min_size=1), st.text(min_size=1))
def test_ids_of_a_child_follow_from_its_effect_alone(one: str, other: str) -> None:
    ids = derive_child_ids(RUN, EffectId(one))
    assert ids == derive_child_ids(RUN, EffectId(one))
    assert (parse_session_id(ids[0]), parse_run_id(ids[1])) == ids
    assert (ids == derive_child_ids(RUN, EffectId(other))) is (one == other)
    assert len({str(each) for each in ids}) == 2


@given(st.lists(patterns, min_size=1, max_size=3), st.sampled_from(NAMES))
def test_no_child_has_a_tool_that_an_ancestor_has_not(tools: list[tuple[str, ...]], name: str) -> None:
    agents = [AgentSpec(name=f"a{number}", tools=each) for number, each in enumerate(tools)]
    run = below(a_run(), *agents)
    assert (narrowing_ancestor(run.lineage, spec(name)) is None) is all(may_use(agent, name) for agent in agents)


def test_a_child_counts_as_what_its_first_ancestor_came_by() -> None:
    run = below(a_run(), AgentSpec(name="one"), AgentSpec(name="two"))
    assert channel_of(run) == "http"
    assert agents_above(run) == ("one", "two")
    assert (channel_of(a_run()), agents_above(a_run())) == ("test", ())


def test_an_agent_delegates_to_itself_and_to_those_it_names() -> None:
    agent = AgentSpec(name="main", delegates=("help*",))
    assert [may_delegate(agent, name) for name in ("main", "helper", "chief")] == [True, True, False]
    assert may_delegate(AgentSpec(name="main"), "anybody")


@pytest.mark.parametrize(
    ("asked", "left", "cap"),
    [
        (0.5, None, 500_000_000),
        (0.5, 0.1, 500_000_000),
        (None, None, None),
        (None, 0.0, None),
        (None, 1.0, 200_000_000),
    ],
)
def test_a_cap_is_what_was_asked_for_or_a_share(asked: float | None, left: float | None, cap: int | None) -> None:
    assert cap_nano_usd(asked, left) == cap


def test_a_child_ends_before_its_parents_time_is_over() -> None:
    script = Script(limits=make_limits(wall_clock_ms=100_000)).begin()
    run, now_ms = script.state, script.now_ms
    assert child_limits(make_limits(), run, now_ms).wall_clock_ms == 90_000
    assert child_limits(make_limits(), run, now_ms + 50_000).wall_clock_ms == 45_000
    assert child_limits(make_limits(wall_clock_ms=10), run, now_ms).wall_clock_ms == 10
    assert child_limits(make_limits(), run, now_ms + 200_000).wall_clock_ms == 1
    assert child_limits(make_limits(), run, now_ms).max_tool_calls == make_limits().max_tool_calls


def test_a_spender_draws_on_every_account_above_it_once() -> None:
    def ancestor(number: int, cap: int | None = None) -> Ancestor:
        return Ancestor(
            run_id=RunId(f"R{number}"),
            session_id=SessionId(StreamId(f"S{number}")),
            agent="main",
            origin="http",
            tools=("*",),
            budget_nano_usd=cap,
        )

    spender = Spender(
        principal=ALICE,
        channel="http",
        agent="helper",
        session_id=SessionId(StreamId("S3")),
        run_id=RunId("R3"),
        ancestors=(ancestor(1), ancestor(2, 7)),
        cap_nano_usd=5,
    )
    budgets = [Budget(scope=scope, limit_tokens=1) for scope in BudgetScope]
    drawn = [(draw.account.scope.value, draw.account.subject) for draw in draws_of(budgets, spender, 0)]
    assert drawn == [
        ("global", ""),
        ("principal", ALICE),
        ("channel", "http"),
        ("agent", "helper"),
        ("agent", "main"),
        *(("session", each) for each in ("S3", "S1", "S2")),
        *(("run", each) for each in ("R3", "R1", "R2")),
        ("run", "R2"),
        ("run", "R3"),
    ]
    caps = [draw.budget for draw in draws_of((), spender, 0)]
    assert [(each.name, each.limit_nano_usd) for each in caps] == [("delegation", 7), ("delegation", 5)]


def source(name: str, *, is_trusted: bool = False) -> TaintSource:
    return TaintSource(source=name, since_seq=1, is_trusted=is_trusted)


def test_a_child_begins_with_the_taint_of_its_parent() -> None:
    assert inherited_taint((source("http:a"),), Trust.EXTERNAL) == (source("http:a"),)
    assert [each.source for each in inherited_taint((), Trust.EXTERNAL)] == ["external"]
    assert inherited_taint((), Trust.OPERATOR) == ()
    lineage = below(a_run(), AgentSpec(name="one")).lineage
    assert is_born_tainted(lineage, (source("http:a"),))
    assert not is_born_tainted(lineage, (source("http:a", is_trusted=True),))
    assert not is_born_tainted(lineage, (replace(source("http:a"), since_seq=9),))
    assert not is_born_tainted((), (source("http:a"),))


@pytest.mark.parametrize(
    ("sources", "known", "expected"),
    [
        ((), (), (Trust.LOCAL, None)),
        (("http:a",), (), (Trust.EXTERNAL, "http:a")),
        (("http:a",), ("http:a",), (Trust.EXTERNAL, "http:a")),
        (("http:a", "http:b"), ("http:a",), (Trust.EXTERNAL, "http:b")),
        (("http:a", "http:b"), (), (Trust.EXTERNAL, f"delegation:{RUN}")),
    ],
)
def test_an_answer_has_the_sources_that_its_run_met(
    sources: tuple[str, ...], known: tuple[str, ...], expected: tuple[Trust, str | None]
) -> None:
    assert (
        origin_of_answer(RUN, tuple(map(source, sources)), Trust.EXTERNAL if sources else Trust.LOCAL, known)
        == expected
    )


def test_an_answer_below_local_without_a_source_is_still_tainted() -> None:
    assert origin_of_answer(RUN, (), Trust.EXTERNAL, ()) == (Trust.EXTERNAL, "external")
    assert origin_of_answer(RUN, (source("http:a", is_trusted=True),), Trust.EXTERNAL, ()) == (Trust.LOCAL, None)


def test_the_job_that_ends_children_is_one_for_each_run() -> None:
    job = end_children_job(RUN, ALICE, PARENT, 7)
    assert parse_job_id(job.id) == job.id
    assert (job.dedupe_key, job.payload, job.session_id) == (RUN, {"run_id": RUN}, PARENT)


def test_an_address_in_a_delegated_task_is_not_given_by_a_person() -> None:
    address = "http://a.example/page"
    script = Script().begin()
    for actor, is_known in ((ALICE, True), (agent_principal("main"), False)):
        window = Window()
        for event in script.events():
            text = replace(event.data, text=f"get {address}") if event.type == "message.user" else event.data
            window = extend(
                window, replace(event, data=text, actor=actor if event.type == "message.user" else event.actor)
            )
        assert is_known_address(address, window, lambda tool: True) is is_known


def delegating(*calls: str) -> Script:
    proposals: list[tuple[str, dict[str, object]]] = [("agent.delegate", {"prompt": each}) for each in calls]
    script = Script().begin().propose(*proposals)
    for number in range(1, len(calls) + 1):
        judged = script.state.calls[number - 1]
        script.feed(
            ToolJudged(
                call_id=judged.call_id,
                verdict=Verdict.ALLOW,
                rule="delegation",
                reason="",
                effect_class=EffectClass.IDEMPOTENT,
                parallel_class=ParallelClass.IDEMPOTENT_NETWORK,
                starts_run=True,
            )
        )
    return script


def hold(script: Script, number: int, *, is_held: bool) -> Script:
    return script.feed(ToolHeld(call_id=call_id(number), is_held=is_held))


def is_running(script: Script) -> bool:
    return script.state.loop.active_since_ms is not None


def test_a_call_that_starts_a_run_is_remembered_for_the_end() -> None:
    assert delegating("a").state.has_children
    assert not a_run().has_children


def test_time_stands_still_while_every_running_call_is_held() -> None:
    script = hold(delegating("a", "b"), 1, is_held=True)
    assert is_running(script)
    script.now_ms += 1_000
    hold(script, 2, is_held=True)
    assert not is_running(script)
    script.now_ms += 1_000_000
    hold(script, 1, is_held=False)
    assert is_running(script)
    script.finish(1)
    assert not is_running(script)
    script.finish(2)
    assert is_running(script)
    assert script.state.loop.active_ms == 1_000


def test_a_restart_forgets_what_was_held() -> None:
    script = hold(delegating("a"), 1, is_held=True)
    script.now_ms += 1_000_000
    script.restart()
    assert is_running(script)
    assert not script.state.calls[0].is_held


@pytest.mark.parametrize("is_held", [True, False])
def test_a_call_is_not_held_twice_nor_after_its_end(is_held: bool) -> None:
    script = delegating("a", "b")
    if is_held:
        hold(script, 1, is_held=True)
    with pytest.raises(Invalid, match="call_not_held"):
        hold(script, 1, is_held=is_held)
    script.finish(1)
    with pytest.raises(Invalid):
        hold(script, 1, is_held=True)
