"""The tool memory.search: finds remembered items of the caller and lists them.

Does not own: the index and the ranking (ports.memory).
Only items that the run may be reminded of are found: those of its owner, in the scopes of its session, agent and
channel (L11). The output has the lowest trust of the items found, with the sources that those came from (L8).
"""

from datetime import UTC, datetime

from palyra.core.argument_schemas import arguments_schema, integer_schema, text_schema
from palyra.core.errors import PalyraError
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, Outcome, ParallelClass, Risk
from palyra.core.memory.model import QUERY_LENGTH_MAX, MemoryHit, MemoryQuery
from palyra.core.memory.reach import channel_of, scopes_of_run
from palyra.core.previews import cut_after
from palyra.core.taint import label
from palyra.core.tools import OUTPUT_INLINE_BYTES_MAX, CallNature, ToolResult, ToolSpec, failed
from palyra.core.trust import Trust, is_tainting, lowest
from palyra.ports.memory import MemorySearch
from palyra.ports.tools import ToolCallContext

HITS_DEFAULT = 8
HITS_MAX = 50
LISTED_BYTES_MAX = OUTPUT_INLINE_BYTES_MAX - 512  # A longer output would become an artifact that outlives forgetting.
ITEM_BYTES_MAX = 2_000

SPEC = ToolSpec(
    name="memory.search",
    description=(
        "Searches what was remembered about this user, their work and earlier decisions. Ask with the words that the "
        "answer is likely to have. Returns the best matches with id, kind, age and text."
    ),
    input_schema=arguments_schema(
        {
            "query": text_schema(QUERY_LENGTH_MAX, "What to look for: a question, or some words."),
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


class MemorySearchTool:
    spec = SPEC

    def __init__(self, search: MemorySearch) -> None:
        self._search = search

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        return CallNature(effect_class=EffectClass.READ_ONLY, parallel_class=ParallelClass.READ_ONLY_SAFE)

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        query, hits_max = arguments.get("query"), arguments.get("k", HITS_DEFAULT)
        if not isinstance(query, str) or not query or not isinstance(hits_max, int) or hits_max < 1:
            return _refused("arguments_invalid", "query is a text with words, k a whole number from 1")
        question = MemoryQuery(
            text=query[:QUERY_LENGTH_MAX],
            owner=context.principal,
            scopes=scopes_of_run(context.principal, context.session_id, context.agent, channel_of(context.origin)),
            limit=min(hits_max, HITS_MAX),
            at_ms=context.now_ms,
        )
        try:
            hits = await self._search.search_memory(question)
        except PalyraError as error:
            return _refused(error.code, error.message)
        return list_hits(hits)


def list_hits(hits: tuple[MemoryHit, ...]) -> ToolResult:
    if not hits:
        return ToolResult(outcome=Outcome.OK, output="[Nothing is remembered about this.]", trust=Trust.SYSTEM)
    shown: list[str] = []
    left_bytes = LISTED_BYTES_MAX
    for hit in hits:
        told = _told(hit)
        left_bytes -= len(told.encode("utf-8", "replace")) + 2
        if left_bytes < 0:
            break
        shown.append(told)
    listed = hits[: len(shown)]
    rest = f"\n\n[{len(hits) - len(shown)} more had no room; ask for fewer or more exactly.]" if listed != hits else ""
    trust = lowest(hit.item.trust for hit in listed)
    sources = dict.fromkeys(
        source
        for hit in listed
        if is_tainting(hit.item.trust)
        for source in hit.item.taint or (label("memory", hit.item.id),)
    )
    return ToolResult(
        outcome=Outcome.OK,
        output="\n\n".join(shown) + rest,
        trust=trust,
        source=next(iter(sources), None),
        sources=tuple(sources) if len(sources) > 1 else (),
        memory_ids=tuple(hit.item.id for hit in listed),
    )


def _told(hit: MemoryHit) -> str:
    item = hit.item
    when = item.source.at or datetime.fromtimestamp(item.created_at_ms / 1000, UTC).strftime("%Y-%m-%d")
    who = f", {item.source.speaker}" if item.source.speaker else ""
    return f"{item.kind.value} {item.id}, {when}{who}:\n{cut_after(item.content, ITEM_BYTES_MAX)}"


def _refused(code: str, message: str) -> ToolResult:
    refusal = failed(code, message)
    return ToolResult(outcome=refusal.outcome, error=refusal.error, trust=Trust.SYSTEM)
