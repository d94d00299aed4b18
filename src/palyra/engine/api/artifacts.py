"""Artifacts of one principal (L11).

Owns: uploads, reading, and removing bodies that nothing refers to. Does not own: the files (ports.artifacts).
"""

from dataclasses import dataclass

from palyra.core.errors import Invalid, NotFound
from palyra.core.ids import ArtifactId, Principal, uploads_stream
from palyra.core.trust import Trust
from palyra.core.writes import LinkArtifact
from palyra.engine.api.requests import ArtifactRecord
from palyra.ports.artifacts import Artifacts
from palyra.ports.clock import Clock
from palyra.ports.journal import Journal
from palyra.ports.state import State

UPLOAD_BYTES_MAX = 32 * 1024 * 1024
MEDIA_TYPE_LENGTH_MAX = 128
ORPHAN_AGE_S = 3_600.0  # Far longer than the time between writing a body and committing its link.
SWEPT_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactService:
    artifacts: Artifacts
    journal: Journal
    state: State
    clock: Clock

    async def put(
        self, principal: Principal, body: bytes, media_type: str, client: str | None = None
    ) -> ArtifactRecord:
        """Stores an upload, durable when this returns: first the file, then the link that keeps it."""
        if len(body) > UPLOAD_BYTES_MAX:
            raise Invalid("artifact_too_large", f"{len(body)} bytes; the most is {UPLOAD_BYTES_MAX}")
        if not 1 <= len(media_type) <= MEDIA_TYPE_LENGTH_MAX:
            raise Invalid("media_type_length", f"a media type has 1 to {MEDIA_TYPE_LENGTH_MAX} characters")
        artifact_id = await self.artifacts.put(body)
        now_ms = self.clock.now_ms()
        # An upload has the same trust as a message of the same caller.
        trust = Trust.OPERATOR if client is None else Trust.EXTERNAL
        stream = uploads_stream(principal)
        link = LinkArtifact(artifact_id, stream, len(body), media_type, now_ms, trust, client)
        await self.journal.commit((), (link,))
        return ArtifactRecord(id=artifact_id, bytes=len(body), media_type=media_type)

    async def get(self, principal: Principal, artifact_id: ArtifactId) -> tuple[ArtifactRecord, bytes]:
        link = await self.state.artifact_for(artifact_id, principal)
        if link is None:
            raise NotFound("artifact_unknown", f"there is no artifact {artifact_id}")
        body = await self.artifacts.get(artifact_id, 0, link.bytes)
        return ArtifactRecord(id=artifact_id, bytes=link.bytes, media_type=link.media_type), body

    async def sweep(self) -> int:
        """Removes bodies that nothing refers to.

        A crash can come between a body and its link, or a link and its body.
        """
        removed_count = 0
        settled = await self.artifacts.settled(ORPHAN_AGE_S)
        for start in range(0, len(settled), SWEPT_AT_ONCE):
            for artifact_id in await self.state.unlinked(settled[start : start + SWEPT_AT_ONCE]):
                removed_count += await self.artifacts.remove(artifact_id, ORPHAN_AGE_S)
        return removed_count
