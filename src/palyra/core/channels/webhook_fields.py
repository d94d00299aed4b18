"""Maps the JSON of a webhook to a message: which member of the body is which field.

Owns: paths such as `ticket.author` and `items.0.id`, and the limits of what they find.
Does not own: signatures (signatures), which fields a channel maps (config).
"""

from collections.abc import Mapping

from palyra.core.channels.model import ID_LENGTH_MAX, TEXT_LENGTH_MAX, InboundMessage
from palyra.core.errors import Invalid

FIELDS = frozenset(
    {"envelope_id", "sender_id", "conversation_id", "text", "is_direct", "thread_id", "sender_display", "message_id"}
)
STEPS_MAX = 16
_IDS = ("envelope_id", "sender_id", "conversation_id")
_OPTIONAL_IDS = ("thread_id", "sender_display", "message_id")


def find_at(body: object, path: str) -> object:
    """Returns what stands at a path, or None. Steps are names of members or numbers of items."""
    found = body
    for step in path.split(".")[:STEPS_MAX]:
        if isinstance(found, Mapping):
            found = found.get(step)
        elif isinstance(found, list) and step.isascii() and step.isdecimal() and int(step[:9]) < len(found):
            found = found[int(step[:9])]
        else:
            return None
    return found


def read_message(body: object, channel: str, mapping: Mapping[str, str]) -> InboundMessage:
    """Reads a message from a decoded body. Invalid names the field that is missing or unfit."""
    if not isinstance(body, dict):
        raise Invalid("body_invalid", "the body is no JSON object")
    found = {name: find_at(body, mapping.get(name, name)) for name in FIELDS}
    ids = {name: _id(name, found[name]) for name in _IDS}
    optional = {name: None if found[name] is None else _id(name, found[name]) for name in _OPTIONAL_IDS}
    text = found["text"]
    if not isinstance(text, str) or len(text) > TEXT_LENGTH_MAX:
        raise Invalid("body_invalid", f"text is a string of at most {TEXT_LENGTH_MAX} characters")
    is_direct = found["is_direct"]
    if not isinstance(is_direct, bool | None):
        raise Invalid("body_invalid", "is_direct is true or false")
    return InboundMessage(
        envelope_id=ids["envelope_id"],
        channel=channel,
        conversation_id=ids["conversation_id"],
        sender_id=ids["sender_id"],
        text=text,
        is_direct=bool(is_direct),
        thread_id=optional["thread_id"],
        sender_display=optional["sender_display"] or "",
        message_id=optional["message_id"],
    )


def _id(name: str, value: object) -> str:
    """Reads an id. Many systems number things, so whole numbers count as their digits."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not 1 <= len(value) <= ID_LENGTH_MAX or not value.isprintable():
        raise Invalid("body_invalid", f"{name} is a printable string of 1 to {ID_LENGTH_MAX} characters")
    return value
