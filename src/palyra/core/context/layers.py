"""Chooses what one model call is sent, under the room that the model has.

Owns: the order of layers, what is protected, pruning, and when a context does not fit.
Does not own: counting tokens (engine.session.context_assembler), rendering (prompt), compaction (compaction).

Pruning changes what is sent, never the tape. It moves in steps: it begins when the context fills more than `PRUNE_AT`
of the room and goes on until it fills no more than `PRUNE_TO`. Between two steps the beginning of the prompt stays the
same, byte for byte, so that providers' caches hit. The room is what the descriptions of tools leave: they are the same
in every turn, and no pruning makes them less.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from palyra.core.context.messages import AssistantMessage, ToolMessage, UserMessage
from palyra.core.context.recalled import RECALL_LAYER
from palyra.core.context.window import CHARS_MAX, ITEMS_MAX, Window, WindowItem
from palyra.core.events.model import ContextLayer
from palyra.core.trust import Trust, lowest

PRUNE_AT = 0.6
PRUNE_TO = 0.4
PROTECTED_EXCHANGES = 6
PROTECTED_STEPS = (
    PROTECTED_EXCHANGES,
    3,
    1,
)  # How many are kept whole if a context does not fit: fewer, until it does.
TOOLS_LAYER = "tools"
FULL_SHARE = 0.85  # Of the window in memory. What is left takes the calls and results of one turn.
GUIDANCE_PREFIX = "[palyra] "  # Marks what the daemon itself tells a model within the conversation.


class SizedItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item of the window with its size as it is and as it is when shortened.

    `replaced_at` is the place from which on something else replaces it. A message that is dropped takes nothing.
    `is_recalled` marks what this turn's message was reminded of.
    """

    place: int
    trust: Trust
    tokens: int
    short_tokens: int
    is_result: bool = False
    replaced_at: int | None = None
    is_recalled: bool = False


class FixedLayer(msgspec.Struct, frozen=True, kw_only=True):
    """A layer that nothing prunes: instructions, tools, pins, project documents, the summary.

    `cut_tokens` is what the summary takes if it gives way once, twice. It is empty while something else can give way.
    """

    name: str
    source: str
    trust: Trust
    tokens: int
    cut_tokens: tuple[int, ...] = ()


class ContextCase(msgspec.Struct, frozen=True, kw_only=True):
    """`budget_tokens` is None if nobody knows how much the model takes. Results after `answered_place` are new."""

    budget_tokens: int | None
    fixed: tuple[FixedLayer, ...]
    items: tuple[SizedItem, ...]
    protected_place: int
    answered_place: int = 0
    pruned_place: int = 0
    dropped_place: int = 0


class ChosenContext(msgspec.Struct, frozen=True, kw_only=True):
    """`whole_tokens` is what the context would take without pruning: compaction looks at that."""

    layers: tuple[ContextLayer, ...]
    tools_tokens: int
    input_tokens: int
    whole_tokens: int
    pruned_place: int
    dropped_place: int
    summary_cut: int
    is_over: bool


def choose_context(case: ContextCase) -> ChosenContext:
    fixed_tokens = sum(layer.tokens for layer in case.fixed)
    whole_tokens = fixed_tokens + sum(item.tokens for item in case.items)
    dropped_place, pruned_place = _prune(case, fixed_tokens)
    input_tokens = fixed_tokens + _sent_tokens(case.items, dropped_place, pruned_place)
    summary_cut = _choose_cut(case, input_tokens)
    fixed = tuple(_fixed_layer(layer, summary_cut) for layer in case.fixed)
    input_tokens += sum(layer.tokens for layer in fixed) - fixed_tokens
    return ChosenContext(
        tools_tokens=_tools_tokens(case),
        layers=(*fixed, *_layers(case, dropped_place, pruned_place)),
        input_tokens=input_tokens,
        whole_tokens=whole_tokens,
        pruned_place=pruned_place,
        dropped_place=dropped_place,
        summary_cut=summary_cut,
        is_over=case.budget_tokens is not None and input_tokens > case.budget_tokens,
    )


