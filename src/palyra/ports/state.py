"""The State port: reads what commits wrote besides events. Does not own: writing it (core.writes)."""

from typing import Protocol

from palyra.core.ids import ArtifactId, Principal, RunId, StreamId
from palyra.core.writes import Heartbeat, LinkArtifact


class State(Protocol):
    async def sealed_secret(self, run_id: RunId, secret_id: str) -> bytes | None: ...

    async def artifacts_of(self, stream: StreamId) -> tuple[ArtifactId, ...]: ...

    async def unlinked(self, artifacts: tuple[ArtifactId, ...]) -> tuple[ArtifactId, ...]: ...

    async def artifact_for(self, artifact_id: ArtifactId, principal: Principal) -> LinkArtifact | None:
        """Returns a link to the artifact from one of the principal's sessions or uploads (L11).

        If there are several, it is the least trusted one.
        """
        ...

    async def stalled_heartbeats(self, before_ms: int, limit: int) -> tuple[Heartbeat, ...]:
        """Returns the heartbeats of runs that were last renewed, or last got on, before `before_ms`."""
        ...

    async def last_position(self) -> int:
        """Returns the journal's newest position, 0 when it is empty."""
        ...


class NoState:
    """Used where there is no journal: nothing was ever written."""

    async def sealed_secret(self, run_id: RunId, secret_id: str) -> bytes | None:
        return None

    async def artifacts_of(self, stream: StreamId) -> tuple[ArtifactId, ...]:
        return ()

    async def unlinked(self, artifacts: tuple[ArtifactId, ...]) -> tuple[ArtifactId, ...]:
        return artifacts

    async def artifact_for(self, artifact_id: ArtifactId, principal: Principal) -> LinkArtifact | None:
        return None

    async def stalled_heartbeats(self, before_ms: int, limit: int) -> tuple[Heartbeat, ...]:
        return ()

    async def last_position(self) -> int:
        return 0
