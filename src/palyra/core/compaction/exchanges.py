"""Exchanges of a conversation, made from the items of a window or of a tape.

Owns: where an exchange begins and ends. Does not own: what of it is kept (findings, plan).
"""

from collections.abc import Iterable

from palyra.core.compaction.completion import ticked_lines
from palyra.core.compaction.model import Compaction, Exchange, KeptItem, SaidWords
from palyra.core.compaction.plan import plan_compaction
from palyra.core.context.layers import is_said_by_person
from palyra.core.context.messages import AssistantMessage, ToolMessage
from palyra.core.context.window import Window, WindowItem
from palyra.core.events.base import JsonObject
from palyra.core.trust import Trust, lowest


def exchanges_of(items: Iterable[WindowItem]) -> tuple[Exchange, ...]:
    """Returns the exchanges. What comes before the first words of a person belongs to an exchange without words."""
    groups: list[list[WindowItem]] = []
    for item in items:
        if not groups or is_said_by_person(item):
            groups.append([])
        groups[-1].append(item)
    return tuple(_exchange(group) for group in groups)


def _exchange(items: list[WindowItem]) -> Exchange:
    first = items[0]
    is_said = is_said_by_person(first)
    answers = [item.message for item in items if isinstance(item.message, AssistantMessage)]
    return Exchange(
        place=first.place,
        said=first.message.text if is_said else "",
        said_trust=first.trust,
        answers=tuple(answer.text for answer in answers if answer.text),
        tools=tuple(call.tool for answer in answers for call in answer.tool_calls),
        trust=lowest(item.trust for item in items),
        later=_statements(items),
        typed=first.typed if is_said else None,
    )


def _statements(items: list[WindowItem]) -> tuple[SaidWords, ...]:
    """Returns the answers, and the ticked lines that successful calls wrote or read."""
    found: list[SaidWords] = []
    written: dict[str, tuple[str, Trust]] = {}
    for item in items:
        match item.message:
            case AssistantMessage(text=text, tool_calls=calls):
                written |= {call.call_id: (_texts(call.arguments), item.trust) for call in calls}
                found.append(SaidWords(text=text, place=item.place, trust=item.trust))
            case ToolMessage(call_id=call_id, text=text, is_error=False):
                asked, trust = written.get(call_id, ("", item.trust))
                ticked = (*ticked_lines(asked), *ticked_lines(text))
                lowered = lowest((trust, item.trust))
                found += [SaidWords(text=line, place=item.place, trust=lowered) for line in ticked]
            case _:
                pass
    return tuple(found)


def _texts(arguments: JsonObject | str) -> str:
    values = arguments.values() if isinstance(arguments, dict) else ()
    return "\n".join(value for value in values if isinstance(value, str))


def plan_by_rules(window: Window, exchanges: tuple[Exchange, ...], room_chars: int) -> Compaction:
    """Returns the compaction that needs no model."""
    summary = window.summary
    earlier: tuple[KeptItem, ...] = summary.items if summary is not None else ()
    trust = summary.trust if summary is not None else Trust.SYSTEM
    return plan_compaction(exchanges, earlier, trust, room_chars, summary.text if summary is not None else "")
