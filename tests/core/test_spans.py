"""Spans: what a run's events say about its times, and that no order of events breaks the fold or leaks a text."""

from hypothesis import given
from hypothesis import strategies as st

from palyra.core.events import DATA_TYPES, Event, EventData
from palyra.core.events.model import BudgetState, Finish, ModelOutput, ModelRequested, RouteMode, RoutePlanned
from palyra.core.events.run import EndReason, RunAccepted, RunDone, RunStarted
from palyra.core.events.tool import Outcome, ToolFinished, ToolProposed, ToolStarted
from palyra.core.ids import CallId, EffectId, Principal, RunId, StreamId
from palyra.core.run.loop import make_limits
from palyra.core.telemetry.spans import RUNS_MAX, SPANS_PER_RUN_MAX, SpanClosed, SpanFold, SpanKind, SpanOpened
from palyra.core.trust import Trust
from tests.support.samples import sample_of

SECRET = "a text of somebody"
RUN = RunId("01ARZ3NDEKTSV4RRFFQ69G5FAV")
SAMPLES = [sample_of(kind, SECRET) for kind in DATA_TYPES.values()]


def event(data: EventData, at_ms: int = 0, run_id: RunId = RUN) -> Event:
    return Event(
        seq=1,
        position=1,
        stream=StreamId("01ARZ3NDEKTSV4RRFFQ69G5FAW"),
        run_id=run_id,
        type=data.TYPE,
        at_ms=at_ms,
        actor=Principal("system:engine"),
        trust=Trust.SYSTEM,
        data=data,  # type: ignore[arg-type]
        hash="",
        salt=None,
        digest="",
    )


def accepted() -> RunAccepted:
    return RunAccepted(agent="main", origin="http", can_ask=True, limits=make_limits())


def planned(turn: int) -> RoutePlanned:
    return RoutePlanned(turn=turn, mode=RouteMode.ENFORCED, chosen="m", budget=BudgetState.OK)


def output(turn: int) -> ModelOutput:
    return ModelOutput(turn=turn, text="", tool_calls=(), finish=Finish.STOP, usage=None)


def tool(call: str) -> list[EventData]:
    call_id, effect_id = CallId(call), EffectId(f"e{call}")
    return [
        ToolProposed(call_id=call_id, tool="fs.read", arguments={}),
        ToolStarted(call_id=call_id, effect_id=effect_id),
        ToolFinished(call_id=call_id, effect_id=effect_id, outcome=Outcome.OK, error=None, attestation=None),
    ]


STORY: list[EventData] = [
    accepted(), RunStarted(), planned(1), ModelRequested(turn=1, model="m"), output(1), *tool("a"), *tool("b"),
    planned(2), ModelRequested(turn=2, model="m"), output(2), RunDone(reason=next(iter(EndReason)), message=""),
]  # fmt: skip


def changes_of(fold: SpanFold, story: list[EventData]) -> list[SpanOpened | SpanClosed]:
    return [change for number, data in enumerate(story) for change in fold.feed(event(data, 10 * number))]


def test_a_run_of_two_turns_has_its_parts_under_the_right_parents() -> None:
    fold = SpanFold()
    changes = changes_of(fold, STORY)
    opened = [change for change in changes if isinstance(change, SpanOpened)]
    assert [(span.kind.value, span.name, (span.parent or "").removeprefix(RUN)) for span in opened] == [
        ("run", "main", ""),
        ("queue", "queue", ""),
        ("turn", "1", ""),
        ("model", "m", "/turn/1"),
        ("tool", "fs.read", "/turn/1"),
        ("tool", "fs.read", "/turn/1"),
        ("turn", "2", ""),
        ("model", "m", "/turn/2"),
    ]
    closed = {change.opened.key: change for change in changes if isinstance(change, SpanClosed)}
    assert set(closed) == {span.key for span in opened}
    assert closed[RUN].duration_s == 10 * (len(STORY) - 1) / 1000
    assert fold.run_count == 0


def test_a_clock_that_goes_back_gives_no_negative_time() -> None:
    fold = SpanFold()
    list(fold.feed(event(accepted(), 1000)))
    ends = [change for change in fold.feed(event(STORY[-1], 500)) if isinstance(change, SpanClosed)]
    assert {end.duration_s for end in ends} == {0.0}


def test_a_run_of_before_the_restart_is_followed_from_here() -> None:
    changes = changes_of(SpanFold(), STORY[7:])
    first = changes[0]
    assert isinstance(first, SpanOpened)
    assert (first.kind, first.attributes) == (SpanKind.RUN, {"is_resumed": True})
    assert isinstance(changes[-1], SpanClosed)


def test_runs_and_spans_are_bounded() -> None:
    fold = SpanFold()
    for number in range(RUNS_MAX + 10):
        list(fold.feed(event(accepted(), run_id=RunId(f"{number:026}"))))
    assert fold.run_count == RUNS_MAX
    many = [data for number in range(SPANS_PER_RUN_MAX + 10) for data in tool(str(number))[:2]]
    opened = [change for change in changes_of(SpanFold(), [accepted(), *many]) if isinstance(change, SpanOpened)]
    assert len(opened) <= SPANS_PER_RUN_MAX


@given(st.lists(st.sampled_from([*SAMPLES, *STORY]), max_size=40))
def test_no_order_of_events_breaks_the_fold(story: list[EventData]) -> None:
    fold, known = SpanFold(), set()
    for change in changes_of(fold, story):
        if isinstance(change, SpanOpened):
            assert change.parent is None or change.parent in known
            known.add(change.key)
        else:
            assert change.opened.key in known
