"""Addresses in a conversation. Owns: whether an address that a call would reach was given to the model, word for word.

Fetching an address can carry a secret out, if the model writes the secret into it. One that stands as it is in what a
person said or a tool brought carries nothing but the choice of it.
"""

from palyra.core.conversation import ToolMessage, UserMessage, Window

LENGTH_MIN = 4  # A shorter one would be found by chance.


def is_known_address(address: str | None, window: Window) -> bool:
    """The model's own words do not count: it could have put anything together in them."""
    if address is None or len(address) < LENGTH_MIN:
        return False
    heard = (item.message.text for item in window.items if isinstance(item.message, UserMessage | ToolMessage))
    return any(address in text for text in heard)
