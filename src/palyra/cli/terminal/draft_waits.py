"""How long calls waited for a person to answer about what they changed: no time of the call itself.

Does not own: what is shown of a call (transcript, timeline).
"""

from collections.abc import Mapping


class DraftWaits:
    """Is told the events of calls in their order."""

    def __init__(self) -> None:
        self._sealed: dict[object, int] = {}
        self._waits: dict[object, int] = {}

    def take(self, name: object, data: Mapping[str, object], at_ms: int) -> None:
        call_id = data.get("call_id")
        if name == "tool.drafted":
            self._sealed[call_id] = at_ms
        elif name in ("draft.applying", "tool.finished") and call_id in self._sealed:
            self._waits[call_id] = self._waits.get(call_id, 0) + max(0, at_ms - self._sealed.pop(call_id))

    def of(self, call_id: object) -> int:
        return self._waits.get(call_id, 0)

    def clear(self) -> None:
        self._sealed.clear()
        self._waits.clear()
