"""Plans a compaction: what goes, what is kept word for word, and the summary that rules alone can make.

Owns: the order in which items are kept, and the room they get. Does not own: finding them (findings).
A compaction builds on the tape. Items of an earlier compaction are kept as they were said, so a summary of a summary
does not decay: the words are still the person's own.
"""

from collections.abc import Iterable, Sequence

from palyra.core.compaction.findings import find_items, lowest_trust, split_sentences
from palyra.core.compaction.model import Compaction, Exchange, KeptItem, KeptKind
from palyra.core.trust import Trust, lowest

ITEMS_MAX = 400
PINNED_KINDS = (KeptKind.RULE, KeptKind.TASK, KeptKind.DECISION)
LINE_CHARS_MAX = 160
HEADINGS = {
    KeptKind.RULE: "Rules that hold",
    KeptKind.TASK: "Open tasks",
    KeptKind.DECISION: "Decisions",
    KeptKind.FACT: "Facts",
}


def plan_compaction(
    exchanges: Sequence[Exchange], earlier: Sequence[KeptItem], earlier_trust: Trust, room_chars: int
) -> Compaction:
    """Returns the compaction that needs no model. `earlier` is what the compaction before this one kept."""
    found = [item for exchange in exchanges for item in find_items(exchange)]
    items = keep_items((*earlier, *found), room_chars * 3 // 4)
    left = room_chars - sum(_line_chars(item) for item in items)
    trust = lowest((lowest_trust(exchanges), earlier_trust)) if earlier else lowest_trust(exchanges)
    return Compaction(
        from_place=exchanges[0].place,
        to_place=exchanges[-1].place,
        items=items,
        summary=outline(exchanges, max(0, left)),
        trust=trust,
    )


def keep_items(items: Iterable[KeptItem], room_chars: int) -> tuple[KeptItem, ...]:
    """Returns the items that fit, each sentence once. Rules come first, then tasks and decisions, then new facts."""
    unique = {(item.kind, " ".join(item.text.split()).casefold()): item for item in items}
    order = {KeptKind.RULE: 0, KeptKind.TASK: 1, KeptKind.DECISION: 2, KeptKind.FACT: 3}
    wanted = sorted(unique.values(), key=lambda item: (order[item.kind], -item.place))
    kept: list[KeptItem] = []
    for item in wanted:
        room_chars -= _line_chars(item)
        if (room_chars < 0 and item.kind is not KeptKind.RULE) or len(kept) >= ITEMS_MAX:
            break
        kept.append(item)
    return tuple(sorted(kept, key=lambda item: (order[item.kind], item.place)))


def outline(exchanges: Sequence[Exchange], room_chars: int) -> str:
    """Returns one line for each exchange, the newest first to get room: what was asked, which tools ran."""
    lines: list[str] = []
    for exchange in reversed(exchanges):
        line = _line(exchange)
        room_chars -= len(line) + 1
        if room_chars < 0:
            lines.append("- (earlier exchanges are on the tape; session.search finds them)")
            break
        lines.append(line)
    return "\n".join(reversed(lines))


def tell(items: Sequence[KeptItem], summary: str) -> str:
    """Returns what the model is shown in the place of the compacted conversation."""
    parts: list[str] = []
    for kind, heading in HEADINGS.items():
        lines = [f"- {item.text}" for item in items if item.kind is kind]
        if lines:
            parts.append("\n".join((f"{heading}:", *lines)))
    if summary:
        parts.append(f"What happened:\n{summary}")
    return "\n\n".join(parts)


def _line(exchange: Exchange) -> str:
    first = next(iter(split_sentences(exchange.said)), " ".join(exchange.said.split()))[:LINE_CHARS_MAX]
    answer = next(iter(split_sentences(exchange.answers[-1])), "")[:LINE_CHARS_MAX] if exchange.answers else ""
    tools = f" [{', '.join(dict.fromkeys(exchange.tools))}]" if exchange.tools else ""
    return f"- {first}{tools}" + (f" → {answer}" if answer else "")


def _line_chars(item: KeptItem) -> int:
    return len(item.text) + 3
