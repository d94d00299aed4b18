"""Images in request bodies: which are sent with a message, their encoding, and requests without them.

Does not own: any wire format's own form.
Invariant: an image that a model is not shown is never dropped in silence: a note stands for it.
"""

import base64
import re

from msgspec.structs import replace

from palyra.core.context.messages import UserMessage
from palyra.core.context.prompt import hide_images
from palyra.core.events.model import ModelError
from palyra.ports.provider import Failed, Image, ModelRequest

BLIND = "this model takes no images"
REFUSED = "the provider refused the images of this conversation"

# After these refusals the request may work without its images. Servers that know no images answer with 400 or 500.
_REFUSALS = frozenset({ModelError.BAD_REQUEST, ModelError.OVERLOADED, ModelError.CONTEXT_LENGTH})
_ABOUT_IMAGES = re.compile(
    r"image|multi-?modal|vision|content[^.]{0,60}string|request_too_large|(?:entity|payload|body) (?:is )?too large"
)


def images_of(request: ModelRequest, message: UserMessage) -> list[Image]:
    """Returns the attached images, in their order."""
    return [request.images[each.artifact_id] for each in message.attachments if each.artifact_id in request.images]


def encoded(image: Image) -> str:
    return base64.b64encode(image.data).decode("ascii")


def data_url(image: Image) -> str:
    return f"data:{image.media_type};base64,{encoded(image)}"


def without_images(request: ModelRequest, why: str) -> ModelRequest:
    """Returns the same request in words alone."""
    if not request.images:
        return request
    return replace(request, messages=hide_images(request.messages, dict.fromkeys(request.images, why)), images={})


def is_about_images(failed: Failed, words: str) -> bool:
    """Tells whether a refusal may be about images, judged by its words in lower case."""
    return failed.code in _REFUSALS and _ABOUT_IMAGES.search(words) is not None
