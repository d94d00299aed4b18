"""What every store promises of search: one's own messages by their words, and nothing of what was erased."""

import pytest
from msgspec.structs import replace

from palyra.core.events.run import MessageAssistant
from palyra.core.ids import Principal, SessionId
from palyra.core.search import all_words, any_word
from palyra.core.trust import Trust
from palyra.ports.journal import Append, Erasure
from palyra.ports.search import SearchHit, SearchQuery
from tests.contract.conftest import Opened, Store
from tests.support.journals import ALICE, BOB, START_MS, Ids, draft, message_user, run_cycle, session_created

pytestmark = pytest.mark.anyio


async def begin(opened: Opened, session: SessionId, *texts: str, owner: Principal = ALICE) -> None:
    label = f"of {owner}"
    said = (session_created(owner, label=label), *(message_user(text) for text in texts))
    await opened.journal.commit([Append(session, 0, said)])


async def find(opened: Opened, query: str, principal: Principal = ALICE, limit: int = 10) -> tuple[SearchHit, ...]:
    match = all_words(query)
    return await opened.search.search(SearchQuery(match=match or '""', principal=principal, limit=limit))


def places(hits: tuple[SearchHit, ...]) -> list[tuple[SessionId, int]]:
    return [(hit.session_id, hit.seq) for hit in hits]


def erasure(session: SessionId, *seqs: int) -> Erasure:
    return Erasure(stream=session, seqs=seqs or None, reason="asked", actor=ALICE, at_ms=START_MS)


async def test_a_message_is_found_by_its_words_with_all_that_names_it(opened: Opened, ids: Ids) -> None:
    session = ids.session()
    await begin(opened, session, "The launch is on Tuesday", "nothing else")
    (hit,) = await find(opened, "TUESDAY launch")
    assert hit == SearchHit(
        session_id=session,
        label=f"of {ALICE}",
        seq=2,
        type="message.user",
        actor=ALICE,
        at_ms=START_MS,
        trust=Trust.OPERATOR,
        excerpt="The launch is on Tuesday",
    )


async def test_answers_are_found_and_tool_output_is_not(opened: Opened, ids: Ids) -> None:
    session = ids.session()
    await opened.journal.commit([Append(session, 0, (session_created(), *run_cycle(ids.run(), "ask", "zanzibar")))])
    (hit,) = await find(opened, "zanzibar")
    assert hit.type == MessageAssistant.TYPE
    assert await find(opened, "README.md") == ()


async def test_nobody_finds_anothers_words(opened: Opened, ids: Ids) -> None:
    mine, other = ids.session(), ids.session()
    await begin(opened, mine, "the falcon flies")
    await begin(opened, other, "the falcon lands", owner=BOB)
    assert places(await find(opened, "falcon")) == [(mine, 2)]
    assert places(await find(opened, "falcon", BOB)) == [(other, 2)]
    assert await find(opened, "falcon", Principal("user:carol")) == ()


async def test_others_matches_do_not_crowd_out_ones_own(opened: Opened, ids: Ids) -> None:
    mine = ids.session()
    await begin(opened, mine, "falcon " + "filler " * 50)
    for _ in range(5):
        await begin(opened, ids.session(), "falcon", "falcon", owner=BOB)
    assert places(await find(opened, "falcon", limit=1)) == [(mine, 2)]


async def test_the_best_match_comes_first_and_of_equal_ones_the_newest(opened: Opened, ids: Ids) -> None:
    session = ids.session()
    await begin(opened, session, "otter " + "and much besides " * 20, "otter", "otter", "no animal")
    assert [seq for _, seq in places(await find(opened, "otter"))] == [4, 3, 2]
    assert [seq for _, seq in places(await find(opened, "otter", limit=2))] == [4, 3]


async def test_words_are_found_without_their_accents_and_phrases_side_by_side(opened: Opened, ids: Ids) -> None:
    session = ids.session()
    await begin(opened, session, "Příliš žluťoučký kůň", "red apple pie", "apple red")
    assert [seq for _, seq in places(await find(opened, "zlutoucky KUN"))] == [2]
    assert [seq for _, seq in places(await find(opened, '"red apple"'))] == [3]
    assert len(await find(opened, "red apple")) == 2


async def test_an_excerpt_is_around_the_words(opened: Opened, ids: Ids) -> None:
    await begin(opened, ids.session(), "far " * 500 + "needle" + " away" * 500)
    (hit,) = await find(opened, "needle")
    assert "needle" in hit.excerpt
    assert len(hit.excerpt) < 500


async def test_trust_is_the_messages_own(opened: Opened, ids: Ids) -> None:
    session = ids.session()
    said = replace(message_user("quokka"), trust=Trust.EXTERNAL)
    await opened.journal.commit([Append(session, 0, (session_created(), said))])
    assert [hit.trust for hit in await find(opened, "quokka")] == [Trust.EXTERNAL]


async def test_what_is_erased_is_found_no_more_and_the_rest_is(opened: Opened, ids: Ids) -> None:
    session, whole = ids.session(), ids.session()
    await begin(opened, session, "walrus one", "walrus two")
    await begin(opened, whole, "walrus three")
    await opened.journal.erase([erasure(session, 2)])
    assert set(places(await find(opened, "walrus"))) == {(session, 3), (whole, 2)}
    await opened.journal.erase([erasure(whole)])
    assert places(await find(opened, "walrus")) == [(session, 3)]
    assert await find(opened, "one") == ()
    await opened.journal.erase([erasure(session, 2), erasure(session, 2)])
    assert places(await find(opened, "two")) == [(session, 3)]


async def test_a_text_that_is_named_twice_is_taken_out_once(opened: Opened, ids: Ids) -> None:
    session = ids.session()
    await begin(opened, session, "walrus one", "walrus two", "walrus three")
    await opened.journal.erase([erasure(session, 2, 3), erasure(session, 3), erasure(session, 2)])
    assert places(await find(opened, "walrus")) == [(session, 4)]


async def test_a_refused_commit_leaves_no_words(opened: Opened, ids: Ids) -> None:
    session = ids.session()
    await begin(opened, session, "first")
    with pytest.raises(Exception, match="seq_stale"):
        await opened.journal.commit([Append(session, 9, (message_user("marmot"),))])
    assert await find(opened, "marmot") == ()
    await opened.journal.commit([Append(session, 2, (draft(message_user("vole").data),))])
    assert len(await find(opened, "vole")) == 1


async def test_words_are_found_after_reopening(store: Store, ids: Ids) -> None:
    opened, session = await store.open(), ids.session()
    await begin(opened, session, "the heron")
    opened = await store.reopen()
    assert places(await find(opened, "heron")) == [(session, 2)]


@pytest.mark.parametrize(
    "query",
    ["", " ", '"', '""', "*", "NEAR(", "a AND", "text:x", "-", "x\x00y", "\ud800", "^a", "{a}", '"a" "', "(" * 400],
)
async def test_no_query_breaks_the_search(opened: Opened, ids: Ids, query: str) -> None:
    await begin(opened, ids.session(), "a x y text NEAR AND")
    for match in (all_words(query), any_word(query)):
        if match is not None:
            await opened.search.search(SearchQuery(match=match, principal=ALICE, limit=5))
