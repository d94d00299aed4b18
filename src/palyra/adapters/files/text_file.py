"""Whole text files of a workspace: reading them within limits, and telling text from anything else.

Does not own: the boundary of the workspace (workspace), nor what is shown of a text.
"""

import os

from palyra.adapters.files.workspace import WorkspacePath, open_file, open_folder, read_bytes
from palyra.core.errors import Invalid

# The file is held in memory whole to count lines and to hash it. Larger files are searched, not read.
FILE_BYTES_MAX = 8 * 1024 * 1024
BINARY_LOOK_BYTES = 8 * 1024  # A NUL byte within these bytes shows that a file is no text. Git has the same rule.


def read_body(place: WorkspacePath) -> bytes:
    """Reads the whole file. A file that is too large is refused."""
    with open_folder(place) as folder:
        file = open_file(folder, place)
        try:
            body = read_bytes(file, FILE_BYTES_MAX + 1)
        finally:
            os.close(file)
    if len(body) > FILE_BYTES_MAX:
        raise Invalid("file_too_large", f"{place.shown} is larger than {FILE_BYTES_MAX} bytes and is not read")
    return body


def decode(place: WorkspacePath, body: bytes) -> str:
    """Decodes the text of a file. Anything but text is refused."""
    if b"\x00" in body[:BINARY_LOOK_BYTES]:
        raise Invalid("binary_file", f"{place.shown} is a binary file; only text can be read")
    try:
        return body.decode()
    except UnicodeDecodeError as cause:
        message = f"{place.shown} is not UTF-8 (first at byte {cause.start}); only UTF-8 text can be read"
        raise Invalid("binary_file", message) from cause
