"""The rules of the background queue: whose job comes next, and when a failed one is tried again."""

from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.core.ids import JobId, Principal
from palyra.core.jobs.fairness import choose
from palyra.core.jobs.model import LOOK_EVERY_MS, Job, JobKind, JobState, NewJob, wakes_worker
from palyra.core.jobs.retry import LOSS_DELAY_MAX_MS, LOSSES_MAX, loss_delay_ms, retry_delay_ms
from palyra.core.writes import ClaimJob, EndJob, Fence, RenewJob, fence_of, token_after
from tests.support.examples import examples

KIND = JobKind(name="test", summary="", attempts_max=4, backoff_s=2.0, backoff_max_s=5.0)


def job(name: str, principal: str = "user:a", priority: int = 0, not_before_ms: int = 0) -> Job:
    return Job(
        id=JobId(name),
        kind="test",
        principal=Principal(principal),
        payload={},
        state=JobState.QUEUED,
        priority=priority,
        dedupe_key=None,
        session_id=None,
        not_before_ms=not_before_ms,
        expires_at_ms=None,
        attempts=0,
        losses=0,
        owner=None,
        token=1,
        leased_until_ms=0,
        progress_at_ms=0,
        progress="",
        error=None,
        created_at_ms=0,
        updated_at_ms=0,
    )


def names(chosen: tuple[Job, ...]) -> list[str]:
    return [one.id for one in chosen]


def test_a_long_queue_of_one_principal_does_not_delay_anothers_first_job() -> None:
    due = [*(job(f"a{n}", "user:a", not_before_ms=n) for n in range(50)), job("b", "user:b", not_before_ms=99)]
    assert names(choose(due, {}, 3)) == ["a0", "b", "a1"]


def test_who_has_jobs_running_waits_for_who_has_none() -> None:
    due = [job("a", "user:a", not_before_ms=0), job("b", "user:b", not_before_ms=5)]
    assert names(choose(due, {Principal("user:a"): 2}, 2)) == ["b", "a"]


def test_a_higher_priority_goes_first_whoever_has_it() -> None:
    due = [job("a", "user:a"), job("b", "user:a", priority=5), job("c", "user:b")]
    assert names(choose(due, {Principal("user:a"): 9}, 2)) == ["b", "c"]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.integers(0, 9)), max_size=20),
    st.integers(0, 25),
)
@settings(max_examples=examples(200))
def test_every_due_job_is_chosen_once_while_there_is_room(wanted: list[tuple[str, int, int]], room: int) -> None:
    due = [job(f"{n:02}", f"user:{who}", priority, at) for n, (who, priority, at) in enumerate(wanted)]
    chosen = choose(due, {}, room)
    assert len(chosen) == len({one.id for one in chosen}) == min(room, len(due))
    assert [one.priority for one in chosen] == sorted((one.priority for one in chosen), reverse=True)


def test_retries_wait_longer_each_time_up_to_the_maximum_and_end() -> None:
    assert [retry_delay_ms(KIND, attempts, 1.0) for attempts in (1, 2, 3, 4)] == [2000, 4000, 5000, None]


def test_half_of_a_retrys_wait_is_random() -> None:
    assert retry_delay_ms(KIND, 1, 0.0) == 1000


def test_a_lost_worker_costs_no_wait_the_first_time_and_is_not_forgiven_for_ever() -> None:
    assert loss_delay_ms(0) == 0
    assert loss_delay_ms(1) == 1000
    assert loss_delay_ms(LOSSES_MAX - 1) == LOSS_DELAY_MAX_MS
    assert loss_delay_ms(LOSSES_MAX) is None


def test_claiming_and_ending_change_the_token_and_renewing_does_not() -> None:
    claim = ClaimJob(job_id=JobId("j"), owner=None, expected_token=3, leased_until_ms=0, at_ms=0)  # type: ignore[arg-type]
    renew = RenewJob(job_id=JobId("j"), token=4, leased_until_ms=0, progress_at_ms=0, progress="")
    end = EndJob(job_id=JobId("j"), token=4, state=JobState.DONE, error=None, at_ms=0)
    assert [fence_of(write) for write in (claim, renew, end)] == [
        Fence("job:j", 3),
        Fence("job:j", 4),
        Fence("job:j", 4),
    ]
    assert [token_after(write) for write in (claim, renew, end)] == [Fence("job:j", 4), None, Fence("job:j", 5)]


def test_worker_is_told_only_of_jobs_that_are_due_before_its_next_look() -> None:
    def new(wait_ms: int) -> NewJob:
        return NewJob(
            id=JobId("j"),
            kind="test",
            principal=Principal("user:a"),
            not_before_ms=1_000 + wait_ms,
            created_at_ms=1_000,
        )

    assert [wakes_worker(new(wait_ms)) for wait_ms in (-1_000, 0, LOOK_EVERY_MS - 1, LOOK_EVERY_MS)] == [
        True,
        True,
        True,
        False,
    ]
