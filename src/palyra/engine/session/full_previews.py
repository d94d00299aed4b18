"""Keeps what a card is too short for, as an artifact of the session.

Does not own: what a card shows (draft_gate, core.run.questions), who has read it (api.approvals).
Invariant: secrets are markers in it, as in every text that is recorded (L5).
"""

from dataclasses import dataclass

from palyra.core.events.tool import MadeArtifact
from palyra.core.ids import ArtifactId, RunId, SessionId
from palyra.core.redaction import Redactor
from palyra.core.writes import LinkArtifact
from palyra.engine.session.long_texts import redact_text
from palyra.ports.artifacts import Artifacts

MEDIA_TYPE = "text/plain"


@dataclass(frozen=True, slots=True)
class FullPreviews:
    artifacts: Artifacts
    redactor: Redactor

    async def keep(self, run_id: RunId, name: str, text: str) -> MadeArtifact:
        redacted = await redact_text(self.redactor.for_run(run_id), text)
        body = redacted.text.encode("utf-8", "replace")
        artifact_id = await self.artifacts.put(body)
        return MadeArtifact(artifact_id=artifact_id, name=name, media_type=MEDIA_TYPE, bytes=len(body))


def link_full(full: MadeArtifact | None, session_id: SessionId, now_ms: int) -> tuple[LinkArtifact, ...]:
    """Returns what lets the session's tape keep it. An agent that reads it reads what a command wrote (L8)."""
    if full is None:
        return ()
    return (LinkArtifact(ArtifactId(full.artifact_id), session_id, full.bytes, full.media_type, now_ms),)
