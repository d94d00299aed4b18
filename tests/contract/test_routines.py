"""What every store promises of routines: one writer wins, names are unique, times are found, histories are bounded."""

import pytest
from msgspec.structs import replace

from palyra.core.errors import Conflict
from palyra.core.ids import JobId, RoutineId
from palyra.core.routines.model import CronSchedule, OnceSchedule, Routine, RoutineFire, run_key
from palyra.core.writes import DropRoutines, Fence, PutRoutine, RecordFire
from palyra.ports.journal import Append
from tests.contract.conftest import Opened, Store
from tests.support.journals import ALICE, BOB, Ids, run_accepted, session_created
from tests.support.routines import START_MS, routine_at

pytestmark = pytest.mark.anyio


def numbered(number: int, next_at_ms: int | None = START_MS, **fields: object) -> Routine:
    named = {"id": RoutineId(f"{number:026}"), "principal": ALICE, **fields}
    routine = routine_at(next_at_ms, **named)  # type: ignore[arg-type]
    return replace(routine, definition=replace(routine.definition, name=f"name {number}"))


def fire_of(routine: Routine, due_at_ms: int, **fields: object) -> RoutineFire:
    base = {"routine_id": routine.id, "principal": routine.principal, "due_at_ms": due_at_ms, "at_ms": due_at_ms}
    return RoutineFire(**{**base, **fields})  # type: ignore[arg-type]


async def put(opened: Opened, *routines: Routine) -> None:
    await opened.journal.commit([], [PutRoutine(routine) for routine in routines])


async def test_a_routine_comes_back_as_it_was_stored(store: Store) -> None:
    opened = await store.open()
    every = numbered(1, last_due_ms=5, fired_count=3, skipped_count=4, is_configured=True)
    cron = replace(every, id=RoutineId("A" * 26), next_at_ms=None, is_paused=True)
    cron = replace(cron, definition=replace(cron.definition, name="b", schedule=CronSchedule("0 0 * * *", "UTC")))
    once = replace(
        cron, id=RoutineId("B" * 26), definition=replace(cron.definition, schedule=OnceSchedule(7), name="c")
    )
    await put(opened, every, cron, once)
    opened = await store.reopen()
    assert [await opened.routines.routine(one.id) for one in (every, cron, once)] == [every, cron, once]
    assert await opened.routines.routine(RoutineId("C" * 26)) is None


async def test_of_two_writers_with_the_same_revision_one_wins(store: Store) -> None:
    opened = await store.open()
    first = numbered(1)
    await put(opened, first)
    with pytest.raises(Conflict, match="lease_lost"):
        await put(opened, first)
    second = replace(first, revision=2, next_at_ms=START_MS + 1)
    await put(opened, second)
    with pytest.raises(Conflict, match="lease_lost"):
        await put(opened, replace(first, revision=2, next_at_ms=START_MS + 2))
    with pytest.raises(Conflict, match="lease_lost"):
        await opened.journal.commit([], [RecordFire(fire_of(first, 1), 9)], Fence(f"routine:{first.id}", 1))
    assert await opened.routines.routine(first.id) == second
    assert await opened.routines.fire(first.id, 1) is None
    opened = await store.reopen()
    with pytest.raises(Conflict, match="lease_lost"):
        await put(opened, replace(first, revision=2))


async def test_two_routines_of_a_principal_have_two_names_unless_one_was_removed(store: Store) -> None:
    opened = await store.open()
    first = numbered(1)
    twin = replace(first, id=RoutineId("A" * 26))
    await put(opened, first)
    with pytest.raises(Conflict, match="routine_name_taken"):
        await put(opened, twin)
    await put(opened, replace(twin, principal=BOB))
    await put(opened, replace(first, is_removed=True, revision=2))
    await put(opened, replace(twin, id=RoutineId("B" * 26)))
    assert await opened.routines.count_routines(ALICE) == await opened.routines.count_routines(BOB) == 1


