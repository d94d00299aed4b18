"""Pins in a chat: /pin, /unpin and /pins.

Owns: which message is the last one, and the numbers by which pins are named.
Does not own: the commands' names (slash_commands), what a pin is (core.context.pins).
"""

from collections.abc import Callable

from palyra.cli.client import Client
from palyra.cli.terminal.style import in_one_line
from palyra.core.errors import Invalid, NotFound
from palyra.core.events.base import JsonObject

_SHOWN_LENGTH_MAX = 80
_MESSAGE_TYPES = frozenset({"message.user", "message.assistant"})


class ChatPins:
    def __init__(self, client: Client, line: Callable[[str], None]) -> None:
        self._client = client
        self._line = line
        self._last_seq: int | None = None

    def enter(self) -> None:
        """Forgets the session before."""
        self._last_seq = None

    def note(self, event: JsonObject) -> None:
        """Remembers the last message: /pin without words pins it."""
        seq = event.get("seq")
        if event.get("type") in _MESSAGE_TYPES and isinstance(seq, int):
            self._last_seq = seq

    async def pin(self, session_id: str, text: str) -> None:
        if not text and self._last_seq is None:
            raise Invalid("nothing_to_pin", "nobody has said anything here yet; /pin TEXT pins your own words")
        body: JsonObject = {"text": text} if text else {"source_seq": self._last_seq}
        pin = await self._client.post(f"/sessions/{session_id}/pins", body)
        self._line(f"· pinned: {_words(pin)}")

    async def unpin(self, session_id: str, name: str) -> None:
        """Removes the pin with this number or id; without one, the newest."""
        pins = await self._pins(session_id)
        named = [pin for number, pin in enumerate(pins, 1) if name in (str(number), pin.get("id"))]
        found = (named if name else pins)[-1:]
        if not found:
            raise NotFound("pin_unknown", "there is no such pin; /pins lists them with their numbers")
        await self._client.delete(f"/sessions/{session_id}/pins/{found[0]['id']}")
        self._line(f"· no longer pinned: {_words(found[0])}")

    async def show(self, session_id: str) -> None:
        pins = await self._pins(session_id)
        for number, pin in enumerate(pins, 1):
            self._line(f"{number:>3}  {_words(pin)}")
        if not pins:
            self._line("nothing is pinned; /pin TEXT pins words, /pin the last message")

    async def _pins(self, session_id: str) -> list[JsonObject]:
        return pins_in(await self._client.get(f"/sessions/{session_id}/pins"))


def pins_in(page: JsonObject) -> list[JsonObject]:
    """Returns the pins of an answer, which holds them all."""
    items = page.get("items")
    return [each for each in items if isinstance(each, dict)] if isinstance(items, list) else []


def _words(pin: JsonObject) -> str:
    return in_one_line(str(pin.get("text")), _SHOWN_LENGTH_MAX)
