"""Pins: words that a person keeps in the context, and how a model is shown them.

Owns: their limits, their order and their text in a prompt. Does not own: recording them (engine.api.marks).
Invariants: a pin is shown word for word until it is removed or the session is reset. Words below `local` stand in a
fence whose id is the random end of the pin's own id.
"""

from collections.abc import Sequence

import msgspec

from palyra.core.context.messages import UserMessage
from palyra.core.events.session import PinAdded
from palyra.core.fences import FENCE_ID_LENGTH, fence
from palyra.core.trust import Trust, is_tainting

PINS_MAX = 50  # Pins are in every prompt of the session; more of them crowd out the conversation.
PIN_CHARS_MAX = 4_000

_HEAD = "[palyra] Pinned by the user:"


class Pin(msgspec.Struct, frozen=True):
    pin_id: str
    text: str
    trust: Trust


def add_pin(pins: tuple[Pin, ...], added: PinAdded, trust: Trust) -> tuple[Pin, ...]:
    return (*pins, Pin(added.pin_id, added.text, trust))


def remove_pin(pins: tuple[Pin, ...], pin_id: str) -> tuple[Pin, ...]:
    return tuple(pin for pin in pins if pin.pin_id != pin_id)


def render_pins(pins: Sequence[Pin]) -> tuple[UserMessage, ...]:
    """Returns the one message that shows all pins, or none if nothing is pinned."""
    if not pins:
        return ()
    return (UserMessage("\n\n".join((_HEAD, *(_shown(pin) for pin in pins)))),)


def _shown(pin: Pin) -> str:
    if not is_tainting(pin.trust):
        return pin.text
    return fence(pin.text, pin.pin_id[-FENCE_ID_LENGTH:].lower(), "a pin")
