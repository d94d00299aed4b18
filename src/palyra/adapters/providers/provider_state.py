"""Provider state: what a provider wants back with its own earlier answers, marked with its origin.

Does not own: the content of the state.
The model that made reasoning signs or seals it. So state goes back only to the same provider and model, only whole, and
never after a secret was cut out of it. A provider refuses the whole request for one changed block.
"""

import msgspec

from palyra.core.context.messages import AssistantMessage
from palyra.core.events.base import JsonObject
from palyra.core.redaction.markers import MARKER

STATE_BYTES_MAX = 48 * 1024  # It shares an event's 256 KiB with text, reasoning and arguments.
ORIGIN = "origin"


def keep(origin: str, state: JsonObject) -> JsonObject | None:
    """Returns the state to record, or None if there is none or it does not fit. The conversation goes on without it."""
    if not any(state.values()):
        return None
    marked: JsonObject = {ORIGIN: origin, **{name: value for name, value in state.items() if value}}
    try:
        size = len(msgspec.json.encode(marked))
    except (TypeError, UnicodeError, ValueError):
        return None
    return marked if size <= STATE_BYTES_MAX else None


def give_back(origin: str, message: AssistantMessage) -> JsonObject:
    """Returns the state of a message if it is this origin's own and unchanged; else nothing."""
    state = message.provider_state
    if not state or state.get(ORIGIN) != origin:
        return {}
    return {} if MARKER.search(msgspec.json.encode(state).decode()) else state
