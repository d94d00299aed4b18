"""What a session's pins allow, checked in its loop, where nothing can come in between.

Owns: the limit, and the end of all pins at a reset. Does not own: the words' length and trust (engine.api.marks).
"""

from msgspec.structs import replace

from palyra.core.context.pins import PINS_MAX
from palyra.core.errors import Conflict, NotFound
from palyra.core.events import Data, Draft
from palyra.core.events.session import PinAdded, PinRemoved
from palyra.engine.session.pending_commit import SessionState


def require_pin(state: SessionState, data: Data) -> None:
    """Refuses a pin too many, one of words before the reset, and the removal of a pin that is not there."""
    pins = state.window.pins
    if isinstance(data, PinAdded):
        if len(pins) >= PINS_MAX:
            message = f"the session has {PINS_MAX} pins, the most there can be; remove one first"
            raise Conflict("too_many_pins", message, is_retryable=False)
        if data.source_seq is not None and data.source_seq <= state.reset_seq:
            message = f"event {data.source_seq} lies before the session's reset; pin the words as your own text"
            raise Conflict("pin_before_reset", message, is_retryable=False)
    if isinstance(data, PinRemoved) and all(pin.pin_id != data.pin_id for pin in pins):
        raise NotFound("pin_unknown", f"the session has no pin {data.pin_id}; GET …/pins lists those there are")


def unpin_all(state: SessionState, reset: Draft) -> tuple[Draft, ...]:
    """Returns the removals before a reset. They tell the projection which pins an earlier branch point still has."""
    return tuple(replace(reset, data=PinRemoved(pin_id=pin.pin_id)) for pin in state.window.pins)
