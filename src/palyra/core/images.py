"""Images that people attach: their kinds, found in their own bytes, and how many and how large they may be.

Does not own: reading them (engine.session.images), sending them (adapters.providers).
A provider refuses a whole request for one image it cannot take, and so every later request of the session. So an image
that no provider would take is refused when it is attached. Images sent together stay within what all providers take.
"""

from collections.abc import Sequence

from palyra.core.events.run import Attachment

ENCODED_BYTES_MAX = 5 * 1024 * 1024  # The size of one image in base64 that Anthropic's models take at every host.
IMAGE_BYTES_MAX = ENCODED_BYTES_MAX // 4 * 3
IMAGE_SIDE_MAX = 8000  # In pixels; Anthropic refuses longer sides, the others scale them down.
IMAGES_MAX = 20  # Sent together; beyond this number Anthropic takes only small ones.
IMAGES_BYTES_MAX = 15 * 1024 * 1024  # Sent together: 20 MiB in base64, with room for text below the usual 32 MiB.
IMAGE_CHARS = 6_000  # What one image counts for in a window: about 1,500 tokens, as most models make of a large one.

_ALIASES = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png"}
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # Start of frame; the other three are in its range.
_JPEG_BARE = frozenset({0x01, *range(0xD0, 0xD9)})  # Markers without a length.


def normal_type(media_type: str) -> str:
    """Returns a media type in the one spelling that providers take."""
    lowered = media_type.lower()
    return _ALIASES.get(lowered, lowered)


def is_image(attachment: Attachment) -> bool:
    """Tells whether a model can be shown this attachment. Images of other kinds are files like any other."""
    return attachment.media_type in IMAGE_TYPES


def fitting_count(images: Sequence[Attachment]) -> int:
    """Returns how many of the last images may be sent together."""
    count, bytes_count = 0, 0
    for image in reversed(images[-IMAGES_MAX:]):
        bytes_count += image.bytes
        if bytes_count > IMAGES_BYTES_MAX:
            break
        count += 1
    return count


def find_type(body: bytes) -> str | None:
    """Returns the type that the bytes themselves show, if models take that kind."""
    if body.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if body.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if body.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if body.startswith(b"RIFF") and body[8:12] == b"WEBP":
        return "image/webp"
    return None


def find_fault(media_type: str, body: bytes) -> str | None:
    """Returns why a model cannot be shown these bytes as that type, in words for the sender; None if it can."""
    actual = find_type(body)
    if actual != media_type:
        return f"its media type is {media_type}, but its bytes are {actual or 'no PNG, JPEG, GIF or WebP'}"
    if len(body) > IMAGE_BYTES_MAX:
        return f"an image has at most {IMAGE_BYTES_MAX} bytes, this one has {len(body)}; send a smaller version"
    sides = find_sides(body)
    if sides is None or 0 in sides:
        return "its header does not say how large the image is; it is damaged"
    if max(sides) > IMAGE_SIDE_MAX:
        return f"it is {sides[0]} by {sides[1]} pixels; the most is {IMAGE_SIDE_MAX} a side, so send a smaller version"
    return None


def find_sides(body: bytes) -> tuple[int, int] | None:
    """Returns width and height in pixels; None if the header is cut short or damaged."""
    kind = find_type(body)
    return None if kind is None else IMAGE_TYPES[kind](body)


def _png_sides(body: bytes) -> tuple[int, int] | None:
    if body[12:16] != b"IHDR" or len(body) < 24:
        return None
    return int.from_bytes(body[16:20], "big"), int.from_bytes(body[20:24], "big")


def _gif_sides(body: bytes) -> tuple[int, int] | None:
    return None if len(body) < 10 else (_little(body, 6, 2), _little(body, 8, 2))


def _webp_sides(body: bytes) -> tuple[int, int] | None:
    form = body[12:16]
    if len(body) < 30:
        return None
    if form == b"VP8X":
        return 1 + _little(body, 24, 3), 1 + _little(body, 27, 3)
    if form == b"VP8L" and body[20] == 0x2F:
        bits = _little(body, 21, 4)
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if form == b"VP8 " and body[23:26] == b"\x9d\x01\x2a":
        return _little(body, 26, 2) & 0x3FFF, _little(body, 28, 2) & 0x3FFF
    return None


def _jpeg_sides(body: bytes) -> tuple[int, int] | None:
    """Goes segment by segment to the frame's own header; each step goes forward, so the walk ends."""
    at = 2
    while at + 9 <= len(body) and body[at] == 0xFF:
        marker = body[at + 1]
        if marker in _JPEG_FRAMES:
            return int.from_bytes(body[at + 7 : at + 9], "big"), int.from_bytes(body[at + 5 : at + 7], "big")
        if marker == 0xFF:
            at += 1
        elif marker in _JPEG_BARE:
            at += 2
        else:
            at += 2 + max(2, int.from_bytes(body[at + 2 : at + 4], "big"))
    return None


def _little(body: bytes, at: int, length: int) -> int:
    return int.from_bytes(body[at : at + length], "little")


# The kinds that all providers take, each with the function that reads its size.
IMAGE_TYPES = {"image/png": _png_sides, "image/jpeg": _jpeg_sides, "image/gif": _gif_sides, "image/webp": _webp_sides}
