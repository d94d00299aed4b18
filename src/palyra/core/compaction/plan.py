"""Plans a compaction: what goes, what is kept word for word, and the summary that rules alone can make.

Owns: the order in which items are kept, and the room they get. Does not own: finding them (findings).
A compaction builds on the tape. Items of an earlier compaction are kept as they were said, also those that a model's
summary told in its words. So a summary of a summary does not decay: the words are still the person's own.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from palyra.core.compaction.findings import find_items, lowest_trust, split_sentences
from palyra.core.compaction.model import Compaction, DroppedMessage, Exchange, KeptItem, KeptKind
from palyra.core.compaction.open_tasks import retire_tasks
from palyra.core.compaction.superseded import retire_rules
from palyra.core.trust import Trust, lowest

ITEMS_MAX = 400
RULES_ROOMS = 2  # Rules may take so many times their room, and no more: rules alone help nobody.
OTHERS_SHARE = 4  # One part in so many of the room is free of rules, for open tasks and decisions.
LINE_CHARS_MAX = 160
DROPPED_CHARS_MAX = 120
HEADINGS = {
    KeptKind.RULE: "Rules that hold",
    KeptKind.TASK: "Open tasks",
    KeptKind.DECISION: "Decisions",
    KeptKind.FACT: "Facts",
}


# What stays of a summary, the more the context lacks room. What happened stays only in the first.
CUTS = (frozenset(KeptKind), frozenset({KeptKind.RULE, KeptKind.TASK, KeptKind.DECISION}), frozenset({KeptKind.RULE}))


def plan_compaction(
    exchanges: Sequence[Exchange],
    earlier: Sequence[KeptItem],
    earlier_trust: Trust,
    room_chars: int,
    earlier_summary: str = "",
) -> Compaction:
    """Returns the compaction that needs no model. `earlier` is what the compaction before this one kept and told."""
    found = [item for exchange in exchanges for item in find_items(exchange)]
    known = [replace(item, is_told=False) for item in earlier]
    holding, retired = retire_rules(known, found, exchanges)
    holding, done = retire_tasks(holding, exchanges)
    items = keep_items(holding, room_chars * 3 // 4)
    left = max(0, room_chars - sum(_line_chars(item) for item in items))
    return Compaction(
        from_place=exchanges[0].place,
        to_place=exchanges[-1].place,
        items=items,
        summary=_continue(earlier_summary, outline(exchanges, left), left),
        trust=lowest((lowest_trust(exchanges), earlier_trust)),
        retired=(*retired, *done),
        dropped=dropped_of(exchanges, items),
    )


def dropped_of(exchanges: Sequence[Exchange], items: Sequence[KeptItem]) -> tuple[DroppedMessage, ...]:
    """Returns the messages of which no sentence is kept."""
    kept = {item.place for item in items}
    gone = [exchange for exchange in exchanges if exchange.said and exchange.place not in kept]
    return tuple(
        DroppedMessage(place=each.place, text=" ".join(each.said.split())[:DROPPED_CHARS_MAX]) for each in gone
    )


def keep_items(items: Iterable[KeptItem], room_chars: int) -> tuple[KeptItem, ...]:
    """Returns the items that fit, each sentence once. Rules come first, then tasks and decisions, then new facts."""
    rules_room, others_least = RULES_ROOMS * room_chars, room_chars // OTHERS_SHARE
    unique = {(item.kind, " ".join(item.text.split()).casefold()): item for item in items}
    order = {KeptKind.RULE: 0, KeptKind.TASK: 1, KeptKind.DECISION: 2, KeptKind.FACT: 3}
    wanted = sorted(unique.values(), key=lambda item: (order[item.kind], -item.place))
    kept: list[KeptItem] = []
    for item in wanted:
        chars = 0 if item.is_told else _line_chars(item)
        is_rule = item.kind is KeptKind.RULE
        if (chars > (rules_room if is_rule else room_chars) and chars) or len(kept) >= ITEMS_MAX:
            continue
        kept.append(item)
        if is_rule:
            rules_room -= chars
            room_chars = max(room_chars - chars, others_least)
        else:
            room_chars -= chars
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


def cut_summary(items: Sequence[KeptItem], summary: str, cut: int) -> tuple[tuple[KeptItem, ...], str]:
    """Returns what is left of a summary if it has to give way. Rules never do."""
    return tuple(item for item in items if item.kind in CUTS[cut]), "" if cut else summary


def tell(items: Sequence[KeptItem], summary: str) -> str:
    """Returns what the model is shown in the place of the compacted conversation."""
    parts: list[str] = []
    for kind, heading in HEADINGS.items():
        lines = [f"- {item.text}" for item in items if item.kind is kind and not item.is_told]
        if lines:
            parts.append("\n".join((f"{heading}:", *lines)))
    if summary:
        parts.append(f"What happened:\n{summary}")
    return "\n\n".join(parts)


def _continue(earlier: str, added: str, room_chars: int) -> str:
    """Returns an earlier summary with what was added to it. Its oldest lines give way first."""
    lines: list[str] = []
    room_chars -= len(added)
    for line in reversed(earlier.splitlines()):
        room_chars -= len(line) + 1
        if room_chars < 0:
            break
        lines.append(line)
    return "\n".join((*reversed(lines), added)) if added else "\n".join(reversed(lines))


def _line(exchange: Exchange) -> str:
    first = next(iter(split_sentences(exchange.said)), " ".join(exchange.said.split()))[:LINE_CHARS_MAX]
    answer = next(iter(split_sentences(exchange.answers[-1])), "")[:LINE_CHARS_MAX] if exchange.answers else ""
    tools = f" [{', '.join(dict.fromkeys(exchange.tools))}]" if exchange.tools else ""
    return f"- {first}{tools}" + (f" → {answer}" if answer else "")


def _line_chars(item: KeptItem) -> int:
    return len(item.text) + 3
