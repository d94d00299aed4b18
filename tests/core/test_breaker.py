"""The circuit breaker of one model."""

from hypothesis import given
from hypothesis import strategies as st

from palyra.core.breaker import OPEN_MS_FIRST, OPEN_MS_MAX, Breaker, ModelHealth, abandon, begin, fail, health, succeed
from palyra.core.events.model import ModelError

NOW = 1_000_000


def opened(at_ms: int = NOW) -> Breaker:
    breaker = Breaker()
    for _ in range(3):
        breaker = fail(breaker, ModelError.OVERLOADED, at_ms)
    return breaker


def test_three_failures_in_a_row_open_it() -> None:
    twice = fail(fail(Breaker(), ModelError.NETWORK, NOW), ModelError.TIMEOUT, NOW)
    assert health(twice, NOW) is ModelHealth.OK
    assert health(opened(), NOW) is ModelHealth.OPEN


def test_a_success_between_starts_the_count_again() -> None:
    breaker = succeed(fail(fail(Breaker(), ModelError.RATE, NOW), ModelError.RATE, NOW))
    assert health(fail(breaker, ModelError.RATE, NOW), NOW) is ModelHealth.OK


def test_failures_that_are_the_request_s_own_do_not_count() -> None:
    breaker = Breaker()
    for _ in range(10):
        breaker = fail(breaker, ModelError.CONTEXT_LENGTH, NOW)
    assert health(breaker, NOW) is ModelHealth.OK


def test_after_a_while_one_probe_may_try() -> None:
    later = NOW + OPEN_MS_FIRST
    assert health(opened(), later) is ModelHealth.HALF_OPEN
    probing = begin(opened(), later)
    assert health(probing, later) is ModelHealth.OPEN
    assert health(succeed(probing), later) is ModelHealth.OK


def test_a_failed_probe_doubles_the_time() -> None:
    later = NOW + OPEN_MS_FIRST
    again = fail(begin(opened(), later), ModelError.OVERLOADED, later)
    assert health(again, later + OPEN_MS_FIRST) is ModelHealth.OPEN
    assert health(again, later + 2 * OPEN_MS_FIRST) is ModelHealth.HALF_OPEN


def test_a_probe_that_was_stopped_leaves_room_for_the_next() -> None:
    later = NOW + OPEN_MS_FIRST
    assert health(abandon(begin(opened(), later)), later) is ModelHealth.HALF_OPEN


@given(st.lists(st.sampled_from(["fail", "begin", "abandon", "wait"]), max_size=60))
def test_it_is_always_tried_again_in_the_end(moves: list[str]) -> None:
    breaker, now_ms = Breaker(), NOW
    for move in moves:
        match move:
            case "fail":
                breaker = fail(breaker, ModelError.NETWORK, now_ms)
            case "begin":
                breaker = begin(breaker, now_ms)
            case "abandon":
                breaker = abandon(breaker)
            case _:
                now_ms += OPEN_MS_FIRST
    assert health(abandon(breaker), now_ms + OPEN_MS_MAX) is not ModelHealth.OPEN
