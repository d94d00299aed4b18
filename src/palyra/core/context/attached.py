"""Attachments in a message: how each is told, and which images are shown.

Does not own: the bytes of images (engine.session.images).
"""

from collections.abc import Iterable

from palyra.core.attachments import named, tell_file, told_chars
from palyra.core.context.messages import Message, UserMessage
from palyra.core.events.run import Attachment
from palyra.core.images import IMAGE_CHARS, is_image
from palyra.core.trust import Trust


def attached_size(attachment: Attachment) -> int:
    return IMAGE_CHARS if is_image(attachment) else told_chars(attachment)


def images_of(messages: Iterable[Message]) -> list[Attachment]:
    attached = (message.attachments for message in messages if isinstance(message, UserMessage))
    return [attachment for attachments in attached for attachment in attachments if is_image(attachment)]


def tell_attached(message: UserMessage, trust: Trust, left_out_count: int) -> UserMessage:
    """Adds what is told of each attachment; the first `left_out_count` images give way to newer ones."""
    if not message.attachments:
        return message
    shown: list[Attachment] = []
    lines = [message.text]
    for attachment in message.attachments:
        if not is_image(attachment):
            lines.append(tell_file(attachment, trust))
        elif left_out_count > 0:
            left_out_count -= 1
            lines.append(f"[image {named(attachment)} left out: newer ones take its place]")
        else:
            shown.append(attachment)
            lines.append(f"[image {named(attachment)}]")
    return UserMessage("\n".join(lines), tuple(shown))
