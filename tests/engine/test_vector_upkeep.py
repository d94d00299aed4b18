"""Vectors in the background: new items, a changed embedder, a failing one, and one that costs money."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from itertools import pairwise
from pathlib import Path

import apsw
import pytest

from palyra.core.budget import Budget, BudgetAction, BudgetPeriod, BudgetScope
from palyra.core.errors import Unavailable
from palyra.core.events.model import Finish, Usage
from palyra.core.ids import Principal
from palyra.core.jobs.model import Job, JobState
from palyra.core.writes import StoreVectors
from palyra.engine.api.jobs import JobRequest
from palyra.engine.engine import Engine
from palyra.engine.jobs.vector_upkeep import RE_EMBEDDING, VectorUpkeep
from palyra.ports.embedder import EmbedderTraits, UnembeddedItem
from palyra.ports.jobs import JobFilter
from palyra.ports.provider import Completed, Delta, ModelRequest, TextDelta
from tests.support.engines import ALICE, OWNER, Workshop
from tests.support.memories import item, put_items
from tests.support.recall_kills import Counting
from tests.support.waiting import until

pytestmark = pytest.mark.anyio


def remember(workshop: Workshop, first: int, count: int, owner: Principal = OWNER) -> None:
    """Writes items while no daemon runs."""
    connection = apsw.Connection(str(workshop.journal_settings.path))
    put_items(connection, [item(number, f"cat {number}", owner=owner) for number in range(first, first + count)])
    connection.close()


async def embedded(engine: Engine, version: str) -> None:
    async def is_done() -> bool:
        return await engine.vectors.index.count_unembedded(version) == 0

    await until(is_done, f"vectors of {version}")


async def jobs(engine: Engine) -> list[Job]:
    return list(await engine.jobs.views.list_jobs(None, JobFilter(kind=RE_EMBEDDING.name)))


async def test_new_items_get_vectors_without_a_job(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, [])
    workshop.embedder = Counting(1)
    async with workshop.open():
        pass
    remember(workshop, 1, 600)
    async with workshop.open() as engine:
        await embedded(engine, "counting-1")
        assert await jobs(engine) == []


async def test_a_changed_embedder_re_embeds_everything_in_a_job_that_tells_its_progress(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, [])
    workshop.embedder = Counting(1)
    async with workshop.open():
        pass
    remember(workshop, 1, 600)
    async with workshop.open() as engine:
        await embedded(engine, "counting-1")
    workshop.embedder = Counting(2, width=24)
    async with workshop.open() as engine:
        await embedded(engine, "counting-2")

        async def is_over() -> bool:
            return [job.state for job in await jobs(engine)] == [JobState.DONE]

        await until(is_over, "the end of the job")
        assert [job.progress for job in await jobs(engine)] == ["embedded 600 items"]


async def test_items_that_are_gone_get_no_vector(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, [])
    async with workshop.open() as engine:
        (vector,) = await Counting(1).embed(["x"], OWNER)
        await engine.vectors.journal.commit((), (StoreVectors("counting-1", ((7, vector),)),))
        assert await engine.vectors.index.count_unembedded("counting-1") == 0


class Gone:
    traits = EmbedderTraits(version="gone", dimensions=4)

    async def embed(self, texts: Sequence[str], principal: Principal) -> tuple[bytes, ...]:
        raise Unavailable("gone", "the embedder is gone")


class Away(Gone):
    """Notes for whom it was asked, and when."""

    def __init__(self) -> None:
        self.asked: list[Principal] = []
        self.asked_s: list[float] = []

    async def embed(self, texts: Sequence[str], principal: Principal) -> tuple[bytes, ...]:
        self.asked.append(principal)
        self.asked_s.append(asyncio.get_running_loop().time())
        return await super().embed(texts, principal)


async def ignore(request: JobRequest) -> None: ...


async def test_an_embedder_that_is_gone_fails_the_job_and_not_the_daemon(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, [])
    workshop.embedder = Counting(1)
    async with workshop.open():
        pass
    remember(workshop, 1, 3)
    async with workshop.open() as engine:
        await embedded(engine, "counting-1")
    workshop.embedder = Gone()
    async with workshop.open() as engine:

        async def has_failed() -> bool:
            return any("the embedder is gone" in (job.error or "") for job in await jobs(engine))

        await until(has_failed, "a failed attempt")


class OneLeft:
    """An index with one item that never gets its vector."""

    async def count_unembedded(self, version: str) -> int:
        return 0

    async def new_items(self, limit: int, but_for: Sequence[Principal] = ()) -> tuple[UnembeddedItem, ...]:
        return () if but_for else (UnembeddedItem(1, OWNER, "cat"),)


async def test_an_embedder_that_stays_away_is_asked_less_and_less_often() -> None:
    """With an endpoint each try is a run on a tape of its own, and a budget may be used up for a month."""
    away = Away()
    upkeep = VectorUpkeep(OneLeft(), away, None, rest_first_s=0.01)  # type: ignore[arg-type]
    keeping = asyncio.create_task(upkeep.keep(ignore))
    await until(lambda: len(away.asked_s) == 5)
    keeping.cancel()
    rests_s = [after - before for before, after in pairwise(away.asked_s)]
    assert all(rest_s > 0.009 * 2**count for count, rest_s in enumerate(rests_s))


class OneLeftEach:
    """An index with one item of each owner that never gets its vector."""

    def __init__(self, *owners: Principal) -> None:
        self.owners = list(owners)

    async def count_unembedded(self, version: str) -> int:
        return 0

    async def new_items(self, limit: int, but_for: Sequence[Principal] = ()) -> tuple[UnembeddedItem, ...]:
        return tuple(UnembeddedItem(1, owner, "cat") for owner in self.owners if owner not in but_for)


async def test_an_item_asks_again_for_its_owner_and_for_nobody_else_who_was_refused() -> None:
    """With an endpoint each try is a run on a tape of its own. Others' items must not make more of them."""
    away = Away()
    upkeep = VectorUpkeep(OneLeftEach(ALICE, OWNER), away, None)  # type: ignore[arg-type]
    keeping = asyncio.create_task(upkeep.keep(ignore))
    await until(lambda: len(away.asked) == 2)
    upkeep.wake(OWNER)
    await until(lambda: len(away.asked) > 2)
    upkeep.wake(OWNER)
    await until(lambda: len(away.asked) > 3)
    keeping.cancel()
    assert away.asked == [ALICE, OWNER, OWNER, OWNER]


