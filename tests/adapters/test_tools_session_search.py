"""session.search: what was said, listed for reading, with the lowest trust of what was found."""

import pytest
from msgspec.structs import replace

from palyra.adapters.tools.session_search import HITS_DEFAULT, HITS_MAX, SessionSearch
from palyra.core.ids import Principal, SessionId, StreamId
from palyra.core.tools import OUTPUT_INLINE_BYTES_MAX, ToolResult
from palyra.core.trust import Trust
from palyra.ports.search import SearchHit, SearchQuery
from tests.support.tool_calls import NOW_MS, code_of, context, execute

pytestmark = pytest.mark.anyio

HIT = SearchHit(
    session_id=SessionId(StreamId("01JZ0000000000000000OTHER1")),
    label="Holidays",
    seq=7,
    type="message.user",
    actor=Principal("user:alice"),
    at_ms=NOW_MS,
    trust=Trust.OPERATOR,
    excerpt="…we fly\non Tuesday…",
)
ANSWER = replace(HIT, type="message.assistant", trust=Trust.EXTERNAL, seq=9)


class Index:
    def __init__(self, *hits: SearchHit, has_all: bool = True) -> None:
        self.asked: list[SearchQuery] = []
        self._hits, self._has_all = hits, has_all

    async def search(self, query: SearchQuery) -> tuple[SearchHit, ...]:
        self.asked.append(query)
        return self._hits[: query.limit] if self._has_all or " OR " in query.match else ()


async def search(index: Index, query: str, **arguments: object) -> ToolResult:
    return await execute(SessionSearch(index), {"query": query, **arguments})


async def test_hits_are_listed_with_all_that_names_them() -> None:
    result = await search(index := Index(HIT), "tuesday fly")
    assert result.output == (
        'session 01JZ0000000000000000OTHER1 "Holidays", seq 7, 2025-06-15 15:06 UTC, user:alice:\n…we fly on Tuesday…'
    )
    assert (result.trust, result.source) == (Trust.OPERATOR, None)
    asked = SearchQuery(match='"tuesday" AND "fly"', principal=context().principal, limit=HITS_DEFAULT)
    assert index.asked == [asked, replace(asked, match='"tuesday" OR "fly"')]


async def test_this_session_is_said_to_be_this_one() -> None:
    here = replace(HIT, session_id=context().session_id, label=None)
    assert "session 01JZ0000000000000000SESS01 (this session), seq 7" in (await search(Index(here), "x")).output


async def test_where_no_message_has_all_words_those_with_some_are_told_as_such() -> None:
    result = await search(index := Index(HIT, has_all=False), "tuesday mars")
    assert result.output.startswith("[No message has all of these words; these have some.]\nsession ")
    assert [query.match for query in index.asked] == ['"tuesday" AND "mars"', '"tuesday" OR "mars"']


async def test_a_question_that_has_all_its_words_does_not_hide_what_has_some() -> None:
    class Asked(Index):
        async def search(self, query: SearchQuery) -> tuple[SearchHit, ...]:
            return (question, HIT) if " OR " in query.match else (question,)

    question = replace(HIT, seq=9, excerpt="When do we fly?")
    result = await search(Asked(), "when do we fly")
    first, second = result.output.split("\n\n")
    assert "When do we fly?" in first
    assert second.startswith("[These have some of the words.]\nsession ")
    assert "on Tuesday" in second
    assert (await search(Asked(), "when do we fly", k=1)).output == first


async def test_nothing_found_is_our_own_word() -> None:
    result = await search(Index(), "nowhere")
    assert (result.output, result.trust) == ("[Nothing was found.]", Trust.SYSTEM)
    wordless = await search(index := Index(HIT), "***")
    assert (wordless.output, index.asked) == ("[Nothing was found.]", [])


async def test_the_lowest_trust_counts_and_names_the_session_it_comes_from() -> None:
    result = await search(Index(HIT, ANSWER), "x")
    assert (result.trust, result.source) == (Trust.EXTERNAL, "session:01JZ0000000000000000OTHER1")
    elsewhere = replace(ANSWER, session_id=SessionId(StreamId("01JZ0000000000000000OTHER2")))
    several = await search(Index(ANSWER, elsewhere), "x")
    assert (several.trust, several.source) == (Trust.EXTERNAL, "tool:session.search")


async def test_a_long_list_is_shortened_before_it_would_spill() -> None:
    result = await search(index := Index(*[replace(HIT, excerpt="word " * 300)] * 99), "x", k=99)
    assert index.asked[0].limit == HITS_MAX
    assert len(result.output.encode()) <= OUTPUT_INLINE_BYTES_MAX
    assert "more had no room" in result.output


@pytest.mark.parametrize(
    "arguments", [{"query": 1}, {"query": ""}, {"query": "a", "k": 0}, {"query": "a", "k": "x"}, {}]
)
async def test_what_the_schema_would_refuse_is_refused_as_a_value(arguments: dict[str, object]) -> None:
    refused = await execute(SessionSearch(Index(HIT)), arguments)
    assert (code_of(refused), refused.trust) == ("arguments_invalid", Trust.SYSTEM)
