"""The outbox: each item is sent once as far as that can be known, and waits as it is told to."""

from palyra.core.channels.outbox import (
    ATTEMPTS_MAX,
    RETRY_AFTER_MAX_S,
    OutboxItem,
    OutboxKind,
    OutboxState,
    after_failure,
    after_part,
    again,
    begin,
    item_id,
    job_of,
    part_key,
)


def item() -> OutboxItem:
    return OutboxItem(
        id=item_id("run"), channel="team", conversation_id="c1", kind=OutboxKind.ANSWER, text="hi", created_at_ms=1
    )


def test_one_cause_is_one_item_and_one_key_for_each_part() -> None:
    assert item_id("run", "a") == item_id("run", "a") != item_id("run", "b")
    first = part_key(item())
    assert part_key(begin(item(), 5)) == first != part_key(after_part(begin(item(), 5), "m1", 2, 6))


def test_an_item_is_sent_with_its_last_part_and_forgets_its_words() -> None:
    half = after_part(begin(item(), 1), "m1", 2, 2)
    assert (half.state, half.text, half.message_ids) == (OutboxState.QUEUED, "hi", ("m1",))
    whole = after_part(begin(half, 3), "m2", 2, 4)
    assert (whole.state, whole.text, whole.message_ids) == (OutboxState.SENT, "", ("m1", "m2"))


def test_waits_grow_and_the_platform_may_ask_for_more() -> None:
    waits = []
    current = item()
    for _ in range(ATTEMPTS_MAX - 1):
        current = after_failure(begin(current, 0), "no", None, 0, 1.0)
        waits.append(current.not_before_ms)
    assert waits == sorted(waits)
    assert waits[-1] == 256_000
    assert after_failure(begin(item(), 0), "429", 30.0, 0, 0.0).not_before_ms == 30_000
    assert after_failure(begin(item(), 0), "429", 1e9, 0, 0.0).not_before_ms == RETRY_AFTER_MAX_S * 1000


def test_the_last_failure_is_dead_and_a_person_may_send_it_again() -> None:
    current = item()
    for _ in range(ATTEMPTS_MAX):
        current = after_failure(begin(current, 0), "no", None, 0, 1.0)
    assert (current.state, current.error) == (OutboxState.DEAD, "no")
    assert (again(current, 9).state, again(current, 9).attempts) == (OutboxState.QUEUED, 0)


def test_a_job_belongs_to_its_item() -> None:
    job = job_of(item(), 7)
    assert (job.dedupe_key, job.principal, job.kind) == (item().id, "channel:team", "outbox")
    assert job.id != job_of(item(), 8).id