def protected_place(window: Window, exchanges_count: int = PROTECTED_EXCHANGES) -> int:
    """Returns the place from which on nothing is compacted: the beginning of the last exchanges.

    Calls without a result belong to it, however much was said since: they may wait for an approval, and a result without
    its call is never shown.
    """
    begun = [item.place for item in window.items if is_said_by_person(item)]
    place = begun[-exchanges_count] if len(begun) >= exchanges_count else (begun[0] if begun else 0)
    asked_place = answered_place(window)
    if asked_place >= place or not open_calls(window):
        return place
    return max((each for each in begun if each <= asked_place), default=asked_place)


def has_older_part(window: Window, exchanges_count: int = PROTECTED_EXCHANGES) -> bool:
    """Whether there is an exchange before the protected ones."""
    begun = next((item.place for item in window.items if is_said_by_person(item)), None)
    return begun is not None and begun < protected_place(window, exchanges_count)


def is_full(window: Window) -> bool:
    """Whether the window in memory is about to lose its oldest messages, however much the model would take."""
    return len(window.items) >= FULL_SHARE * ITEMS_MAX or window.chars >= FULL_SHARE * CHARS_MAX


def answered_place(window: Window) -> int:
    """Returns the place of the last answer of a model. It has seen the results before that, and none behind it."""
    return next((item.place for item in reversed(window.items) if isinstance(item.message, AssistantMessage)), 0)


def open_calls(window: Window) -> tuple[str, ...]:
    """Returns the tools whose calls have no result yet: they run, or wait for an approval. Only the last answer has any."""
    messages = [item.message for item in window.items]
    said = next((message for message in reversed(messages) if isinstance(message, AssistantMessage)), None)
    done = {message.call_id for message in messages if isinstance(message, ToolMessage)}
    return () if said is None else tuple(call.tool for call in said.tool_calls if call.call_id not in done)


def is_said_by_person(item: WindowItem) -> bool:
    message = item.message
    is_said = isinstance(message, UserMessage) and not item.is_reference
    return is_said and not message.text.startswith(GUIDANCE_PREFIX)


def low_signal(window: Window) -> dict[int, int]:
    """Returns the places of items that something later replaces, each with the place from which on it is not needed.

    These are the daemon's guidance to a model, which newer messages follow, and results of reads that were repeated.
    """
    found = {
        item.place: item.place
        for item in window.items
        if isinstance(item.message, UserMessage) and not item.is_reference and not is_said_by_person(item)
    }
    return found | _repeated_reads(window)


def _repeated_reads(window: Window) -> dict[int, int]:
    """Finds results that a later equal call brought again, with the same text."""
    asked = {
        call.call_id: (call.tool, str(call.arguments))
        for item in window.items
        if isinstance(item.message, AssistantMessage)
        for call in item.message.tool_calls
    }
    latest: dict[tuple[object, str], int] = {}
    repeated: dict[int, int] = {}
    for item in window.items:
        if not isinstance(item.message, ToolMessage) or item.message.call_id not in asked:
            continue
        key = (asked[item.message.call_id], item.message.text)
        if key in latest:
            repeated[latest[key]] = item.place
        latest[key] = item.place
    return repeated


def _prune(case: ContextCase, fixed_tokens: int) -> tuple[int, int]:
    dropped_place, pruned_place = case.dropped_place, case.pruned_place
    if case.budget_tokens is None:
        return dropped_place, pruned_place
    tools_tokens = _tools_tokens(case)
    room, taken = case.budget_tokens - tools_tokens, fixed_tokens - tools_tokens
    if taken + _sent_tokens(case.items, dropped_place, pruned_place) <= PRUNE_AT * room:
        return dropped_place, pruned_place
    last, goal = case.protected_place - 1, PRUNE_TO * room - taken
    dropped_place = max(dropped_place, last)
    pruned_place = _shorten_until(case, dropped_place, last, goal)
    if taken + _sent_tokens(case.items, dropped_place, pruned_place) > room:
        # A long run fills the window by itself. The results that its model has answered already are shortened, too.
        pruned_place = _shorten_until(case, dropped_place, case.answered_place, goal)
    return dropped_place, pruned_place


