"""Images of a model call.

Owns: reading the bytes of the images that a request shows. Does not own: which are shown (core.context).
Invariant: an unreadable image is described to the model in words and to the operator in the log; no call fails for it.
"""

from collections.abc import Iterable

import structlog
from msgspec.structs import replace

from palyra.core.context.messages import UserMessage
from palyra.core.context.prompt import hide_images
from palyra.core.errors import Corrupt, NotFound, PalyraError
from palyra.core.events.run import Attachment
from palyra.core.ids import ArtifactId
from palyra.core.images import IMAGE_BYTES_MAX, find_type
from palyra.ports.artifacts import Artifacts
from palyra.ports.provider import Image, ModelRequest

log = structlog.get_logger()


async def with_images(artifacts: Artifacts, request: ModelRequest) -> ModelRequest:
    """Returns the request with the bytes of its images. The window has bounded their number and size."""
    said = [message for message in request.messages if isinstance(message, UserMessage)]
    wanted = {each.artifact_id: each for message in said for each in message.attachments}
    if not wanted:
        return request
    images, unread = await _load_images(artifacts, wanted.values())
    return replace(request, messages=hide_images(request.messages, unread), images=images)


async def _load_images(
    artifacts: Artifacts, attachments: Iterable[Attachment]
) -> tuple[dict[str, Image], dict[str, str]]:
    """Returns the images by artifact, and why the others could not be read."""
    images: dict[str, Image] = {}
    unread: dict[str, str] = {}
    for attachment in attachments:
        try:
            images[attachment.artifact_id] = await _load(artifacts, attachment)
        except PalyraError as error:
            log.warning("image_unread", artifact_id=attachment.artifact_id, code=error.code)
            unread[attachment.artifact_id] = _reason(error)
    return images, unread


def _reason(error: PalyraError) -> str:
    return "it is no longer there" if isinstance(error, NotFound) else f"it could not be read ({error.code})"


async def _load(artifacts: Artifacts, attachment: Attachment) -> Image:
    """Reads and checks an image again, because a provider would refuse the whole request for a bad one."""
    artifact_id = ArtifactId(attachment.artifact_id)
    body = await artifacts.get(artifact_id, 0, IMAGE_BYTES_MAX)
    if find_type(body) != attachment.media_type or len(body) != attachment.bytes:
        raise Corrupt("image_damaged", f"artifact {artifact_id} is not the image it was accepted as")
    return Image(attachment.media_type, body)
