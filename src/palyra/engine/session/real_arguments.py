"""The real arguments of a call: sealed secrets put back for the gate and the executor alone.

Owns: restoring secrets, and masking them again. Does not own: sealing (event_redactor).
A call is judged by what it will really do, so the gate and the executor see the same real arguments. Records and cards
have the markers again. A value that could be more than one word of a command or a path cannot be judged behind a
marker. Such a call is refused.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import msgspec

from palyra.core.events.base import JsonObject
from palyra.core.ids import RunId
from palyra.core.redaction import Json, find_markers, restore
from palyra.core.redaction.markers import MARKER, map_strings
from palyra.core.writes import SealSecret
from palyra.ports.sealer import Sealer
from palyra.ports.state import State

MARKERS_RESTORED_MAX = 256
# Characters of keys and tokens. Any other may end a word, a line or a path, which no marker shows.
_PLAIN = re.compile(r"[A-Za-z0-9_+/=.:@%~,^-]+")
# Arguments that are written or sent unchanged: they may hold a key of any characters.
_PAYLOADS = frozenset({"content", "body", "text"})


class RealArguments(msgspec.Struct, frozen=True):
    """`values` are what the markers in the arguments stand for.

    Without markers it is empty, and both forms are equal.
    """

    arguments: JsonObject
    values: dict[str, str] = {}

    def mask(self, text: str) -> str:
        """Returns the text with markers in place of the values."""
        for marker, value in self.values.items():
            text = text.replace(value, marker)
        return text

    def hides(self, sealed: JsonObject) -> bool:
        """Tells whether a marker in the arguments stands for more than a key or a token."""
        shown = {name: member for name, member in sealed.items() if name not in _PAYLOADS}
        found = set(_markers_in(shown))
        return any(marker in found and not _is_plain(value) for marker, value in self.values.items())


@dataclass(frozen=True, slots=True)
class ArgumentRestorer:
    state: State
    sealer: Sealer

    async def restore(self, run_id: RunId, arguments: JsonObject, fresh: Iterable[SealSecret] = ()) -> RealArguments:
        """`fresh` are secrets sealed in the same commit, which no table has yet."""
        markers = list(dict.fromkeys(_markers_in(arguments)))[:MARKERS_RESTORED_MAX]
        if not markers:
            return RealArguments(arguments)
        known = {write.secret_id: write.sealed for write in fresh if write.run_id == run_id}
        values: dict[str, str] = {}
        for marker in markers:
            (secret_id,) = find_markers(marker)
            sealed = known.get(secret_id) or await self.state.sealed_secret(run_id, secret_id)
            if sealed is not None:
                values[marker] = self.sealer.unseal(sealed, run_id.encode()).decode()
        if not values:
            return RealArguments(arguments)
        by_id = {find_markers(marker)[0]: value for marker, value in values.items()}
        return RealArguments(cast(JsonObject, restore(cast(Json, arguments), by_id)), values)


def has_markers(arguments: JsonObject) -> bool:
    return bool(_markers_in(arguments))


def _markers_in(value: JsonObject) -> list[str]:
    found: list[str] = []

    def look(text: str) -> str:
        found.extend(match.group() for match in MARKER.finditer(text))
        return text

    map_strings(cast(Json, value), look)
    return found


def _is_plain(value: str) -> bool:
    return _PLAIN.fullmatch(value) is not None and ".." not in value