def _shorten_until(case: ContextCase, dropped_place: int, last: int, goal: float) -> int:
    """Returns the place up to which results are shortened, so that the conversation takes no more than the goal."""
    pruned_place = case.pruned_place
    left = _sent_tokens(case.items, dropped_place, pruned_place)
    for item in case.items:
        if left <= goal or item.place > last:
            break
        if item.is_result and item.place > pruned_place and not _is_replaced(item, dropped_place):
            left -= item.tokens - item.short_tokens
            pruned_place = item.place
    return pruned_place


def _tools_tokens(case: ContextCase) -> int:
    return sum(layer.tokens for layer in case.fixed if layer.name == TOOLS_LAYER)


def _sent_tokens(items: Iterable[SizedItem], dropped_place: int, pruned_place: int) -> int:
    return sum(_sent(item, dropped_place, pruned_place) for item in items)


def _sent(item: SizedItem, dropped_place: int, pruned_place: int) -> int:
    if _is_replaced(item, dropped_place):
        return item.short_tokens if item.is_result else 0
    return item.short_tokens if item.is_result and item.place <= pruned_place else item.tokens


def _is_replaced(item: SizedItem, dropped_place: int) -> bool:
    return item.replaced_at is not None and item.replaced_at <= dropped_place


def _choose_cut(case: ContextCase, input_tokens: int) -> int:
    """Returns how much of the summary gives way, so that the context fits if it can."""
    over_tokens = 0 if case.budget_tokens is None else input_tokens - case.budget_tokens
    cuts = next((layer.cut_tokens for layer in case.fixed if layer.cut_tokens), ())
    if over_tokens <= 0 or not cuts:
        return 0
    whole = sum(layer.tokens for layer in case.fixed if layer.cut_tokens)
    return next((cut for cut, tokens in enumerate(cuts, 1) if whole - tokens >= over_tokens), len(cuts))


def _fixed_layer(layer: FixedLayer, cut: int) -> ContextLayer:
    tokens = layer.cut_tokens[cut - 1] if cut and layer.cut_tokens else layer.tokens
    words = f"{layer.tokens - tokens} tokens of the summary give way to the newest message"
    return ContextLayer(
        name=layer.name,
        source=layer.source,
        trust=layer.trust,
        tokens=tokens,
        dropped=words if tokens < layer.tokens else None,
    )


def _layers(case: ContextCase, dropped_place: int, pruned_place: int) -> tuple[ContextLayer, ...]:
    older = [item for item in case.items if item.place < case.protected_place]
    recent = [item for item in case.items if item.place >= case.protected_place and not item.is_recalled]
    recalled = [item for item in case.items if item.is_recalled]
    return tuple(
        replace(_conversation(name, items, dropped_place, pruned_place), source=source)
        for name, source, items in (
            ("older", "conversation", older),
            ("recent", "conversation", recent),
            (RECALL_LAYER, "memory", recalled),
        )
        if items
    )


def _conversation(name: str, items: Sequence[SizedItem], dropped_place: int, pruned_place: int) -> ContextLayer:
    whole, sent = sum(item.tokens for item in items), _sent_tokens(items, dropped_place, pruned_place)
    words = f"{whole - sent} tokens of old results and superseded notes are left out" if sent < whole else None
    return ContextLayer(
        name=name, source="conversation", trust=lowest(item.trust for item in items), tokens=sent, dropped=words
    )
