"""The Artifacts port. Owns: content-addressed bodies too large for an event. Not: who may read them (engine)."""

from typing import Protocol

from palyra.core.ids import ArtifactId


class Artifacts(Protocol):
    async def put(self, body: bytes) -> ArtifactId:
        """Durable when it returns; the id is the sha256 of the body, so putting twice is putting once."""
        ...

    async def get(self, artifact_id: ArtifactId, offset: int, limit: int) -> bytes:
        """Corrupt if the stored bytes do not have that hash (checked when read whole)."""
        ...

    async def size(self, artifact_id: ArtifactId) -> int | None: ...

    async def settled(self, older_than_s: float) -> tuple[ArtifactId, ...]:
        """Those written longer ago than that; also clears what interrupted writes left behind."""
        ...

    async def remove(self, artifact_id: ArtifactId) -> None:
        """Removing what is absent is no error: a crash may have come between two removals."""
        ...
