"""Finding remembered items in a real store: filters, neighbours, any text as a question, and an index that agrees."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palyra.adapters.embedders.bundled import BundledEmbedder
from palyra.adapters.store.sqlite.memory_index import find_misindexed, rebuild_items
from palyra.adapters.store.sqlite.memory_vectors import BLOCK_ITEMS_MAX, store_vectors
from palyra.core.errors import Unavailable
from palyra.core.ids import MemoryId, Principal
from palyra.core.memory.model import MemoryItem, MemoryKind, MemoryScope, MemorySource, MemoryStatus, ScopeFilter
from palyra.core.memory.recall import SCORE_MIN
from palyra.core.trust import Trust
from palyra.ports.embedder import EmbedderTraits
from tests.support.examples import examples
from tests.support.memories import NOW_MS, OWNER, SCOPE, MemoryFile, forget_items, item, memory_file, put_items, query
from tests.support.memory_index import check_index

pytestmark = pytest.mark.anyio

BUNDLED = BundledEmbedder()
ALICE = Principal("user:alice")
SEARCH_S_MAX = 2.0  # Of the processor, and far above what it takes.


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MemoryFile]:
    with memory_file(tmp_path / "journal.db", BUNDLED, BUNDLED) as opened:
        yield opened


def turn(number: int, speaker: str, text: str, conversation: str = "c") -> MemoryItem:
    return item(number, text, MemorySource(conversation=conversation, position=number, speaker=speaker))


async def found(store: MemoryFile, text: str) -> list[str]:
    return [hit.item.content for hit in await store.find(query(text))]


async def test_an_item_is_found_by_its_words_by_their_stems_and_by_their_meaning(store: MemoryFile) -> None:
    texts = ["My puppy is called Rex", "I paint landscapes", "The invoice is due on Monday"]
    await store.fill(item(number, text) for number, text in enumerate(texts, 1))
    assert (await found(store, "painting"))[0] == "I paint landscapes"
    assert (await found(store, "What is the name of my dog?"))[0] == "My puppy is called Rex"
    assert (await found(store, "when do I have to pay the bill"))[0] == "The invoice is due on Monday"


async def test_another_form_of_a_word_is_close_enough_to_be_reminded_of(store: MemoryFile) -> None:
    texts = [
        "Deploys happen on Tuesdays after the stand-up.",
        "I am allergic to peanuts.",
        "The ledger is in Postgres.",
    ]
    await store.fill(item(number, text) for number, text in enumerate(texts, 1))
    first, *others = await store.find(query("When do we deploy?"))
    assert first.item.content == texts[0]
    assert first.score > SCORE_MIN > max((hit.score for hit in others), default=0.0)


async def test_the_answer_is_found_by_the_question_before_it_in_whatever_order_they_came(store: MemoryFile) -> None:
    turns = [turn(1, "Omar", "Which instrument do you play?"), turn(2, "Greta", "The cello, since school.")]
    noise = [turn(number, "Greta", f"Nothing much, thing {number}") for number in range(3, 30)]
    await store.fill([*noise, turns[1], turns[0]])
    assert (await found(store, "What instrument does Greta play?"))[0] == "The cello, since school."


async def test_a_conversation_that_counts_anew_each_day_is_in_order_by_day(store: MemoryFile) -> None:
    """Positions begin at 1 in each session, so several turns of the conversation have the same one."""
    number = 0
    for day in range(1, 15):
        at = f"7:12 pm on {day} March, 2023"
        asking = "Which instrument do you play?" if day == 9 else f"What about thing {day}?"
        answer = "The cello, since school." if day == 9 else f"Nothing much, really, {day}."
        said = [("Omar", asking), ("Greta", answer), ("Omar", "I see."), ("Greta", "Right.")]
        turns = [
            item(number + place, text, MemorySource(conversation="c", position=place, speaker=speaker, at=at))
            for place, (speaker, text) in enumerate(said, 1)
        ]
        number += len(turns)
        await store.fill(turns)
    assert (await found(store, "What instrument does Greta play?"))[0] == "The cello, since school."


async def test_turns_without_a_position_are_in_the_order_of_their_arrival(store: MemoryFile) -> None:
    said = [(f"What about thing {at}?", f"Nothing much, really, {at}.") for at in range(20)]
    said[9] = ("Which instrument do you play?", "The cello, since school.")
    texts = [text for pair in said for text in pair]
    source = MemorySource(conversation="c")
    await store.fill(item(number, text, source) for number, text in enumerate(texts, 1))
    (answer,) = [hit for hit in await store.find(query("instrument")) if hit.item.content == said[9][1]]
    assert answer.why.rules["context"] > max(answer.why.rules["meaning"], 0.2)


@pytest.mark.parametrize("asked", ["in July 2022", "in July", "on 9 July 2022"])
async def test_what_was_said_in_the_time_asked_for_is_found_without_its_words(store: MemoryFile, asked: str) -> None:
    """Many other items hold words of the question, which alone would leave no room."""
    texts = [(number, f"I went to a {number} thing in July of no note") for number in range(1, 500)]
    noise = [item(number, text, MemorySource(speaker="Omar", at="2021-01-03")) for number, text in texts]
    said = item(500, "We adopted a puppy.", MemorySource(speaker="Greta", at="1:07 pm on 10 July, 2022"))
    await store.fill([*noise, said])
    assert "We adopted a puppy." in await found(store, f"What did Greta do {asked}?")


async def test_neighbours_of_another_conversation_or_scope_do_not_count(store: MemoryFile) -> None:
    answer = turn(2, "Greta", "The cello, since school.")
    asking = turn(1, "Omar", "Which instrument do you play?", "other")
    await store.fill([answer, asking])
    (hit,) = [hit for hit in await store.find(query("instrument")) if hit.item.id == answer.id]
    assert "context" not in hit.why.rules


async def test_a_hit_tells_its_shares(store: MemoryFile) -> None:
    await store.fill([item(1, "The cat sleeps"), item(2, "A dog barks")])
    hit = (await store.find(query("cat")))[0]
    assert hit.why.text is not None
    assert hit.why.text > 0
    assert hit.why.vector is not None
    assert hit.score > 0


async def test_old_and_new_items_are_found_alike(store: MemoryFile) -> None:
    await store.fill(item(number, f"note about topic{number}") for number in range(1, 600))
    for number in (1, 300, 599):
        assert (await found(store, f"topic{number}"))[0] == f"note about topic{number}"


@pytest.mark.parametrize(
    "text", ["", " ", '"', "*", "a OR", "NEAR(", "col:x", "-", "'; DROP TABLE x", "\x00", "\ud800"]
)
async def test_no_question_fails(store: MemoryFile, text: str) -> None:
    await store.fill([item(1, "a plain note, x OR y NEAR z")])
    await store.find(query(text))


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.text(max_size=200))
async def test_any_text_can_be_kept_and_asked(store: MemoryFile, text: str) -> None:
    number = 1 + int(store.connection.execute("SELECT coalesce(max(number), 0) FROM memory_items").get or 0)
    clean = text.encode("utf-8", "replace").decode().replace("\x00", "")
    await store.fill([item(number, clean)])
    await store.find(query(text))
    assert check_index(store.connection) == []


async def test_a_text_of_64_kib_is_kept_and_asked(store: MemoryFile) -> None:
    long = "needle " + "straw hay " * 6_500
    await store.fill([item(1, long), item(2, "something else")])
    assert (await found(store, "needle"))[0] == long
    assert await found(store, long)


async def test_other_scripts_are_found(store: MemoryFile) -> None:
    await store.fill([item(1, "我昨天买了一辆自行车"), item(2, "Мой кот любит рыбу"), item(3, "ผมชอบกินข้าวผัด")])
    assert (await found(store, "自行车"))[0] == "我昨天买了一辆自行车"
    assert (await found(store, "кот"))[0] == "Мой кот любит рыбу"
    assert (await found(store, "ข้าวผัด"))[0] == "ผมชอบกินข้าวผัด"


kinds = st.sampled_from([MemoryKind.NOTE, MemoryKind.FACT])
trusts = st.sampled_from(list(Trust))
scopes = st.sampled_from([SCOPE, ScopeFilter(MemoryScope.SESSION, "s1")])
owners = st.sampled_from([OWNER, ALICE])
expiries = st.sampled_from([None, NOW_MS - 1, NOW_MS, NOW_MS + 1])
entries = st.tuples(owners, scopes, kinds, trusts, expiries)


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    given_items=st.lists(entries, min_size=1, max_size=12),
    owner=owners,
    asked_scopes=st.sets(scopes),
    asked_kinds=st.sets(kinds),
    trust_min=trusts,
)
async def test_filters_never_leak_and_never_lose(
    store: MemoryFile,
    given_items: list[tuple[Principal, ScopeFilter, MemoryKind, Trust, int | None]],
    owner: Principal,
    asked_scopes: set[ScopeFilter],
    asked_kinds: set[MemoryKind],
    trust_min: Trust,
) -> None:
    forget_items(
        store.connection, [MemoryId(one) for (one,) in store.connection.execute("SELECT id FROM memory_items")]
    )
    levels = [Trust.EXTERNAL, Trust.LOCAL, Trust.OPERATOR, Trust.SYSTEM]
    wanted = set()
    made = []
    for number, (whose, scope, kind, trust, expires_at_ms) in enumerate(given_items, 1):
        fields = {"owner": whose, "scope": scope.scope, "scope_id": scope.scope_id, "kind": kind}
        source = MemorySource(conversation="c", position=number, speaker="Greta")
        made.append(item(number, "the cat", source, **fields, trust=trust, expires_at_ms=expires_at_ms))
        is_seen = whose == owner and scope in asked_scopes and (not asked_kinds or kind in asked_kinds)
        is_alive = expires_at_ms is None or expires_at_ms > NOW_MS
        if is_seen and is_alive and levels.index(trust) >= levels.index(trust_min):
            wanted.add(made[-1].id)
    await store.fill(made)
    asked = query(
        "cat of Greta", 50, owner=owner, scopes=tuple(asked_scopes), kinds=tuple(asked_kinds), trust_min=trust_min
    )
    assert {hit.item.id for hit in await store.find(asked)} == wanted
    assert check_index(store.connection) == []


async def test_a_superseded_item_is_not_indexed(store: MemoryFile) -> None:
    put_items(store.connection, [item(1, "old cat", status=MemoryStatus.SUPERSEDED), item(2, "new cat")])
    assert await found(store, "cat") == ["new cat"]
    assert check_index(store.connection) == []


async def test_what_is_dropped_leaves_nothing_in_the_index(store: MemoryFile) -> None:
    items = [turn(number, "Greta", f"cat number {number}") for number in range(1, 8)]
    await store.fill(items)
    forget_items(store.connection, [one.id for one in items])
    assert check_index(store.connection) == []
    for table in ("entries", "partitions", "speakers", "vectors", "blocks", "terms"):
        assert store.connection.execute(f"SELECT count(*) FROM memory_{table}").get == 0


async def test_blocks_fill_up_and_thin_out(store: MemoryFile) -> None:
    items = [item(number, f"cat number {number}") for number in range(1, BLOCK_ITEMS_MAX + 40)]
    await store.fill(items)
    assert store.connection.execute("SELECT count(*) FROM memory_blocks").get == 2
    forget_items(store.connection, [one.id for one in items[5:900]])
    assert check_index(store.connection) == []
    await store.fill([item(5_000, "one more cat")])
    assert check_index(store.connection) == []


async def test_a_fault_is_told_and_a_rebuild_mends_it(store: MemoryFile) -> None:
    await store.fill([turn(1, "Greta", "the cat"), turn(2, "Omar", "the dog")])
    store.connection.execute("DELETE FROM memory_entries WHERE number = 1")
    store.connection.execute("UPDATE memory_blocks SET items_count = 9")
    assert find_misindexed(store.connection) == [(1, False)]
    assert len(check_index(store.connection)) >= 3
    with store.connection:
        assert rebuild_items(store.connection) == 1
    assert check_index(store.connection) == []
    await store.embed()
    assert sorted(await found(store, "cat dog")) == ["the cat", "the dog"]


class Failing:
    traits = EmbedderTraits(version="failing", dimensions=4)

    async def embed(self, texts: object, principal: Principal) -> tuple[bytes, ...]:
        raise Unavailable("gone", "no embedder")


async def test_words_alone_answer_while_there_are_no_vectors(tmp_path: Path) -> None:
    with memory_file(tmp_path / "journal.db", Failing(), None) as store:
        put_items(store.connection, [item(1, "the cat"), item(2, "the dog")])
        assert await found(store, "cat") == ["the cat"]


async def test_vectors_of_another_version_or_width_are_no_damage_and_not_compared(store: MemoryFile) -> None:
    await store.fill([item(1, "the cat"), item(2, "the dog"), item(3, "the cow")])
    with store.connection:
        store_vectors(store.connection, "another", [(1, b"\x00\x00\x80\x3f" * 6)])
        store_vectors(store.connection, BUNDLED.traits.version, [(2, b"\x00\x00\x80\x3f" * 6)])
    assert check_index(store.connection) == []
    hits = {hit.item.content: hit for hit in await store.find(query("cat dog cow"))}
    assert [hits[text].why.vector is None for text in ("the cat", "the dog", "the cow")] == [True, True, False]
    assert {one.number for one in await store.search.unembedded(BUNDLED.traits.version, 9)} == {1}


async def test_a_search_stays_quick_in_many_items(store: MemoryFile) -> None:
    await store.fill(item(number, f"common words and topic{number}") for number in range(1, 4_000))
    began_s = time.process_time()
    for number in (7, 2_000, 3_999):
        assert (await found(store, f"common topic{number}"))[0].endswith(f"topic{number}")
    assert time.process_time() - began_s < 3 * SEARCH_S_MAX
