"""Law L4: live frames never wait for the disk, nothing is acknowledged early, and one client's pace is its own."""

import asyncio
from pathlib import Path

import pytest

from palyra.adapters.providers.scripted import Script
from palyra.adapters.store.sqlite.connection import JournalSettings
from palyra.core.events import Event
from palyra.core.trust import Trust
from palyra.engine.hub import BUFFERED_FRAMES_MAX, LiveFrame
from tests.support.asking import SLOW, ask, calls, finished, first, says, wait_for
from tests.support.engines import ALICE, OWNER, Workshop
from tests.support.slow_disk import NAME, SlowDisk

pytestmark = pytest.mark.anyio


async def test_tokens_flow_and_nothing_is_acknowledged_while_the_disk_stalls(tmp_path: Path) -> None:
    disk = SlowDisk()
    workshop = Workshop(tmp_path, SLOW)
    workshop.journal_settings = JournalSettings(path=tmp_path / "journal.db", vfs=NAME, is_exclusive=True)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        frames = await engine.runs.follow(OWNER, record.id, None)
        await first(frames, "model.delta")
        disk.hold()
        said = asyncio.create_task(engine.runs.send_input(OWNER, record.id, "are you there?", Trust.OPERATOR))
        await asyncio.to_thread(disk.is_waiting.wait)
        heard = [await anext(frames) for _ in range(10)]
        assert all(isinstance(frame, LiveFrame) for frame in heard)
        assert not said.done()
        disk.release()
        await said
        await engine.runs.cancel(OWNER, record.id)
        await finished(engine, record)


async def test_a_follower_that_never_reads_delays_nobody_and_misses_nothing(tmp_path: Path) -> None:
    long_text = " ".join(f"word{number}" for number in range(BUFFERED_FRAMES_MAX * 3))
    workshop = Workshop(tmp_path, [Script(turns=(says(long_text),))])
    async with workshop.open() as engine:
        record, slow = await engine.runs.start_and_follow(OWNER, ask())
        await wait_for(engine, record.id, "run.done")
        seen = [frame async for frame in slow]
    events = [frame for frame in seen if isinstance(frame, Event)]
    assert [event.seq for event in events] == list(range(2, 2 + len(events)))
    assert events[-1].type == "run.done"


async def test_a_follower_that_goes_away_leaves_nothing_behind(tmp_path: Path) -> None:
    async with Workshop(tmp_path, SLOW).open() as engine:
        record = await engine.runs.start(OWNER, ask())
        frames = await engine.runs.follow(OWNER, record.id, None)
        await first(frames, "model.delta")
        await frames.aclose()
        assert engine._parts.hub._followers == {}
        await engine.runs.cancel(OWNER, record.id)


@pytest.mark.parametrize("cut", [1, 2, 5, 9, 14])
async def test_following_on_from_a_cursor_repeats_and_skips_nothing(tmp_path: Path, cut: int) -> None:
    workshop = Workshop(tmp_path, [Script(turns=(calls("mark.read", text="a"), says("Done.")))])
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        whole = await finished(engine, record)
    async with workshop.open() as engine:
        rest = await engine.runs.follow(OWNER, record.id, whole[cut - 1].seq)
        assert whole[:cut] + [frame async for frame in rest] == whole


async def test_a_journal_wide_feed_shows_every_own_event_once_in_order(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, [Script(turns=(calls("mark.read", text="a"), says("Done.")))])
    async with workshop.open() as engine:
        feed = await engine.feed.all(OWNER, 0)
        records = await asyncio.gather(*[engine.runs.start(OWNER, ask()) for _ in range(5)])
        for record in records:
            await finished(engine, record)
        tapes = [await engine.sessions.tape(OWNER, record.session_id, 0, 100) for record in records]
        wanted = sorted((event for tape in tapes for event in tape), key=lambda event: event.position)
        seen: list[Event] = []
        while len(seen) < len(wanted):
            frame = await anext(feed)
            seen += [frame] if isinstance(frame, Event) else []
        assert seen == wanted


async def test_a_journal_wide_feed_carries_live_text_of_own_sessions_alone(tmp_path: Path) -> None:
    async with Workshop(tmp_path, SLOW).open() as engine:
        own, others = await engine.feed.all(OWNER, None), await engine.feed.all(ALICE, None)
        theirs = asyncio.ensure_future(anext(others))
        record = await engine.runs.start(OWNER, ask())
        assert isinstance(await first(own, "model.delta"), LiveFrame)
        assert not theirs.done()
        theirs.cancel()
        await engine.runs.cancel(OWNER, record.id)
