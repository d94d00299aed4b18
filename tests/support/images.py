"""Small images for tests: bytes of each type with a valid header, of any size, and attachments that name them."""

import hashlib
import zlib

from palyra.core.events.run import Attachment


def png(width: int = 1, height: int = 1, filler: bytes = b"") -> bytes:
    """Returns a complete image that every reader accepts while it is small, with a filler after its end."""
    rows = b"".join(b"\0" + b"\0\0\0" * width for _ in range(height)) if width * height < 10_000 else b""
    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + b"\x08\x02\0\0\0"
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_png_part(name, data) for name, data in parts) + filler


def _png_part(name: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + name + data + zlib.crc32(name + data).to_bytes(4, "big")


def jpeg(width: int = 1, height: int = 1, before: bytes = b"\xff\xe0\x00\x04ab") -> bytes:
    frame = b"\x00\x11\x08" + height.to_bytes(2, "big") + width.to_bytes(2, "big") + b"\x03" + bytes(9)
    return b"\xff\xd8" + before + b"\xff\xc2" + frame + b"\xff\xd9"


def gif(width: int = 1, height: int = 1) -> bytes:
    return b"GIF89a" + width.to_bytes(2, "little") + height.to_bytes(2, "little") + b"\0\0\0;"


def webp(width: int = 1, height: int = 1, form: bytes = b"VP8X") -> bytes:
    match form:
        case b"VP8X":
            head = bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
        case b"VP8L":
            head = b"\x2f" + ((width - 1) | (height - 1) << 14).to_bytes(4, "little") + bytes(5)
        case _:
            head = b"\0\0\0\x9d\x01\x2a" + width.to_bytes(2, "little") + height.to_bytes(2, "little")
    chunk = form + len(head).to_bytes(4, "little") + head
    return b"RIFF" + (4 + len(chunk)).to_bytes(4, "little") + b"WEBP" + chunk


def attached(body: bytes, name: str = "cat.png", media_type: str = "image/png") -> Attachment:
    digest = hashlib.sha256(body).hexdigest()
    return Attachment(artifact_id=digest, name=name, media_type=media_type, bytes=len(body))