async def test_due_routines_are_those_whose_time_has_come(store: Store) -> None:
    opened = await store.open()
    due = [numbered(number, START_MS - number) for number in range(1, 4)]
    others = [
        numbered(5, START_MS + 1),
        numbered(6, None),
        numbered(7, START_MS - 9, is_paused=True),
        numbered(8, START_MS - 9, is_removed=True),
    ]
    assert await opened.routines.next_due_ms() is None
    await put(opened, *due, *others)
    assert await opened.routines.due_routines(START_MS, 10) == tuple(due[::-1])
    assert await opened.routines.due_routines(START_MS, 1) == (due[-1],)
    assert await opened.routines.next_due_ms() == START_MS - 3


async def test_lists_are_of_one_principal_or_of_all_and_come_in_pages(store: Store) -> None:
    opened = await store.open()
    mine = [numbered(number) for number in range(1, 6)]
    theirs = replace(numbered(9), principal=BOB)
    await put(opened, *mine, theirs, numbered(10, is_removed=True))
    assert await opened.routines.list_routines(ALICE, "", 3) == tuple(mine[:3])
    assert await opened.routines.list_routines(ALICE, mine[2].id, 3) == tuple(mine[3:])
    assert await opened.routines.list_routines(None, "", 10) == (*mine, theirs)


async def test_a_history_is_newest_first_bounded_and_its_records_can_be_replaced(store: Store) -> None:
    opened = await store.open()
    routine, other = numbered(1), numbered(2)
    await put(opened, routine, other)
    for due in range(1, 8):
        await opened.journal.commit([], [RecordFire(fire_of(routine, due, job_id=JobId(f"j{due}")), 5)])
    await opened.journal.commit([], [RecordFire(fire_of(other, 1), 5)])
    skipped = fire_of(routine, 6, reason="overlap", count=2, is_manual=True)
    await opened.journal.commit([], [RecordFire(skipped, 5)])
    views = await opened.routines.history(routine.id, ALICE, None, 10)
    assert [view.fire.due_at_ms for view in views] == [7, 6, 5, 4, 3]
    assert (views[1].fire, views[1].run_id, views[1].job_state) == (skipped, None, None)
    assert [view.fire.due_at_ms for view in await opened.routines.history(routine.id, ALICE, 5, 1)] == [4]
    assert await opened.routines.fire(routine.id, 7) == fire_of(routine, 7, job_id=JobId("j7"))
    assert len(await opened.routines.history(other.id, ALICE, None, 10)) == 1
    assert await opened.routines.history(routine.id, BOB, None, 10) == ()


async def test_active_runs_are_found_when_the_history_no_longer_reaches_them(store: Store, ids: Ids) -> None:
    opened = await store.open()
    routine, other = numbered(1), numbered(11)
    runs = {}
    for owner, name, due in ((ALICE, routine, 1), (ALICE, routine, 2), (ALICE, other, 1), (BOB, routine, 1)):
        session, run = ids.session(), ids.run()
        accepted = run_accepted(run, owner)
        keyed = replace(accepted, data=replace(accepted.data, idempotency_key=run_key(name.id, due)))
        await opened.journal.commit([Append(session, 0, (session_created(owner), keyed))])
        runs[owner, name.id, due] = run
    wanted = tuple(sorted((runs[ALICE, routine.id, 1], runs[ALICE, routine.id, 2])))
    assert await opened.routines.active_runs(routine.id, ALICE) == wanted
    assert await opened.routines.active_runs(routine.id, BOB) == (runs[BOB, routine.id, 1],)
    assert await opened.routines.active_runs(other.id, BOB) == ()


async def test_what_was_removed_long_ago_is_forgotten_with_its_history(store: Store) -> None:
    opened = await store.open()
    old, new, live = (
        numbered(number, is_removed=is_removed, updated_at_ms=at)
        for number, is_removed, at in ((1, True, 10), (2, True, 20), (3, False, 5))
    )
    await put(opened, old, new, live)
    await opened.journal.commit([], [RecordFire(fire_of(one, 1), 9) for one in (old, new, live)])
    await opened.journal.commit([], [DropRoutines(15)])
    assert [await opened.routines.routine(one.id) for one in (old, new, live)] == [None, new, live]
    assert [len(await opened.routines.history(one.id, ALICE, None, 9)) for one in (old, new, live)] == [0, 1, 1]
