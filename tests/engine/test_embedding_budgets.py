"""Caps hold for embeddings too: a batch is reserved at what it holds, however little its run's tape says of it."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest

from palyra.core.budget import Budget, BudgetScope
from palyra.core.estimate import estimate_tokens, text_bytes
from palyra.core.events.model import Finish, Usage
from palyra.engine.engine import Engine
from palyra.engine.jobs.vector_upkeep import STEP_ITEMS
from palyra.ports.embedder import EmbedderTraits
from palyra.ports.provider import Completed, Delta, ModelRequest, TextDelta
from palyra.ports.router import ModelCard
from tests.engine.test_vector_upkeep import remember
from tests.support.engines import ALICE, OWNER, Workshop
from tests.support.waiting import until

pytestmark = pytest.mark.anyio
LIMIT = 20_000
LONG = "A sentence that somebody wants to find again. " * 400
TOGETHER = 20


class CountingBatches:
    """An endpoint without a network, which counts the tokens of the texts, unless `is_counting` is False."""

    traits = EmbedderTraits(version="batches", dimensions=16, is_metered=True)
    model = "embedding"

    def __init__(self, *, is_counting: bool = True) -> None:
        self.is_counting = is_counting
        self.texts: dict[str, Sequence[str]] = {}
        self.filled: dict[str, int] = {}

    def open(self, texts: Sequence[str]) -> str:
        name = f"b-{len(self.texts)}"
        self.texts[name] = texts
        return name

    def input_tokens(self, batch: str) -> int:
        return sum(estimate_tokens(text_bytes(text)) for text in self.texts[batch])

    def take(self, batch: str) -> tuple[bytes, ...] | None:
        return (b"\x00\x00\x80\x3f" * 16,) * len(self.texts[batch]) if batch in self.filled else None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        batch = str(getattr(request.messages[-1], "text", "")).strip().splitlines()[-1]
        await asyncio.sleep(0.005)
        self.filled[batch] = self.input_tokens(batch)
        yield TextDelta("Embedded.")
        yield Completed(
            Finish.STOP, Usage(input_tokens=self.filled[batch], output_tokens=0) if self.is_counting else None
        )


def shop(root: Path, batches: CountingBatches, limit: int = LIMIT, scope: BudgetScope = BudgetScope.GLOBAL) -> Workshop:
    workshop = Workshop(root, [])
    workshop.providers = {"scripted": workshop.provider, "embedding": batches}
    # A model of embeddings takes this much of one text, and many texts at once.
    workshop.describe = lambda name: ModelCard(name=name, provider=name, kind="", id=name, window_tokens=8_192)
    workshop.embedder = batches
    workshop.budgets = (Budget(scope=scope, limit_tokens=limit),)
    return workshop


async def embed_together(engine: Engine, text: str, count: int = TOGETHER) -> int:
    """Returns how many of so many requests at once were answered."""
    asked = [engine.vectors.embedder.embed([text], OWNER) for _ in range(count)]
    return sum(not isinstance(one, BaseException) for one in await asyncio.gather(*asked, return_exceptions=True))


async def test_many_batches_at_once_overshoot_a_cap_by_at_most_one(tmp_path: Path) -> None:
    batches = CountingBatches()
    async with shop(tmp_path, batches).open() as engine:
        await engine.vectors.embedder.embed(["a question"], OWNER)  # Now the model's estimates are proven.
        await embed_together(engine, LONG)
    one = estimate_tokens(text_bytes(LONG))
    assert LIMIT <= sum(batches.filled.values()) <= LIMIT + one


async def test_a_batch_longer_than_the_window_of_one_text_is_embedded(tmp_path: Path) -> None:
    batches = CountingBatches()
    async with shop(tmp_path, batches, limit=10_000_000).open() as engine:
        assert len(await engine.vectors.embedder.embed([LONG] * 20, OWNER)) == 20


async def test_a_batch_that_nobody_counted_is_paid_at_its_estimate(tmp_path: Path) -> None:
    batches = CountingBatches(is_counting=False)
    async with shop(tmp_path, batches).open() as engine:
        for _ in range(TOGETHER):
            await embed_together(engine, LONG, 1)
    assert LIMIT <= sum(batches.filled.values()) <= LIMIT + estimate_tokens(text_bytes(LONG))


async def test_one_whose_budget_is_used_up_holds_up_nobodys_vectors(tmp_path: Path) -> None:
    workshop = shop(tmp_path, CountingBatches(), scope=BudgetScope.PRINCIPAL)
    async with workshop.open() as engine:
        await engine.vectors.embedder.embed([LONG] * 4, ALICE)
    remember(workshop, 1, STEP_ITEMS + 1, ALICE)
    remember(workshop, STEP_ITEMS + 2, 3, OWNER)
    async with workshop.open() as engine:

        async def has_only_hers_left() -> bool:
            left = await engine.vectors.index.new_items(2 * STEP_ITEMS)
            return [item.owner for item in left] == [ALICE] * (STEP_ITEMS + 1)

        await until(has_only_hers_left, "the vectors of the other", timeout_s=20)
