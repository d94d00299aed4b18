"""Bytes of recorded events, made once for everybody who follows the same ones.

Owns: which bytes are kept, and for how long.
Does not own: their form (gateway.http.frames, gateway.grpc.frames).
Invariant: bytes are looked up by the event itself and not by its seq. An erased event keeps its seq and hash, and nobody
may get the content it had before.
"""

from collections.abc import Callable

from palyra.core.events import Event

SHARED_FRAMES_MAX = 512  # Followers of one tape are at most a few frames apart; with the next bound 8 MiB in all.
SHARED_FRAME_BYTES_MAX = 16 * 1024


class EventBytes:
    def __init__(self, encode: Callable[[Event], bytes]) -> None:
        self._encode = encode
        self._shared: dict[int, tuple[Event, bytes]] = {}

    def of(self, event: Event) -> bytes:
        held = self._shared.get(id(event))
        if held is not None and held[0] is event:
            return held[1]
        encoded = self._encode(event)
        if len(encoded) <= SHARED_FRAME_BYTES_MAX:
            self._share(event, encoded)
        return encoded

    def _share(self, event: Event, encoded: bytes) -> None:
        if len(self._shared) >= SHARED_FRAMES_MAX:
            del self._shared[next(iter(self._shared))]
        self._shared[id(event)] = (event, encoded)
