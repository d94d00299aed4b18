"""Chooses what one model call is sent, under the room that the model has.

Owns: the order of layers, what is protected, pruning, and when a context does not fit.
Does not own: counting tokens (engine.session.context_assembler), rendering (prompt), compaction (compaction).

Pruning changes what is sent, never the tape. It moves in steps: it begins when the context fills more than `PRUNE_AT`
of the room and goes on until it fills no more than `PRUNE_TO`. Between two steps the beginning of the prompt stays the
same, byte for byte, so that providers' caches hit.
"""

from collections.abc import Iterable, Sequence

import msgspec

from palyra.core.context.messages import AssistantMessage, ToolMessage, UserMessage
from palyra.core.context.window import Window, WindowItem
from palyra.core.events.model import ContextLayer
from palyra.core.trust import Trust, lowest

PRUNE_AT = 0.6
PRUNE_TO = 0.4
PROTECTED_EXCHANGES = 6
GUIDANCE_PREFIX = "[palyra] "  # Marks what the daemon itself tells a model within the conversation.


class SizedItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item of the window with its size as it is and as it is when shortened.

    `replaced_at` is the place from which on something else replaces it. A message that is dropped takes nothing.
    """

    place: int
    trust: Trust
    tokens: int
    short_tokens: int
    is_result: bool = False
    replaced_at: int | None = None


class FixedLayer(msgspec.Struct, frozen=True, kw_only=True):
    """A layer that is sent whole or not at all: instructions, tools, pins, project documents, the summary."""

    name: str
    source: str
    trust: Trust
    tokens: int


class ContextCase(msgspec.Struct, frozen=True, kw_only=True):
    """`budget_tokens` is None if nobody knows how much the model takes."""

    budget_tokens: int | None
    fixed: tuple[FixedLayer, ...]
    items: tuple[SizedItem, ...]
    protected_place: int
    pruned_place: int = 0
    dropped_place: int = 0


class ChosenContext(msgspec.Struct, frozen=True, kw_only=True):
    """`whole_tokens` is what the context would take without pruning: compaction looks at that."""

    layers: tuple[ContextLayer, ...]
    input_tokens: int
    whole_tokens: int
    pruned_place: int
    dropped_place: int
    is_over: bool


def choose_context(case: ContextCase) -> ChosenContext:
    fixed_tokens = sum(layer.tokens for layer in case.fixed)
    whole_tokens = fixed_tokens + sum(item.tokens for item in case.items)
    dropped_place, pruned_place = _prune(case, fixed_tokens)
    input_tokens = fixed_tokens + _sent_tokens(case.items, dropped_place, pruned_place)
    return ChosenContext(
        layers=_layers(case, dropped_place, pruned_place),
        input_tokens=input_tokens,
        whole_tokens=whole_tokens,
        pruned_place=pruned_place,
        dropped_place=dropped_place,
        is_over=case.budget_tokens is not None and input_tokens > case.budget_tokens,
    )


def protected_place(window: Window) -> int:
    """Returns the seq from which on nothing is shortened: the beginning of the last exchanges."""
    begun = [item.place for item in window.items if is_said_by_person(item)]
    return begun[-PROTECTED_EXCHANGES] if len(begun) >= PROTECTED_EXCHANGES else (begun[0] if begun else 0)


def has_older_part(window: Window) -> bool:
    """Whether there is an exchange before the protected ones."""
    begun = [item.place for item in window.items if is_said_by_person(item)]
    return len(begun) > PROTECTED_EXCHANGES


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
    budget = case.budget_tokens
    if budget is None or fixed_tokens + _sent_tokens(case.items, dropped_place, pruned_place) <= PRUNE_AT * budget:
        return dropped_place, pruned_place
    goal = PRUNE_TO * budget - fixed_tokens
    last = case.protected_place - 1
    dropped_place = max(dropped_place, last)
    left = _sent_tokens(case.items, dropped_place, pruned_place)
    for item in case.items:
        if left <= goal or item.place > last:
            break
        if item.is_result and item.place > pruned_place and not _is_replaced(item, dropped_place):
            left -= item.tokens - item.short_tokens
            pruned_place = item.place
    return dropped_place, pruned_place


def _sent_tokens(items: Iterable[SizedItem], dropped_place: int, pruned_place: int) -> int:
    return sum(_sent(item, dropped_place, pruned_place) for item in items)


def _sent(item: SizedItem, dropped_place: int, pruned_place: int) -> int:
    if _is_replaced(item, dropped_place):
        return item.short_tokens if item.is_result else 0
    return item.short_tokens if item.is_result and item.place <= pruned_place else item.tokens


def _is_replaced(item: SizedItem, dropped_place: int) -> bool:
    return item.replaced_at is not None and item.replaced_at <= dropped_place


def _layers(case: ContextCase, dropped_place: int, pruned_place: int) -> tuple[ContextLayer, ...]:
    fixed = [
        ContextLayer(name=layer.name, source=layer.source, trust=layer.trust, tokens=layer.tokens)
        for layer in case.fixed
    ]
    older = [item for item in case.items if item.place < case.protected_place]
    recent = [item for item in case.items if item.place >= case.protected_place]
    said = [
        _conversation(name, items, dropped_place, pruned_place)
        for name, items in (("older", older), ("recent", recent))
        if items
    ]
    return (*fixed, *said)


def _conversation(name: str, items: Sequence[SizedItem], dropped_place: int, pruned_place: int) -> ContextLayer:
    whole, sent = sum(item.tokens for item in items), _sent_tokens(items, dropped_place, pruned_place)
    words = f"{whole - sent} tokens of old results and superseded notes are left out" if sent < whole else None
    return ContextLayer(
        name=name, source="conversation", trust=lowest(item.trust for item in items), tokens=sent, dropped=words
    )
