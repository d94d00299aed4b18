"""Auto-injection: which remembered items a model is reminded of without having asked.

Owns: the question that a message asks of memory, the threshold, and the limits of both layers.
Does not own: finding items (ports.memory), their text in a prompt (core.context.recalled).
"""

from collections.abc import Collection, Iterable, Sequence

from palyra.core.context.layers import is_said_by_person
from palyra.core.context.recalled import is_recall
from palyra.core.context.window import Window
from palyra.core.events.model import RecalledItem
from palyra.core.memory.model import QUERY_LENGTH_MAX, MemoryHit, MemoryItem
from palyra.core.trust import is_tainting

SCORE_MIN = 0.35  # Below it, an item more often misleads than it helps.
RECALLED_MAX = 6
RECALLED_CHARS_MAX = 3_200  # About 800 tokens.
ITEM_CHARS_MAX = 1_200  # A longer item is found by memory.search, and read there.
PREFERENCES_MAX = 20
PREFERENCES_CHARS_MAX = 2_000  # They are in every prompt of their owner.
SCORE_BPS = 10_000


def recall_question(window: Window) -> str | None:
    """Returns the words of the newest message, unless an answer to it has begun or it was recalled for already."""
    for item in reversed(window.items):
        if item.is_reference:
            if is_recall(item.message.text):
                return None
            continue
        return item.message.text[:QUERY_LENGTH_MAX] if is_said_by_person(item) else None
    return None


def choose_recalled(hits: Iterable[MemoryHit], shown: Collection[str], chars_max: int) -> tuple[MemoryHit, ...]:
    """Returns the hits to show, best first. `shown` are items that the context holds already."""
    chosen: list[MemoryHit] = []
    left = min(chars_max, RECALLED_CHARS_MAX)
    for hit in hits:
        length = len(hit.item.content)
        if hit.score < SCORE_MIN or hit.item.id in shown or length > min(left, ITEM_CHARS_MAX):
            continue
        chosen.append(hit)
        left -= length
        if len(chosen) == RECALLED_MAX:
            break
    return tuple(chosen)


def choose_preferences(items: Iterable[MemoryItem], now_ms: int) -> tuple[MemoryItem, ...]:
    """Returns the newest preferences that fit, in the order of their ids.

    One from outside is never shown unasked: it would steer every later conversation of its owner.
    """
    chosen: list[MemoryItem] = []
    left = PREFERENCES_CHARS_MAX
    for item in sorted(items, key=lambda each: each.id, reverse=True):
        is_over = item.expires_at_ms is not None and item.expires_at_ms <= now_ms
        if is_over or is_tainting(item.trust) or len(item.content) > left:
            continue
        chosen.append(item)
        left -= len(item.content)
        if len(chosen) == PREFERENCES_MAX:
            break
    return tuple(sorted(chosen, key=lambda each: each.id))


def recalled_item(item: MemoryItem, score: float, fence_id: str) -> RecalledItem:
    return RecalledItem(
        memory_id=item.id,
        score_bps=max(0, min(SCORE_BPS, round(score * SCORE_BPS))),
        trust=item.trust,
        kind=item.kind.value,
        content=item.content,
        sources=item.taint if is_tainting(item.trust) else (),
        fence_id=fence_id,
    )


def changed_preferences(
    known: Sequence[RecalledItem], wanted: Sequence[MemoryItem]
) -> tuple[tuple[MemoryItem, ...], tuple[str, ...]]:
    """Returns the preferences that the context lacks, and the ids of those that it holds no longer."""
    held, ids = {each.memory_id for each in known}, {item.id for item in wanted}
    fresh = tuple(item for item in wanted if item.id not in held)
    return fresh, tuple(each.memory_id for each in known if each.memory_id not in ids)