async def test_somebody_who_was_refused_keeps_nobody_waiting_for_long() -> None:
    """Items that a candidate became wake nobody. They are found without asking again for who was refused."""
    away = Away()
    index = OneLeftEach(ALICE)
    upkeep = VectorUpkeep(index, away, None, rest_first_s=0.02)  # type: ignore[arg-type]
    keeping = asyncio.create_task(upkeep.keep(ignore))
    await until(lambda: len(away.asked) == 8)  # Now it rests for 128 times as long as at first.
    index.owners.append(OWNER)
    await until(lambda: OWNER in away.asked)
    keeping.cancel()
    assert away.asked == [*[ALICE] * 8, OWNER]


class Batches:
    """An endpoint without a network: its calls are model calls of runs."""

    traits = EmbedderTraits(version="batches", dimensions=16, is_metered=True)
    model = "embedding"

    def __init__(self) -> None:
        self.texts: dict[str, Sequence[str]] = {}
        self.requests: list[ModelRequest] = []

    def open(self, texts: Sequence[str]) -> str:
        self.texts[f"b-{len(self.texts)}"] = texts
        return f"b-{len(self.texts) - 1}"

    def input_tokens(self, batch: str) -> int:
        return 5 * len(self.texts[batch])

    def take(self, batch: str) -> tuple[bytes, ...] | None:
        is_filled = any(batch in str(request.messages[-1]) for request in self.requests)
        return (b"\x00\x00\x80\x3f" * 16,) * len(self.texts[batch]) if is_filled else None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        self.requests.append(request)
        yield TextDelta("Embedded.")
        yield Completed(Finish.STOP, Usage(input_tokens=500, output_tokens=0))


async def test_an_endpoint_is_charged_to_the_owner_of_the_items_and_their_text_is_on_no_tape(tmp_path: Path) -> None:
    batches = Batches()
    workshop = Workshop(tmp_path, [])
    workshop.providers = {"scripted": workshop.provider, "embedding": batches}
    workshop.embedder = batches
    async with workshop.open():
        pass
    remember(workshop, 1, 3, ALICE)
    async with workshop.open() as engine:
        await embedded(engine, "batches")
        used = await engine.vectors.embedder.embed(["a question"], ALICE)
        assert len(used) == 1
    connection = apsw.Connection(str(workshop.journal_settings.path))
    charged = connection.execute("SELECT owner, purpose FROM sessions").fetchall()
    assert set(charged) == {(ALICE, "memory.embedding")}
    texts = b"".join(bytes(data) for (data,) in connection.execute("SELECT data FROM events"))
    assert b"cat 1" not in texts
    assert b'"input_tokens":500' in texts
    connection.close()


async def test_a_spent_budget_stops_an_endpoint(tmp_path: Path) -> None:
    batches = Batches()
    workshop = Workshop(tmp_path, [])
    workshop.providers = {"scripted": workshop.provider, "embedding": batches}
    workshop.embedder = batches
    workshop.budgets = (
        Budget(scope=BudgetScope.GLOBAL, period=BudgetPeriod.NONE, action=BudgetAction.DENY, limit_tokens=500),
    )
    async with workshop.open() as engine:
        await engine.vectors.embedder.embed(["a question"], OWNER)
        with pytest.raises(Unavailable) as refused:
            await engine.vectors.embedder.embed(["another question"], OWNER)
        assert refused.value.code == "embedder_failed"
        assert len(batches.requests) == 1
