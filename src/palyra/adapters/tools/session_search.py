"""The tool session.search: finds messages in the caller's sessions and lists them.

Does not own: the index (ports.search).
It lists messages with every word first, then those with some. A question that was just asked has all of its own words
itself, and its answer does not. The output has the lowest trust of the messages found: a message written with content
from outside in view may hold words of it (L8).
"""

from datetime import UTC, datetime

from palyra.core.argument_schemas import arguments_schema, integer_schema, text_schema
from palyra.core.errors import PalyraError
from palyra.core.events.base import JsonObject
from palyra.core.events.run import MessageUser
from palyra.core.events.tool import EffectClass, Outcome, ParallelClass, Risk
from palyra.core.previews import cut_after
from palyra.core.search import QUERY_LENGTH_MAX, all_words, any_word
from palyra.core.taint import label
from palyra.core.tools import OUTPUT_INLINE_BYTES_MAX, CallNature, ToolResult, ToolSpec, failed
from palyra.core.trust import Trust, is_tainting, lowest
from palyra.ports.search import MessageSearch, SearchHit, SearchQuery
from palyra.ports.tools import ToolCallContext

HITS_DEFAULT = 8
HITS_MAX = 50
LISTED_BYTES_MAX = OUTPUT_INLINE_BYTES_MAX - 512  # A longer output would become an artifact, and be read twice.
EXCERPT_BYTES_MAX = 600  # A word without end is still one word to the index.

SPEC = ToolSpec(
    name="session.search",
    description=(
        "Searches your conversations, this one and earlier ones, for words in messages and answers. Put words in double "
        "quotes to find them side by side. Returns the best matches with session, seq, time and the words around."
    ),
    input_schema=arguments_schema(
        {
            "query": text_schema(QUERY_LENGTH_MAX, "The words to look for, in any order and case."),
            "k": integer_schema(1, HITS_MAX, f"How many matches to return at most. Default {HITS_DEFAULT}."),
        },
        ["query"],
    ),
    effect_class=EffectClass.READ_ONLY,
    parallel_class=ParallelClass.READ_ONLY_SAFE,
    risk=Risk.LOW,
    output_trust=Trust.EXTERNAL,
    timeout_s=20.0,
)


class SessionSearch:
    spec = SPEC

    def __init__(self, search: MessageSearch) -> None:
        self._search = search

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        return CallNature(effect_class=EffectClass.READ_ONLY, parallel_class=ParallelClass.READ_ONLY_SAFE)

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        query, hits_max = arguments.get("query"), arguments.get("k", HITS_DEFAULT)
        if not isinstance(query, str) or not query or not isinstance(hits_max, int) or hits_max < 1:
            refusal = failed("arguments_invalid", "query is a text with words, k a whole number from 1")
            return ToolResult(outcome=refusal.outcome, error=refusal.error, trust=Trust.SYSTEM)
        try:
            whole = await self._hits(all_words(query), context, hits_max)
            partly: tuple[SearchHit, ...] = ()
            if len(whole) < hits_max and any_word(query) != all_words(query):
                found = await self._hits(any_word(query), context, hits_max)
                places = set(map(_place, whole))
                partly = tuple(hit for hit in found if _place(hit) not in places)
        except PalyraError as refused:
            refusal = failed(refused.code, refused.message)
            return ToolResult(outcome=refusal.outcome, error=refusal.error, trust=Trust.SYSTEM)
        return _listed((*whole, *partly)[:hits_max], len(whole), context)

    async def _hits(self, match: str | None, context: ToolCallContext, hits_max: int) -> tuple[SearchHit, ...]:
        if match is None:
            return ()
        query = SearchQuery(match=match, principal=context.principal, limit=min(hits_max, HITS_MAX))
        return await self._search.search(query)


def _listed(hits: tuple[SearchHit, ...], whole_count: int, context: ToolCallContext) -> ToolResult:
    """Lists the hits. Those behind the first `whole_count` have only some of the words."""
    if not hits:
        return ToolResult(outcome=Outcome.OK, output="[Nothing was found.]", trust=Trust.SYSTEM)
    shown: list[str] = []
    left_bytes = LISTED_BYTES_MAX
    for number, hit in enumerate(hits):
        told = (_note(whole_count) if number == whole_count else "") + _told(hit, context)
        left_bytes -= len(told.encode("utf-8", "replace")) + 2
        if left_bytes < 0:
            break
        shown.append(told)
    rest_count = len(hits) - len(shown)
    rest = f"\n\n[{rest_count} more had no room; ask for fewer or more exactly.]" if rest_count else ""
    trust = lowest(hit.trust for hit in hits[: len(shown)])
    return ToolResult(
        outcome=Outcome.OK,
        output="\n\n".join(shown) + rest,
        trust=trust,
        source=_source(hits[: len(shown)]) if is_tainting(trust) else None,
    )


def _note(whole_count: int) -> str:
    if whole_count:
        return "[These have some of the words.]\n"
    return "[No message has all of these words; these have some.]\n"


def _place(hit: SearchHit) -> tuple[str, int]:
    return hit.session_id, hit.seq


def _told(hit: SearchHit, context: ToolCallContext) -> str:
    when = datetime.fromtimestamp(hit.at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    named = f' "{hit.label}"' if hit.label else ""
    here = " (this session)" if hit.session_id == context.session_id else ""
    who = hit.actor if hit.type == MessageUser.TYPE else "answer"
    excerpt = cut_after(" ".join(hit.excerpt.split()), EXCERPT_BYTES_MAX)
    return f"session {hit.session_id}{named}{here}, seq {hit.seq}, {when}, {who}:\n{excerpt}"


def _source(hits: tuple[SearchHit, ...]) -> str:
    """Returns the session that the untrusted words come from; for several sessions, the search itself."""
    sessions = {hit.session_id for hit in hits if is_tainting(hit.trust)}
    return label("session", sessions.pop()) if len(sessions) == 1 else label("tool", SPEC.name)
