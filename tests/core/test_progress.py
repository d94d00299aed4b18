"""The RunProgressController: when it trips, and when it does not."""

import pytest

from palyra.core.events.tool import EffectClass, Outcome, ToolError
from palyra.core.run.progress import GUIDANCE, Observed, RunProgressController, acknowledge, normalise_error, observe


def call(
    result: str = "",
    outcome: Outcome = Outcome.OK,
    tool: str = "fs.read",
    effect_class: EffectClass = EffectClass.READ_ONLY,
    digest: str = "d",
) -> Observed:
    error = ToolError(code="e", message=result) if outcome is not Outcome.OK else None
    return Observed(tool=tool, digest=digest, effect_class=effect_class, outcome=outcome, error=error, result=result)


def after(*calls: Observed) -> RunProgressController:
    progress = RunProgressController()
    for item in calls:
        progress = observe(progress, item)
    return progress


def test_three_equal_failures_trip() -> None:
    failure = call("line 3: no such file", Outcome.FAILED)
    assert after(failure, failure).tripped is None
    assert after(failure, failure, failure).tripped == "equal_failures"


def test_failures_that_differ_only_in_numbers_are_equal() -> None:
    assert normalise_error("Line 3:  bad  0xFFee") == normalise_error("line 14: bad 0x01")


@pytest.mark.parametrize("other", [call("else", Outcome.FAILED), call("x", Outcome.FAILED, tool="fs.list"), call("ok")])
def test_a_different_result_between_breaks_the_row(other: Observed) -> None:
    failure = call("x", Outcome.FAILED)
    assert after(failure, failure, other, failure).tripped is None


def test_three_denials_trip() -> None:
    denied = call("no", Outcome.DENIED, digest="1")
    assert after(denied, call("no", Outcome.DENIED, tool="t2"), denied).tripped == "denials"


def test_same_read_with_same_result_three_times_trips() -> None:
    assert after(call("a"), call("b", digest="2"), call("a"), call("c", digest="3"), call("a")).tripped == "equal_reads"


def test_reading_again_after_a_change_is_no_loop() -> None:
    write = call("written", tool="fs.write", effect_class=EffectClass.IDEMPOTENT, digest="w")
    assert after(call("a"), call("a"), write, call("a"), call("a")).tripped is None


def test_six_calls_that_add_nothing_new_trip() -> None:
    first = [call(str(n), digest=str(n)) for n in range(3)]
    stale = [call(str(n % 3), digest=f"other {n}") for n in range(6)]
    assert after(*first, *stale[:5]).tripped is None
    assert after(*first, *stale).tripped == "nothing_new"


def test_guidance_starts_the_counts_again_and_counts_the_trip() -> None:
    denied = call("no", Outcome.DENIED)
    told = acknowledge(after(denied, denied, denied))
    assert (told.trips_count, told.denials_count, told.tripped) == (1, 0, None)
    assert set(GUIDANCE) == {"equal_failures", "denials", "equal_reads", "nothing_new"}
