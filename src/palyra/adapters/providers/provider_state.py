"""Provider state. Owns: what a provider wants back with its own earlier answers, marked with whose it is. Not: its content.

Reasoning is signed or sealed by the model that made it. So state goes back only to the same provider and model, only
whole, and never after a secret was cut out of it: a changed block is refused with the whole request.
"""

import msgspec

from palyra.core.conversation import AssistantMessage
from palyra.core.events.base import JsonObject
from palyra.core.redaction.markers import MARKER

STATE_BYTES_MAX = 48 * 1024  # It shares an event's 256 KiB with text, reasoning and arguments.
ORIGIN = "origin"


def keep(origin: str, state: JsonObject) -> JsonObject | None:
    """State to record, or None: there is nothing, or more than fits. The conversation goes on without it."""
    if not any(state.values()):
        return None
    marked: JsonObject = {ORIGIN: origin, **{name: value for name, value in state.items() if value}}
    try:
        size = len(msgspec.json.encode(marked))
    except (TypeError, UnicodeError, ValueError):
        return None
    return marked if size <= STATE_BYTES_MAX else None


def give_back(origin: str, message: AssistantMessage) -> JsonObject:
    """The state of a message if it is this origin's own and untouched; else nothing."""
    state = message.provider_state
    if not state or state.get(ORIGIN) != origin:
        return {}
    return {} if MARKER.search(msgspec.json.encode(state).decode()) else state
