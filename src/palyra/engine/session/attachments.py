"""Attachments of a message.

Owns: whose they are (L11), that images are of the type they claim, and keeping them with their session.
Does not own: showing them to a model (core.context, engine.session.images).
Invariant: a body is written before the message is recorded and linked in the same commit. A crash in between leaves a
body that nothing refers to, and the next sweep removes it.
"""

from dataclasses import dataclass

from msgspec.structs import replace

from palyra.core.errors import Invalid, NotFound
from palyra.core.events.run import Attachment
from palyra.core.ids import ArtifactId, Principal
from palyra.core.images import IMAGE_BYTES_MAX, IMAGE_TYPES, IMAGES_BYTES_MAX, find_fault, normal_type
from palyra.core.writes import LinkArtifact
from palyra.engine.api.artifacts import MEDIA_TYPE_LENGTH_MAX, UPLOAD_BYTES_MAX
from palyra.engine.api.requests import ATTACHMENTS_MAX, NAME_LENGTH_MAX, GivenAttachment
from palyra.engine.session.commands import SendInput, StartRun
from palyra.engine.session.pending_commit import PendingCommit
from palyra.ports.artifacts import Artifacts
from palyra.ports.state import State


@dataclass(frozen=True, slots=True)
class AttachmentIntake:
    """Accepts attachments: checks them all, then stores their bodies."""

    artifacts: Artifacts
    state: State

    async def take(self, principal: Principal, given: tuple[GivenAttachment, ...]) -> tuple[Attachment, ...]:
        """Returns the attachments as the message will name them. All are checked before any is stored."""
        if len(given) > ATTACHMENTS_MAX:
            raise _refusal(f"a message has at most {ATTACHMENTS_MAX} attachments, this one has {len(given)}")
        sizes = [await self._check(principal, item, at) for at, item in enumerate(given, 1)]
        kinds = [normal_type(item.media_type) for item in given]
        images_bytes = sum(size for size, kind in zip(sizes, kinds, strict=True) if kind in IMAGE_TYPES)
        if images_bytes > IMAGES_BYTES_MAX:
            raise _refusal(
                f"the images of a message have together at most {IMAGES_BYTES_MAX} bytes, not {images_bytes}"
            )
        ids = [item.artifact_id or await self.artifacts.put(item.body or b"") for item in given]
        return tuple(
            Attachment(artifact_id=artifact_id, name=item.name, media_type=kind, bytes=size)
            for item, artifact_id, kind, size in zip(given, ids, kinds, sizes, strict=True)
        )

    async def _check(self, principal: Principal, item: GivenAttachment, at: int) -> int:
        """Returns the number of bytes, if nothing is wrong with the attachment."""
        if not 1 <= len(item.name) <= NAME_LENGTH_MAX or not 1 <= len(item.media_type) <= MEDIA_TYPE_LENGTH_MAX:
            lengths = f"a name has 1 to {NAME_LENGTH_MAX} characters, a type {MEDIA_TYPE_LENGTH_MAX}"
            raise _refusal(f"attachment {at}: {lengths}")
        if (item.artifact_id is None) == (item.body is None):
            raise _refusal(f"attachment {at}: it has either an artifact's id or its own bytes")
        size = await self._size(principal, item)
        if size > UPLOAD_BYTES_MAX:
            raise _refusal(f"attachment {at}: {size} bytes; the most is {UPLOAD_BYTES_MAX}")
        kind = normal_type(item.media_type)
        if kind in IMAGE_TYPES:
            fault = find_fault(kind, await self._image_body(item))
            if fault is not None:
                raise _refusal(f"attachment {at}: {fault}")
        return size

    async def _size(self, principal: Principal, item: GivenAttachment) -> int:
        if item.artifact_id is None:
            return len(item.body or b"")
        link = await self.state.artifact_for(item.artifact_id, principal)
        if link is None:
            raise NotFound("artifact_unknown", f"there is no artifact {item.artifact_id}")
        return link.bytes

    async def _image_body(self, item: GivenAttachment) -> bytes:
        """Reads one byte more than an image may have, which shows that an image is too large."""
        if item.artifact_id is None:
            return item.body or b""
        return await self.artifacts.get(item.artifact_id, 0, IMAGE_BYTES_MAX + 1)


def link_attached(pending: PendingCommit, command: StartRun | SendInput, now_ms: int) -> PendingCommit:
    """Links what is attached to the message's session, so that deleting the session releases it.

    An attachment has the trust of the message it came with.
    """
    links = [
        LinkArtifact(
            ArtifactId(each.artifact_id), pending.state.session_id, each.bytes, each.media_type, now_ms, command.trust
        )
        for each in command.message.attachments
    ]
    return replace(pending, writes=(*pending.writes, *links)) if links else pending


def _refusal(message: str) -> Invalid:
    return Invalid("attachment_invalid", message)
