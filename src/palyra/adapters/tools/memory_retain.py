"""The tool memory.retain: keeps a statement for later runs of the same person.

Does not own: what is worth keeping, and storing it (ports.memory).
Bundled policies ask a person. An item from a tainted run waits for review, also if the call was allowed: the person
allowed the call, and has not read what every later run would be told (L8). Keeping the same item twice keeps it once,
so the call may be repeated after a crash.
"""

from palyra.core.argument_schemas import arguments_schema, text_schema
from palyra.core.errors import PalyraError
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, Outcome, ParallelClass, Risk
from palyra.core.ids import agent_principal
from palyra.core.memory.judge import MemoryOutcome
from palyra.core.memory.model import CONTENT_LENGTH_MAX, MemoryKind, MemoryScope, MemorySource
from palyra.core.memory.reach import channel_of
from palyra.core.memory.wish import MemoryAdded, MemoryOrigin, NewMemory
from palyra.core.tools import CallNature, Capability, ToolResult, ToolSpec, failed
from palyra.core.trust import Trust
from palyra.ports.memory import MemoryKeeper
from palyra.ports.tools import ToolCallContext

SPEC = ToolSpec(
    name="memory.retain",
    description=(
        "Remembers one statement for later conversations: a durable fact, a preference, a decision or a procedure. "
        "Write it so that it makes sense on its own. Do not keep passing states, small talk, secrets, or what is in "
        "files anyway."
    ),
    input_schema=arguments_schema(
        {
            "content": text_schema(CONTENT_LENGTH_MAX, "The statement, in one or a few sentences."),
            "kind": {"enum": [kind.value for kind in MemoryKind], "description": "What it is. Default: fact."},
            "scope": {
                "enum": [scope.value for scope in MemoryScope],
                "description": "Where it counts: for this person (default), agent, session or channel only.",
            },
        },
        ["content"],
    ),
    capabilities=frozenset({Capability.MEMORY_WRITE}),
    effect_class=EffectClass.IDEMPOTENT,
    parallel_class=ParallelClass.NEVER,
    risk=Risk.MEDIUM,
    output_trust=Trust.SYSTEM,
    timeout_s=20.0,
)
_SAID = {
    MemoryOutcome.STORED: "Remembered.",
    MemoryOutcome.DUPLICATE: "This is remembered already.",
    MemoryOutcome.REVIEW: "A person has to look at this before it is remembered. Go on without it.",
    MemoryOutcome.REFUSED: "This is not worth remembering, or must not be.",
}


class MemoryRetain:
    spec = SPEC

    def __init__(self, keeper: MemoryKeeper) -> None:
        self._keeper = keeper

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        return CallNature(effect_class=EffectClass.IDEMPOTENT, parallel_class=ParallelClass.NEVER)

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        wish = _wish(arguments, context)
        if wish is None:
            return failed("arguments_invalid", "content is a text; kind and scope are words of their lists")
        if wish.scope is MemoryScope.CHANNEL and not wish.scope_id:
            return failed("scope_unavailable", "This run came from no channel; use the scope principal.")
        origin = MemoryOrigin(
            name="tool",
            actor=agent_principal(context.agent),
            trust=Trust.EXTERNAL if context.taint else Trust.LOCAL,
            taint=context.taint,
        )
        try:
            added = await self._keeper.keep(context.principal, wish, origin)
        except PalyraError as error:
            return failed(error.code, error.message)
        return _told(added)


def _told(added: MemoryAdded) -> ToolResult:
    text = _SAID[added.status]
    if added.status is MemoryOutcome.REFUSED:
        return failed(f"memory_{added.reason}", text)
    named = f" Its id is {added.id}." if added.id is not None else ""
    reason = f" ({added.reason})" if added.status is MemoryOutcome.REVIEW else ""
    return ToolResult(outcome=Outcome.OK, output=f"{text}{named}{reason}")


def _wish(arguments: JsonObject, context: ToolCallContext) -> NewMemory | None:
    """Reads the arguments. The gate has checked them, but a call from elsewhere may not have been."""
    content = arguments.get("content")
    if not isinstance(content, str) or not content:
        return None
    try:
        kind = MemoryKind(arguments.get("kind", MemoryKind.FACT.value))
        scope = MemoryScope(arguments.get("scope", MemoryScope.PRINCIPAL.value))
    except ValueError:
        return None
    scope_ids = {
        MemoryScope.SESSION: str(context.session_id),
        MemoryScope.AGENT: context.agent,
        MemoryScope.CHANNEL: channel_of(context.origin),
    }
    source = MemorySource(session_id=context.session_id, run_id=context.run_id)
    return NewMemory(content=content, kind=kind, scope=scope, scope_id=scope_ids.get(scope), source=source)
