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
    """Reads the whole file. Its name and its bytes decide its type. Raises Invalid if no model could be shown it."""
    path = expanded(path)
    try:
        with path.open("rb") as file:
            body = file.read(FILE_BYTES_MAX + 1)
    except OSError as cause:
        raise NotFound("file_unreadable", f"{path} cannot be read: {cause.strerror}") from cause
    if len(body) > FILE_BYTES_MAX:
        raise Invalid("file_too_large", f"{path} has more than {FILE_BYTES_MAX} bytes; attach a part of it")
    return File(path.name[-NAME_LENGTH_MAX:], _media_type(path, body), body)


async def upload(client: Client, file: File) -> JsonObject:
    """Uploads a file, and returns the attachment as a message names it. The same bytes are stored once."""
    artifact = await client.upload(file.body, file.media_type)
    return {"name": file.name, "media_type": file.media_type, "artifact_id": artifact.get("id")}


def _media_type(path: Path, body: bytes) -> str:
    """Returns the type of an image by its bytes, of a document by its name, and of any other file by its bytes again.

    Names alone mislead: `.ts` is a film to some tables, and most source code has no type at all. The system's own tables
    differ from machine to machine and are not asked.
    """
    import mimetypes

    from palyra.core.documents import DocumentKind, find_kind, kind_of_type
    from palyra.core.images import IMAGE_TYPES, find_type

    tables = mimetypes.MimeTypes()
    tables.add_type("text/markdown", ".md")
    named, packing = tables.guess_type(path.name)
    guessed = named if named is not None and packing is None else ANY_TYPE
    image = find_type(body)
    if image is not None or guessed in IMAGE_TYPES:
        return image or guessed
    if kind_of_type(guessed) is not None:
        return guessed
    try:
        kind = find_kind(body, ANY_TYPE)
    except Invalid as cause:
        readable = "images (PNG, JPEG, GIF, WebP), text, source code, HTML, JSON, CSV, TSV and PDF files"
        raise Invalid("file_unsupported", f"{path} is {_spoken(guessed)}; a model is shown {readable}") from cause
    return "application/pdf" if kind is DocumentKind.PDF else "text/plain"


def _spoken(media_type: str) -> str:
    return "no text and no image" if media_type == ANY_TYPE else f"of the type {media_type}"
