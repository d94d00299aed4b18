"""What every store promises of remembered items: whole, found by their owner in their scopes alone, and gone when gone."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from palyra.core.errors import Conflict
from palyra.core.ids import CandidateId, MemoryId, Principal, RunId, SessionId, StreamId
from palyra.core.memory.model import (
    MemoryCounters,
    MemoryItem,
    MemoryKind,
    MemoryQuery,
    MemoryScope,
    MemorySource,
    ScopeFilter,
)
from palyra.core.memory.text import content_hash
from palyra.core.trust import Trust, lowest
from palyra.core.writes import (
    ForgetMemory,
    MentionMemory,
    PutMemory,
    RestoreMemory,
    SupersedeMemory,
    TouchMemory,
    UnmentionMemory,
    Write,
)
from palyra.ports.memory import MemoryPage
from tests.contract.conftest import Opened, Store
from tests.support.examples import examples
from tests.support.journals import ALICE, BOB
from tests.support.memory import AT_MS, item_of

pytestmark = pytest.mark.anyio

OF_ALICE = ScopeFilter(MemoryScope.PRINCIPAL, ALICE)


async def write(opened: Opened, *writes: Write) -> None:
    await opened.journal.commit([], writes)


async def put(opened: Opened, *items: MemoryItem) -> None:
    await write(opened, PutMemory(items))


def asking(text: str, owner: Principal = ALICE, **fields: object) -> MemoryQuery:
    given = {"scopes": (ScopeFilter(MemoryScope.PRINCIPAL, owner),), "at_ms": AT_MS, **fields}
    return MemoryQuery(text=text, owner=owner, **given)  # type: ignore[arg-type]


async def found(opened: Opened, query: MemoryQuery) -> list[MemoryId]:
    return [hit.item.id for hit in await opened.memory_search.search_memory(query)]


async def test_an_item_comes_back_as_it_was_stored(store: Store) -> None:
    opened = await store.open()
    plain = item_of("The cat is grey.\x00\n\tÄ 猫", 1, ALICE)
    full = replace(
        item_of("The dog is brown.", 2, ALICE),
        scope=MemoryScope.CHANNEL,
        scope_id="discord",
        kind=MemoryKind.DECISION,
        trust=Trust.EXTERNAL,
        taint=("http:a", "mcp:b"),
        confidence_bps=7_500,
        source=MemorySource(
            conversation="c", position=-3, speaker="Ann", at="last May", session_id=SessionId(StreamId("s")),
            run_id=RunId("r"), seq=4,
        ),
        metadata={"n": 1, "deep": {"list": [None, True, "x"]}},
        expires_at_ms=AT_MS + 5,
        candidate_id=CandidateId("C" * 26),
    )  # fmt: skip
    await put(opened, plain, full)
    opened = await store.reopen()
    assert await opened.memory.memories(ALICE, MemoryPage()) == (plain, full)
    assert await opened.memory.memory(plain.id, ALICE) == plain
    assert await opened.memory.memory(plain.id, BOB) is None
    assert await opened.memory.memory_by_hash(plain.content_hash, ALICE, OF_ALICE) == plain
    assert await opened.memory.memory_by_hash(plain.content_hash, BOB, OF_ALICE) is None
    hashes = [plain.content_hash, full.content_hash, "none"]
    assert {item.id for item in await opened.memory.memories_by_hash(hashes, ALICE)} == {plain.id, full.id}
    assert await opened.memory.memories_by_hash(hashes, BOB) == ()
    assert await opened.memory_upkeep.scopes(ALICE) == (ScopeFilter(MemoryScope.CHANNEL, "discord"), OF_ALICE)
    assert await opened.memory_upkeep.count_items(ALICE) == 2


async def test_first_item_is_found_by_who_looked_before_it_was_stored(store: Store) -> None:
    opened = await store.open()
    assert await found(opened, asking("cat")) == []
    assert await opened.memory.memories(ALICE, MemoryPage()) == ()
    cat = item_of("The cat is grey.", 1, ALICE)
    await put(opened, cat)
    assert await found(opened, asking("cat")) == [cat.id]
    assert await opened.memory.memories(ALICE, MemoryPage()) == (cat,)


async def test_the_same_content_is_active_once_in_a_scope(store: Store) -> None:
    opened = await store.open()
    first = item_of("The cat is grey.", 1, ALICE)
    twin = replace(first, id=item_of("", 2).id)
    await put(opened, first)
    with pytest.raises(Conflict, match="memory_known"):
        await put(opened, item_of("Another one.", 3, ALICE), twin)
    assert await opened.memory_upkeep.count_items(ALICE) == 1
    assert await found(opened, asking("another")) == []
    await put(opened, replace(twin, scope=MemoryScope.AGENT, scope_id="main"))
    await put(opened, replace(twin, id=item_of("", 4).id, owner=BOB, scope_id=BOB))


async def test_superseded_items_stay_as_history_and_are_found_no_more(store: Store) -> None:
    opened = await store.open()
    first, second, third = (item_of(f"The day is {day}.", number, ALICE) for number, day in enumerate("abc", 1))
    await put(opened, first)
    await write(
        opened, SupersedeMemory(memory_id=first.id, superseded_by=second.id, at_ms=AT_MS + 1), PutMemory((second,))
    )
    await write(
        opened, SupersedeMemory(memory_id=second.id, superseded_by=third.id, at_ms=AT_MS + 2), PutMemory((third,))
    )
    assert await found(opened, asking("day")) == [third.id]
    assert await opened.memory_upkeep.history(third.id) == (second.id, first.id)
    assert [item.id for item in await opened.memory.memories(ALICE, MemoryPage())] == [third.id]
    assert len(await opened.memory.memories(ALICE, MemoryPage(has_superseded=True))) == 3
    await write(opened, ForgetMemory((third.id, second.id, first.id)))
    assert await opened.memory.memories(ALICE, MemoryPage(has_superseded=True)) == ()
    await write(opened, ForgetMemory((third.id,)))


async def test_counters_grow_and_go_with_the_item(store: Store) -> None:
    opened = await store.open()
    item = item_of("The cat is grey.", 1, ALICE)
    await put(opened, item)
    assert await opened.memory.counters(item.id, ALICE) == MemoryCounters()
    await write(opened, TouchMemory(memory_ids=(item.id,), at_ms=AT_MS + 9))
    await write(opened, TouchMemory(memory_ids=(item.id,), at_ms=AT_MS + 10))
    counters = MemoryCounters(uses_count=2, used_at_ms=AT_MS + 10)
    assert await opened.memory.counters(item.id, ALICE) == counters
    assert await opened.memory.counters(item.id, BOB) is None


async def test_mentions_outlive_their_item_until_they_are_erased(store: Store) -> None:
    opened = await store.open()
    item = item_of("The cat is grey.", 1, ALICE)
    stream = StreamId("01JZ0000000000000000000009")
    await write(opened, PutMemory((item,)), MentionMemory((item.id,), stream), MentionMemory((item.id,), stream))
    assert await opened.memory_upkeep.stray_mentions(5) == ()
    await write(opened, ForgetMemory((item.id,)))
    assert await opened.memory_upkeep.stray_mentions(5) == (item.id,)
    (mention,) = await opened.memory_upkeep.mentions((item.id,))
    assert (mention.stream, mention.seqs) == (stream, ())
    await write(opened, UnmentionMemory((item.id,), stream))
    assert await opened.memory_upkeep.mentions((item.id,)) == ()


async def test_pages_and_filters_of_lists(store: Store) -> None:
    opened = await store.open()
    items = [item_of(f"note {number}", number, ALICE) for number in range(1, 8)]
    items[3] = replace(items[3], kind=MemoryKind.NOTE)
    items[4] = replace(items[4], expires_at_ms=AT_MS + 1)
    await put(opened, *items)
    first = await opened.memory.memories(ALICE, MemoryPage(limit=3))
    assert first == tuple(items[:3])
    assert await opened.memory.memories(ALICE, MemoryPage(after=first[-1].id)) == tuple(items[3:])
    assert await opened.memory.memories(ALICE, MemoryPage(kinds=(MemoryKind.NOTE,))) == (items[3],)
    assert len(await opened.memory.memories(ALICE, MemoryPage(at_ms=AT_MS + 1))) == 6
    assert await opened.memory.memories(ALICE, MemoryPage(scopes=(ScopeFilter(MemoryScope.AGENT, "x"),))) == ()
    assert await opened.memory_upkeep.expired(AT_MS + 1, 10) == ((ALICE, items[4].id),)
    assert await opened.memory_upkeep.expired(AT_MS, 10) == ()


OWNERS = (ALICE, BOB, Principal("channel:discord:1"))
SCOPES = (
    (MemoryScope.SESSION, ("s1", "s2")),
    (MemoryScope.AGENT, ("main", "s1")),
    (MemoryScope.CHANNEL, ("discord", "main")),
    (MemoryScope.PRINCIPAL, OWNERS),
)
filters = st.sampled_from([ScopeFilter(scope, scope_id) for scope, ids in SCOPES for scope_id in ids])
described = st.tuples(
    st.sampled_from(OWNERS),
    filters,
    st.sampled_from(list(MemoryKind)),
    st.sampled_from(list(Trust)),
    st.sampled_from([None, AT_MS - 1, AT_MS, AT_MS + 1]),
    st.sampled_from(["boat", "harbour", "boat harbour", "kettle"]),
)
questions = st.tuples(
    st.sampled_from(OWNERS),
    st.lists(filters, max_size=3, unique=True),
    st.lists(st.sampled_from(list(MemoryKind)), max_size=2, unique=True),
    st.sampled_from(list(Trust)),
    st.sampled_from(["boat", "harbour of the boat", "kettle boat harbour", '" OR * boat'])
)  # fmt: skip


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(described, max_size=12), st.lists(questions, min_size=1, max_size=4))
async def test_no_result_ever_crosses_owner_scope_channel_kind_trust_or_expiry(
    opened: Opened, described_items: list[tuple], asked: list[tuple]
) -> None:
    earlier = [item.id for owner in OWNERS for item in await opened.memory.memories(owner, MemoryPage())]
    if earlier:
        await write(opened, ForgetMemory(tuple(earlier)))
    items = []
    for number, (owner, scope, kind, trust, expires, words) in enumerate(described_items, 1):
        content = f"{words} number {number}"
        items.append(
            replace(
                item_of(content, number, owner),
                scope=scope.scope, scope_id=scope.scope_id, kind=kind, trust=trust, expires_at_ms=expires,
                content_hash=content_hash(content, MemorySource()),
            )
        )  # fmt: skip
    if items:
        await put(opened, *items)
    for owner, scopes, kinds, trust_min, text in asked:
        query = MemoryQuery(
            text=text, owner=owner, scopes=tuple(scopes), kinds=tuple(kinds), trust_min=trust_min, limit=50, at_ms=AT_MS
        )
        allowed = {
            item.id
            for item in items
            if item.owner == owner
            and ScopeFilter(item.scope, item.scope_id) in scopes
            and (not kinds or item.kind in kinds)
            and lowest((item.trust, trust_min)) is trust_min
            and (item.expires_at_ms is None or item.expires_at_ms > AT_MS)
        }
        hits = await opened.memory_search.search_memory(query)
        assert {hit.item.id for hit in hits} <= allowed
        assert all(0 <= hit.score <= 1 for hit in hits)
        matching = {item.id for item in items if item.id in allowed and set(item.content.split()) & set(text.split())}
        assert matching <= {hit.item.id for hit in hits}


async def test_a_superseded_item_can_be_restored_and_is_found_again(store: Store) -> None:
    opened = await store.open()
    first, second = item_of("The day is Friday.", 1, ALICE), item_of("The day is Monday.", 2, ALICE)
    supersede = SupersedeMemory(memory_id=first.id, superseded_by=second.id, at_ms=AT_MS + 1)
    await write(opened, PutMemory((first,)), supersede, PutMemory((second,)))
    await write(opened, ForgetMemory((second.id,)), RestoreMemory(first.id, AT_MS + 2), RestoreMemory(first.id, 1))
    assert await found(opened, asking("day")) == [first.id]
    assert await opened.memory.memory(first.id, ALICE) == replace(first, updated_at_ms=AT_MS + 2)
