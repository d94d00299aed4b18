"""The state port. Owns: reading what commits wrote besides events. Not: writing it (core.writes)."""

from typing import Protocol

from palyra.core.ids import ArtifactId, Principal, RunId, StreamId
from palyra.core.writes import LinkArtifact


class State(Protocol):
    async def sealed_secret(self, run_id: RunId, secret_id: str) -> bytes | None: ...

    async def artifacts_of(self, stream: StreamId) -> tuple[ArtifactId, ...]: ...

    async def unlinked(self, artifacts: tuple[ArtifactId, ...]) -> tuple[ArtifactId, ...]: ...

    async def artifact_for(self, artifact_id: ArtifactId, principal: Principal) -> LinkArtifact | None:
        """A link to it from one of the principal's sessions or uploads, if there is one (L11)."""
        ...

    async def last_position(self) -> int:
        """The journal's newest position, 0 when it is empty."""
        ...
