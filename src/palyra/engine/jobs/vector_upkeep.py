"""Gives remembered items their vectors: new ones at once, all of them after the embedder was changed.

Owns: the order and the pace. Does not own: vectors (ports.embedder), where they are kept (adapters.store).
A search finds items by their words until they have a vector. Each step is one commit, and finds by itself what is left,
so a crash repeats at most one step.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import structlog

from palyra.core.errors import PalyraError, Unavailable
from palyra.core.ids import JobId, Principal
from palyra.core.jobs.model import Job, JobKind
from palyra.core.plurals import counted
from palyra.core.writes import StoreVectors
from palyra.engine.api.jobs import JobRequest
from palyra.engine.jobs.handler import JobDone, JobFailed, JobResult, Report
from palyra.engine.jobs.upkeep import ACTOR
from palyra.ports.embedder import Embedder, UnembeddedItem, VectorIndex
from palyra.ports.journal import Journal

STEP_ITEMS = 256  # A step takes some 20 ms with the bundled embedder, and one request with an endpoint.
LOOK_EVERY_S = 1.0  # For items that were written without waking this.
REST_S = 30.0  # After a failure; a missing endpoint is not asked in a loop.
REST_MAX_S = 3_600.0  # A try leaves a failed run on a tape, and a budget may be used up for a month.

RE_EMBEDDING = JobKind(
    name="re-embedding",
    summary="give every remembered item a vector of the embedder that is set now",
    at_once_max=1,
    attempts_max=20,
    timeout_s=6 * 3_600.0,
)

Find = Callable[[Sequence[Principal]], Awaitable[tuple[UnembeddedItem, ...]]]

log = structlog.get_logger()


@dataclass(slots=True)
class VectorUpkeep:
    """Only one step is made at a time, so that nothing is embedded or charged twice.

    Who was refused is left out for longer and longer, from `rest_first_s` on, or until an item of theirs is written.
    """

    index: VectorIndex
    embedder: Embedder
    journal: Journal
    rest_first_s: float = REST_S
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _refused: dict[Principal, PalyraError] = field(default_factory=dict)
    _step: asyncio.Lock = field(default_factory=asyncio.Lock)

    def wake(self, owner: Principal) -> None:
        """Says that items of this owner were written."""
        self._refused.pop(owner, None)
        self._woken.set()

    async def keep(self, enqueue: Callable[[JobRequest], Awaitable[JobId | None]]) -> None:
        """Queues the job if the embedder was changed, then embeds new items; never ends by itself."""
        if await self.count_stale():
            request = JobRequest(kind=RE_EMBEDDING.name, principal=ACTOR, dedupe_key=RE_EMBEDDING.name, priority=-10)
            await enqueue(request)
        clock = asyncio.get_running_loop().time
        rest_s, again_s = self.rest_first_s, 0.0
        while True:
            self._woken.clear()
            wait_s, is_due = LOOK_EVERY_S, clock() >= again_s
            if is_due:
                self._refused.clear()
            try:
                await self.embed_new()
                rest_s = self.rest_first_s
            except PalyraError as error:
                if error not in self._refused.values():
                    log.warning("items_not_embedded", code=error.code, message=error.message)
                if is_due:
                    again_s, rest_s = clock() + rest_s, min(2 * rest_s, REST_MAX_S)
                # Others' items may be written without waking this.
                wait_s = min(again_s - clock(), self.rest_first_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()

    async def perform(self, job: Job, report: Report) -> JobResult:
        """The job: embeds everything that has no vector of the embedder that is set now."""
        version = self.embedder.traits.version
        total_count = await self.index.count_unembedded(version)

        async def find(refused: Sequence[Principal]) -> tuple[UnembeddedItem, ...]:
            return await self.index.unembedded(version, STEP_ITEMS, refused)

        def tell(done_count: int) -> None:
            report(f"embedded {done_count} of {max(total_count, done_count)} items")

        try:
            done_count = await self._embed_all(find, {}, tell)
        except Unavailable as error:
            return JobFailed(message=f"{error.code}: {error.message}")
        report(f"embedded {counted(done_count, 'item')}")
        return JobDone()

    async def count_stale(self) -> int:
        """Returns how many items have a vector of another embedder."""
        lacking_count = await self.index.count_unembedded(self.embedder.traits.version)
        return lacking_count - min(lacking_count, len(await self.index.new_items(lacking_count or 1)))

    async def embed_new(self) -> None:
        """Embeds items that have no vector, until there is none but of those who were refused."""

        async def find(refused: Sequence[Principal]) -> tuple[UnembeddedItem, ...]:
            return await self.index.new_items(STEP_ITEMS, refused)

        await self._embed_all(find, self._refused)

    async def _embed_all(
        self, find: Find, refused: dict[Principal, PalyraError], tell: Callable[[int], None] = lambda done_count: None
    ) -> int:
        """Embeds what `find` finds, step by step. Returns how many, or raises why some could not be.

        An owner whose items cannot be embedded, as when a budget is used up, holds up no other.
        """
        done_count = 0
        while True:
            async with self._step:
                items = await find(tuple(refused))
                done_count += await self._embed(items, refused)
            if not items:
                break
            tell(done_count)
        if refused:
            raise next(iter(refused.values()))
        return done_count

    async def _embed(self, items: Sequence[UnembeddedItem], refused: dict[Principal, PalyraError]) -> int:
        owners: dict[Principal, list[UnembeddedItem]] = {}
        for item in items:
            owners.setdefault(item.owner, []).append(item)
        done_count = 0
        for owner, own in owners.items():
            try:
                vectors = await self.embedder.embed([item.content for item in own], owner)
            except PalyraError as error:
                log.warning("items_not_embedded", code=error.code, message=error.message)
                refused[owner] = error
                continue
            numbered = tuple(zip([item.number for item in own], vectors, strict=True))
            await self.journal.commit((), (StoreVectors(self.embedder.traits.version, numbered),))
            done_count += len(own)
        return done_count
