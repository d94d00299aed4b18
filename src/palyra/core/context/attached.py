"""Attachments in a message: how each is told, and which images are shown.

Does not own: the bytes of images (engine.session.images).
"""

from collections.abc import Iterable

from palyra.core.context.messages import Message, UserMessage
from palyra.core.events.run import Attachment
from palyra.core.images import IMAGE_CHARS, is_image


def attached_size(attachment: Attachment) -> int:
    return IMAGE_CHARS if is_image(attachment) else len(file_line(attachment))


def images_of(messages: Iterable[Message]) -> list[Attachment]:
    attached = (message.attachments for message in messages if isinstance(message, UserMessage))
    return [attachment for attachments in attached for attachment in attachments if is_image(attachment)]


def tell_attached(message: UserMessage, left_out_count: int) -> UserMessage:
    """Adds a line for each attachment; the first `left_out_count` images give way to newer ones."""
    if not message.attachments:
        return message
    shown: list[Attachment] = []
    lines = [message.text]
    for attachment in message.attachments:
        if not is_image(attachment):
            lines.append(file_line(attachment))
        elif left_out_count > 0:
            left_out_count -= 1
            lines.append(f"[image {named(attachment)} left out: newer ones take its place]")
        else:
            shown.append(attachment)
            lines.append(f"[image {named(attachment)}]")
    return UserMessage("\n".join(lines), tuple(shown))


def file_line(attachment: Attachment) -> str:
    kind, bytes_count = attachment.media_type, attachment.bytes
    return f"[file {named(attachment)}, {kind}, {bytes_count} bytes, artifact {attachment.artifact_id}]"


def named(attachment: Attachment) -> str:
    """Keeps a name within its line, because a name is somebody's text."""
    return " ".join(attachment.name.split())
