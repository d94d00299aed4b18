"""The services that every endpoint shares: the engine, access, open streams, uploads.

Owns: putting them together for one gateway, and their bounds.
Does not own: requests (gateway.http), what the engine's own services do (engine.api).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from palyra.core.errors import Unavailable
from palyra.engine.engine import Engine
from palyra.engine.hub import Frame, Frames
from palyra.gateway.access.credentials import Credentials
from palyra.gateway.access.viewer import Viewers
from palyra.gateway.http.frames import FrameBytes
from palyra.gateway.http.request_reader import BodyRoom
from palyra.gateway.http.settings import UPLOADS_MAX, HttpSettings
from palyra.gateway.http.sse import EventStream, StreamSlot, StreamSlots


class GrpcState(msgspec.Struct, frozen=True):
    """Whether gRPC is served: `ok`, `starting`, `off`, `port taken` or `failed`. `detail` is its address, or why not."""

    state: str
    detail: str = ""


class GatewayServices:
    """`actions` are those of all operations that need credentials."""

    def __init__(
        self, engine: Engine, settings: HttpSettings, credentials: Credentials, actions: frozenset[str]
    ) -> None:
        self.engine = engine
        self.actions = actions
        self.credentials = credentials
        self.viewers = Viewers(credentials.policy, engine.owners, engine.acts)
        self.slots = StreamSlots(settings.streams_max, settings.streams_per_token_max)
        self.frame_bytes = FrameBytes()
        self.unproven = BodyRoom()
        self.grpc_state = GrpcState("off")
        self._heartbeat_s = settings.heartbeat_s
        self._upload_count = 0

    def stream(self, slot: StreamSlot, frames: Frames, encode: Callable[[Frame], bytes]) -> EventStream:
        return EventStream(self.slots, slot, frames, encode, self._heartbeat_s)

    def require_open(self) -> None:
        """New work is refused while the daemon finishes what it has."""
        if self.engine.status.is_draining:
            raise Unavailable("draining", "the daemon is stopping and takes no new work; try again after its restart")

    @contextmanager
    def uploading(self) -> Iterator[None]:
        if self._upload_count >= UPLOADS_MAX:
            raise Unavailable("uploads_busy", f"{UPLOADS_MAX} uploads are under way; try again in a moment")
        self._upload_count += 1
        try:
            yield
        finally:
            self._upload_count -= 1
