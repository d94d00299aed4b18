"""Remembered items of one principal (L11).

Owns: adding, finding, listing, editing and forgetting them; the commit of each change with its event.
Does not own: what is worth keeping (core.memory.judge), erasing tapes (engine.memory.eraser), ranking (ports.memory).
Invariants: content is in no event. An item, its index entries and the event about it are one commit. Changes go one at
a time, so that two equal items that come at once are one.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import msgspec
from msgspec.structs import replace

from palyra.core.errors import Conflict, Invalid, NotFound, Unavailable
from palyra.core.events import Data, Draft
from palyra.core.events.memory import MemoryForgotten, MemoryStored, MemorySuperseded
from palyra.core.ids import MemoryId, Principal, parse_session_id
from palyra.core.memory.judge import MemoryOutcome, MemoryVerdict, judge_found, judge_given
from palyra.core.memory.model import (
    BATCH_MAX,
    CONTENT_LENGTH_MAX,
    HITS_MAX,
    ITEMS_PER_PRINCIPAL_MAX,
    METADATA_BYTES_MAX,
    MemoryHit,
    MemoryItem,
    MemoryQuery,
    MemoryScope,
    MemoryStatus,
    ScopeFilter,
)
from palyra.core.memory.text import content_hash
from palyra.core.memory.wish import MemoryAdded, MemoryOrigin, NewMemory
from palyra.core.redaction import Redactor
from palyra.core.taint import read_label
from palyra.core.trust import Trust, lowest
from palyra.core.writes import EnqueueJob, ForgetMemory, PutMemory, SupersedeMemory, Write
from palyra.engine.agents import AgentDirectory
from palyra.engine.api.memory_records import MemoryEdit
from palyra.engine.api.sessions import SessionService
from palyra.engine.memory.eraser import ACTOR, MemoryEraser, erasure_job
from palyra.engine.memory.item_planner import holds_secret
from palyra.engine.new_ids import IdSource
from palyra.engine.system_tape import SystemTape
from palyra.ports.clock import Clock
from palyra.ports.memory import MemoryPage, MemoryReview, MemoryStores, NoReview

PAGE_MAX = 500
ALIKE_MAX = 20  # So many of the best matches are compared with a new item.
EXPIRED_A_STEP = 500
STEPS_MAX = 1_000
_Scoped = tuple[str, str, str]


@dataclass(slots=True, kw_only=True)
class MemoryService:
    stores: MemoryStores
    sessions: SessionService
    agents: AgentDirectory
    tape: SystemTape
    eraser: MemoryEraser
    redactor: Redactor
    ids: IdSource
    clock: Clock
    wake_jobs: Callable[[], None]
    stored: Callable[[Principal], None] = lambda owner: None  # Tells whoever gives new items their vectors.
    review: MemoryReview = field(default_factory=NoReview)
    items_max: int = ITEMS_PER_PRINCIPAL_MAX
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _counts: dict[Principal, int] = field(default_factory=dict)

    async def add(self, owner: Principal, wishes: Sequence[NewMemory], origin: MemoryOrigin) -> tuple[MemoryAdded, ...]:
        """Stores what a person gives, in one commit. Returns what became of each, in order."""
        if not 1 <= len(wishes) <= BATCH_MAX:
            raise Invalid("items_count", f"a request has 1 to {BATCH_MAX} items")
        # Sorted, so that items of one request are listed in the order in which they were given.
        ids = sorted(self.ids.memory_id() for _ in wishes)
        items = [await self._item(owner, wish, origin, memory_id) for wish, memory_id in zip(wishes, ids, strict=True)]
        secret = await asyncio.to_thread(lambda: [self._has_secret(item) for item in items])
        async with self._lock:
            known = await self._known(owner, items)
            added: list[MemoryAdded] = []
            stored: list[MemoryItem] = []
            for item, has_secret in zip(items, secret, strict=True):
                verdict = judge_given(item, known.get(_scoped(item)), has_secret=has_secret)
                if verdict.outcome is MemoryOutcome.STORED:
                    stored.append(item)
                    known[_scoped(item)] = item
                added.append(_added(item, verdict))
            if stored:
                await self._require_room(owner, len(stored))
                fact = MemoryStored(owner=owner, memory_ids=tuple(item.id for item in stored), origin=origin.name)
                await self._commit(origin.actor, (fact,), (PutMemory(tuple(stored)),))
                self._counts[owner] += len(stored)
        return tuple(added)

    async def keep(self, owner: Principal, wish: NewMemory, origin: MemoryOrigin) -> MemoryAdded:
        """Judges what a model or a rule wants kept, and stores it, or hands it on for review."""
        item = await self._item(owner, wish, origin, self.ids.memory_id())
        has_secret = await asyncio.to_thread(self._has_secret, item)
        async with self._lock:
            verdict = await self._judge(item, has_secret=has_secret)
            if verdict.outcome is MemoryOutcome.REVIEW:
                await self.review.propose(item, verdict.reason)
            if verdict.outcome is MemoryOutcome.STORED:
                await self._require_room(owner, 1)
                await self._store(item, verdict.superseded, origin, "contradiction")
        return _added(item, verdict)

    async def search_memory(self, query: MemoryQuery) -> tuple[MemoryHit, ...]:
        return await self.stores.search.search_memory(query)

    async def search(self, owner: Principal, text: str, limit: int) -> tuple[MemoryHit, ...]:
        """Finds the owner's items in all scopes."""
        scopes = await self.stores.upkeep.scopes(owner)
        query = MemoryQuery(
            text=text, owner=owner, scopes=scopes, limit=min(limit, HITS_MAX), at_ms=self.clock.now_ms()
        )
        return await self.search_memory(query)

    async def list(self, owner: Principal, page: MemoryPage) -> tuple[MemoryItem, ...]:
        asked = replace(page, limit=min(page.limit, PAGE_MAX), at_ms=self.clock.now_ms())
        return await self.stores.views.memories(owner, asked)

    async def get(self, owner: Principal, memory_id: MemoryId) -> MemoryItem:
        item = await self.stores.views.memory(memory_id, owner)
        if item is None or self._is_over(item):
            raise NotFound("memory_unknown", f"there is no memory item {memory_id}; palyra memory list shows yours")
        return item

    async def uses(self, owner: Principal, memory_id: MemoryId) -> int:
        counters = await self.stores.views.counters(memory_id, owner)
        return counters.uses_count if counters is not None else 0

    async def edit(self, owner: Principal, memory_id: MemoryId, change: MemoryEdit, actor: Principal) -> MemoryItem:
        """Stores the changed item under a new id. The earlier one stays as its history."""
        async with self._lock:
            item = await self.get(owner, memory_id)
            if item.status is not MemoryStatus.ACTIVE:
                message = f"memory item {memory_id} was superseded by {item.superseded_by}; edit that one"
                raise Conflict("memory_superseded", message, is_retryable=False)
            changed = self._changed(item, change)
            if await asyncio.to_thread(self._has_secret, changed):
                raise Invalid("memory_secret", "the text holds a secret, and secrets are not remembered; leave it out")
            same = (await self._known(owner, (changed,))).get(_scoped(changed))
            if same is not None and same.id != item.id:
                raise Conflict("memory_known", f"memory item {same.id} says the same already", is_retryable=False)
            origin = MemoryOrigin(name="api", actor=actor)
            await self._store(changed, item, origin, "edit")
        return changed

    async def forget(self, owner: Principal, memory_id: MemoryId, actor: Principal) -> tuple[MemoryId, ...]:
        """Removes an item and its history for good, also from tapes that were shown it. Returns what was removed."""
        async with self._lock:
            item = await self.stores.views.memory(memory_id, owner)
            if item is None:
                raise NotFound("memory_unknown", f"there is no memory item {memory_id}; palyra memory list shows yours")
            gone = (memory_id, *await self.stores.upkeep.history(memory_id))
            await self._forget(owner, gone, actor, "asked")
        await self.eraser.erase(gone)
        return gone

    async def forget_expired(self) -> int:
        """Removes items whose time is over. They are found no more from that moment on; this removes their text."""
        now_ms, count = self.clock.now_ms(), 0
        for _ in range(STEPS_MAX):
            found = await self.stores.upkeep.expired(now_ms, EXPIRED_A_STEP)
            for owner in dict.fromkeys(owner for owner, _ in found):
                gone = tuple(memory_id for each, memory_id in found if each == owner)
                async with self._lock:
                    await self._forget(owner, gone, ACTOR, "expired")
                await self.eraser.erase(gone)
                count += len(gone)
            if len(found) < EXPIRED_A_STEP:
                break
        # An item may have been shown at the very moment in which it was forgotten.
        left = await self.stores.upkeep.stray_mentions(EXPIRED_A_STEP)
        if left:
            await self.eraser.erase(left)
        return count

    async def _judge(self, item: MemoryItem, *, has_secret: bool) -> MemoryVerdict:
        same = (await self._known(item.owner, (item,))).get(_scoped(item))
        query = MemoryQuery(
            text=item.content, owner=item.owner, scopes=(_scope(item),), limit=ALIKE_MAX, at_ms=item.created_at_ms
        )
        alike = await self.stores.search.search_memory(query)
        return judge_found(item, same, [hit.item for hit in alike], has_secret=has_secret)

    async def _store(self, item: MemoryItem, superseded: MemoryItem | None, origin: MemoryOrigin, reason: str) -> None:
        """Stores an item, and makes the one that it replaces history, in one commit."""
        facts: list[Data] = [MemoryStored(owner=item.owner, memory_ids=(item.id,), origin=origin.name)]
        writes: list[Write] = []
        if superseded is not None:
            facts.append(
                MemorySuperseded(owner=item.owner, memory_id=superseded.id, superseded_by=item.id, reason=reason)
            )
            writes.append(SupersedeMemory(memory_id=superseded.id, superseded_by=item.id, at_ms=item.created_at_ms))
        writes.append(PutMemory((item,)))
        await self._commit(origin.actor, facts, writes)
        self._counts[item.owner] = self._counts.get(item.owner, 0) + 1

    async def _forget(self, owner: Principal, gone: tuple[MemoryId, ...], actor: Principal, reason: str) -> None:
        """The job erases what tapes hold of the items, also after a crash, or when a run still needs its tape."""
        job = erasure_job(self.ids, self.clock)
        has_mentions = bool(await self.stores.upkeep.mentions(gone))
        writes: list[Write] = [ForgetMemory(gone), *([EnqueueJob(job)] if has_mentions else [])]
        await self._commit(actor, (MemoryForgotten(owner=owner, memory_ids=gone, reason=reason),), writes)
        self._counts.pop(owner, None)
        self.wake_jobs()

    async def _commit(self, actor: Principal, facts: Sequence[Data], writes: Sequence[Write]) -> None:
        now_ms = self.clock.now_ms()
        trust = Trust.SYSTEM if actor.startswith("system:") else Trust.OPERATOR
        drafts = [Draft(data=data, actor=actor, trust=trust, at_ms=now_ms) for data in facts]
        await self.tape.append(drafts, writes)
        for fact in facts:
            if isinstance(fact, MemoryStored):
                self.stored(fact.owner)

    async def _known(self, owner: Principal, items: Sequence[MemoryItem]) -> dict[_Scoped, MemoryItem]:
        """Returns active items of the same content, by scope. Those whose time is over make room first."""
        found = await self.stores.views.memories_by_hash([item.content_hash for item in items], owner)
        over = tuple(item.id for item in found if self._is_over(item))
        if over:
            await self._forget(owner, over, ACTOR, "expired")
        return {_scoped(item): item for item in found if item.id not in over}

    async def _require_room(self, owner: Principal, more: int) -> None:
        """Counts once, then keeps the count: counting a million rows for each item would take too long."""
        if owner not in self._counts or self._counts[owner] + more > self.items_max:
            self._counts[owner] = await self.stores.upkeep.count_items(owner)
        if self._counts[owner] + more > self.items_max:
            message = f"{owner} has {self._counts[owner]} memory items, and {self.items_max} are the most; forget some"
            raise Unavailable("memory_full", message)

    async def _item(self, owner: Principal, wish: NewMemory, origin: MemoryOrigin, memory_id: MemoryId) -> MemoryItem:
        _require_limits(wish)
        now_ms = self.clock.now_ms()
        taint = tuple(sorted({*origin.taint, *map(read_label, wish.taint)}))
        levels = (origin.trust, wish.trust or origin.trust, Trust.EXTERNAL if taint else origin.trust)
        return MemoryItem(
            id=memory_id,
            owner=owner,
            scope=wish.scope,
            scope_id=await self._scope_id(owner, wish),
            kind=wish.kind,
            content=wish.content,
            content_hash=content_hash(wish.content, wish.source),
            trust=lowest(levels),
            taint=taint,
            source=wish.source,
            metadata=wish.metadata,
            created_at_ms=now_ms,
            updated_at_ms=now_ms,
            expires_at_ms=None if wish.ttl_s is None else now_ms + wish.ttl_s * 1_000,
        )

    async def _scope_id(self, owner: Principal, wish: NewMemory) -> str:
        """Returns the id that the scope names. A session must be the owner's, and an agent must exist."""
        match wish.scope:
            case MemoryScope.PRINCIPAL:
                return owner
            case MemoryScope.AGENT:
                return self.agents.find(wish.scope_id).name
            case MemoryScope.SESSION if wish.scope_id:
                return (await self.sessions.get(owner, parse_session_id(wish.scope_id))).id
            case MemoryScope.CHANNEL if wish.scope_id:
                return wish.scope_id
            case _:
                raise Invalid("scope_id_missing", f"an item of scope {wish.scope.value} needs a scope_id")

    def _changed(self, item: MemoryItem, change: MemoryEdit) -> MemoryItem:
        """Trust and sources stay: a changed text may still hold the words that it came with (L8)."""
        given, now_ms = change.given(), self.clock.now_ms()
        if "ttl_s" in given:
            ttl_s = cast(int | None, given.pop("ttl_s"))
            given["expires_at_ms"] = None if ttl_s is None else now_ms + ttl_s * 1_000
        changed = replace(item, **given, id=self.ids.memory_id(), created_at_ms=now_ms, updated_at_ms=now_ms)
        _require_limits(NewMemory(content=changed.content, metadata=changed.metadata))
        return replace(changed, content_hash=content_hash(changed.content, changed.source))

    def _has_secret(self, item: MemoryItem) -> bool:
        return holds_secret(self.redactor, item)

    def _is_over(self, item: MemoryItem) -> bool:
        return item.expires_at_ms is not None and item.expires_at_ms <= self.clock.now_ms()


def _require_limits(wish: NewMemory) -> None:
    if not 1 <= len(wish.content) <= CONTENT_LENGTH_MAX:
        raise Invalid("content_length", f"the content of an item has 1 to {CONTENT_LENGTH_MAX} characters")
    if len(msgspec.json.encode(wish.metadata)) > METADATA_BYTES_MAX:
        raise Invalid("metadata_large", f"the metadata of an item takes at most {METADATA_BYTES_MAX} bytes as JSON")


def _scope(item: MemoryItem) -> ScopeFilter:
    return ScopeFilter(item.scope, item.scope_id)


def _scoped(item: MemoryItem) -> _Scoped:
    return item.scope.value, item.scope_id, item.content_hash


def _added(item: MemoryItem, verdict: MemoryVerdict) -> MemoryAdded:
    is_stored = verdict.outcome is MemoryOutcome.STORED
    known = verdict.same.id if verdict.same is not None else None
    return MemoryAdded(id=item.id if is_stored else known, status=verdict.outcome, reason=verdict.reason)
