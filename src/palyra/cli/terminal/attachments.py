"""Files that a user attaches to a message: reading them, their media type, and uploading them.

Does not own: the message.
"""

from pathlib import Path

import msgspec

from palyra.cli.client import Client
from palyra.cli.options import expanded
from palyra.core.errors import Invalid, NotFound
from palyra.core.events.base import JsonObject

FILE_BYTES_MAX = 32 * 1024 * 1024  # The daemon's own limit.
NAME_LENGTH_MAX = 256
ANY_TYPE = "application/octet-stream"


class File(msgspec.Struct, frozen=True):
    name: str
    media_type: str
    body: bytes


def read_file(path: Path) -> File:
    """Reads the whole file. The bytes of an image decide its type, not the name."""
    path = expanded(path)
    try:
        with path.open("rb") as file:
            body = file.read(FILE_BYTES_MAX + 1)
    except OSError as cause:
        raise NotFound("file_unreadable", f"{path} cannot be read: {cause.strerror}") from cause
    if len(body) > FILE_BYTES_MAX:
        raise Invalid("file_too_large", f"{path} has more than {FILE_BYTES_MAX} bytes")
    return File(path.name[-NAME_LENGTH_MAX:], _media_type(path, body), body)


async def upload(client: Client, file: File) -> JsonObject:
    """Uploads a file, and returns the attachment as a message names it. The same bytes are stored once."""
    artifact = await client.upload(file.body, file.media_type)
    return {"name": file.name, "media_type": file.media_type, "artifact_id": artifact.get("id")}


def _media_type(path: Path, body: bytes) -> str:
    import mimetypes

    from palyra.core.images import find_type

    return find_type(body) or mimetypes.guess_type(path.name)[0] or ANY_TYPE
