"""The Artifacts port: content-addressed bodies too large for an event. Does not own: who may read them (engine)."""

from typing import Protocol

from palyra.core.ids import ArtifactId


class Artifacts(Protocol):
    async def put(self, body: bytes) -> ArtifactId:
        """Stores a body; it is durable when this returns.

        The id is the sha256 of the body, so putting twice is putting once.
        """
        ...

    async def get(self, artifact_id: ArtifactId, offset: int, limit: int) -> bytes:
        """Returns a part of the body.

        Raises Corrupt if the stored bytes do not have that hash (checked when read whole).
        """
        ...

    async def size(self, artifact_id: ArtifactId) -> int | None: ...

    async def settled(self, older_than_s: float) -> tuple[ArtifactId, ...]:
        """Returns artifacts written longer ago than that; also clears what interrupted writes left behind."""
        ...

    async def remove(self, artifact_id: ArtifactId) -> None:
        """Removes an artifact. An absent one is no error, because a crash may have come between two removals."""
        ...
