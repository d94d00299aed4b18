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

    async def remove(self, artifact_id: ArtifactId, older_than_s: float = 0.0) -> bool:
        """Removes an artifact. An absent one is no error, because a crash may have come between two removals.

        Returns False if it stays: its body was written less than `older_than_s` ago, or has just been put once more.
        Whoever put it may not have linked it yet, so a later sweep looks again.
        """
        ...
