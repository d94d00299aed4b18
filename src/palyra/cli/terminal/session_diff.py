"""Two sessions side by side: where they parted, and what was said in each since.

Does not own: finding the two sessions (commands.session_marks).
"""

from palyra.cli.client import Client
from palyra.cli.terminal.session_ancestry import Part, parts_of
from palyra.cli.terminal.style import Style, in_one_line
from palyra.core.errors import Invalid
from palyra.core.events.base import JsonObject

EVENTS_MAX = 10_000  # Of each tape; more than a person compares.
_SPEAKERS = {"message.user": "user", "message.assistant": "assistant"}
_SHOWN_LENGTH_MAX = 160


async def compare(client: Client, one: JsonObject, other: JsonObject) -> JsonObject:
    """Returns the last event that both share, and the messages of each side after it."""
    histories = [[part async for part in parts_of(client, record)] for record in (one, other)]
    shared, seq = _parting(histories[0], histories[1])
    sides: list[JsonObject] = []
    for record, history in zip((one, other), histories, strict=True):
        messages = await _messages(client, history, shared, seq)
        sides.append({"id": record.get("id"), "label": record.get("label"), "messages": messages})
    return {"shared": {"session_id": shared, "seq": seq}, "sides": sides}


def diff_lines(found: JsonObject, style: Style) -> list[str]:
    shared, sides = found["shared"], found["sides"]
    assert isinstance(shared, dict)
    assert isinstance(sides, list)
    lines = [style.dim(f"both have {shared['session_id']} up to event {shared['seq']}")]
    for sign, side in zip("-+", sides, strict=True):
        messages = side["messages"]
        paint = style.red if sign == "-" else style.green
        lines.append(paint(f"{sign * 3} {side['id']} {in_one_line(str(side['label'] or ''), 60)}".rstrip()))
        for message in messages:
            words = in_one_line(str(message["text"]), _SHOWN_LENGTH_MAX)
            lines.append(paint(f"{sign} {message['seq']:>5} {message['by']}: {words}"))
        if not messages:
            lines.append(style.dim("  nothing was said since"))
    return lines


def _parting(one: list[Part], other: list[Part]) -> tuple[str, int | None]:
    """Returns the youngest tape that both histories have, and the last event of it that both have."""
    bounds = dict(other)
    for name, last_seq in one:
        if name in bounds:
            ends = [seq for seq in (last_seq, bounds[name]) if seq is not None]
            return name, min(ends) if ends else None
    raise Invalid("sessions_unrelated", "the two sessions have no history in common")


async def _messages(client: Client, history: list[Part], shared: str, seq: int | None) -> list[JsonObject]:
    """Returns what was said after the shared event, the oldest first."""
    own: list[Part] = []
    for part in history:
        own.insert(0, part)
        if part[0] == shared:
            break
    said: list[JsonObject] = []
    for name, last_seq in own:
        after = seq if name == shared else 0
        if after is not None and after != last_seq:
            events = await client.items(f"/sessions/{name}/tape", EVENTS_MAX, after=after)
            said += [_message(event) for event in events if _is_said(event, last_seq)]
    return said


def _is_said(event: JsonObject, last_seq: int | None) -> bool:
    seq, data = event.get("seq"), event.get("data")
    is_within = last_seq is None or (isinstance(seq, int) and seq <= last_seq)
    return is_within and event.get("type") in _SPEAKERS and isinstance(data, dict) and "text" in data


def _message(event: JsonObject) -> JsonObject:
    data = event["data"]
    assert isinstance(data, dict)
    return {"seq": event["seq"], "by": _SPEAKERS[str(event["type"])], "text": data["text"]}
