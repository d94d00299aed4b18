"""Images in request bodies. Owns: which go along with a message, their encoding, and requests that do without them.

Not: any wire format's own form. An image a model is not shown is never missing without a word: a note stands for it.
"""

import base64
import re

from msgspec.structs import replace

from palyra.core.conversation import UserMessage, hide_images
from palyra.core.events.model import ModelError
from palyra.ports.provider import Failed, Image, ModelRequest

BLIND = "this model takes no images"
REFUSED = "the provider refused the images of this conversation"

# Refusals for which the same request without its images may be taken. Servers that know no images say so as 400 or 500.
_REFUSALS = frozenset({ModelError.BAD_REQUEST, ModelError.OVERLOADED, ModelError.CONTEXT_LENGTH})
_ABOUT_IMAGES = re.compile(
    r"image|multi-?modal|vision|content[^.]{0,60}string|request_too_large|(?:entity|payload|body) (?:is )?too large"
)


def images_of(request: ModelRequest, message: UserMessage) -> list[Image]:
    """What was attached, in its order."""
    return [request.images[each.artifact_id] for each in message.attachments if each.artifact_id in request.images]


def encoded(image: Image) -> str:
    return base64.b64encode(image.data).decode("ascii")


def data_url(image: Image) -> str:
    return f"data:{image.media_type};base64,{encoded(image)}"


def without_images(request: ModelRequest, why: str) -> ModelRequest:
    """The same request in words alone."""
    if not request.images:
        return request
    return replace(request, messages=hide_images(request.messages, dict.fromkeys(request.images, why)), images={})


def is_about_images(failed: Failed, words: str) -> bool:
    """Whether a refusal may be about images, judged by its words in lower case."""
    return failed.code in _REFUSALS and _ABOUT_IMAGES.search(words) is not None
