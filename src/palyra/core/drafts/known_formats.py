"""Files that a person looks at as what they are: PNG, JPEG, GIF and WebP images, and PDF documents.

Owns: telling them by their structure from the first byte to the last. Does not own: limits of their size (review).
Invariants: the name and the content agree. Nothing comes before or behind the image or the document, so none is an
archive or a script as well: a program that is named like an image is run by nobody, and one in an image has no room.
"""

import re
import zlib
from collections.abc import Callable

_PNG, _IEND = b"\x89PNG\r\n\x1a\n", b"IEND"
_ARCHIVE_END = b"PK\x05\x06"  # Python and Java run an archive that is appended to anything.
_ARCHIVE_TAIL_BYTES = 66 * 1024
CHUNKS_MAX = 100_000
_PDF_HEAD = re.compile(rb"%PDF-[12]\.\d[\r\n ]")
_PDF_ACTIVE = re.compile(rb"/(?:JavaScript|JS|Launch|EmbeddedFile|RichMedia)\b")
_PDF_ESCAPE = re.compile(rb"#([0-9A-Fa-f]{2})")  # A name may spell its letters so.
_JPEG_ALONE = frozenset({0x01, *range(0xD0, 0xD9)})  # Marks without a length.


def has_known_suffix(path: str) -> bool:
    return path.casefold().rpartition(".")[2] in _CHECKS


def is_known_format(path: str, body: bytes) -> bool:
    """Tells whether the content is what the name says, and a person can look at it."""
    suffix = path.casefold().rpartition(".")[2]
    check = _CHECKS.get(suffix)
    return check is not None and _ARCHIVE_END not in body[-_ARCHIVE_TAIL_BYTES:] and check(body)


def _is_png(body: bytes) -> bool:
    """Walks through the chunks. Each has its checksum, and the last one ends the file."""
    at = len(_PNG)
    if not body.startswith(_PNG):
        return False
    for _ in range(CHUNKS_MAX):
        length = int.from_bytes(body[at : at + 4], "big")
        kind, end = body[at + 4 : at + 8], at + 12 + length
        if end > len(body) or zlib.crc32(body[at + 4 : end - 4]) != int.from_bytes(body[end - 4 : end], "big"):
            return False
        if kind == _IEND:
            return end == len(body)
        at = end
    return False


def _is_jpeg(body: bytes) -> bool:
    """Walks through the segments to the picture itself, behind which nothing but its end comes."""
    at = 2
    if not body.startswith(b"\xff\xd8\xff"):
        return False
    for _ in range(CHUNKS_MAX):
        if at + 4 > len(body) or body[at] != 0xFF:
            return False
        mark = body[at + 1]
        if mark == 0xDA:
            return body.endswith(b"\xff\xd9") and body.find(b"\xff\xd9", at) == len(body) - 2
        at += 2 if mark in _JPEG_ALONE else 2 + int.from_bytes(body[at + 2 : at + 4], "big")
    return False


def _is_gif(body: bytes) -> bool:
    if not body.startswith((b"GIF87a", b"GIF89a")) or len(body) < 14:
        return False
    at = 13 + _palette_bytes(body[10])
    for _ in range(CHUNKS_MAX):
        kind = body[at : at + 1]
        if kind == b";":
            return at == len(body) - 1
        if kind == b"!":
            at = _skip_blocks(body, at + 2)
        elif kind == b"," and at + 10 < len(body):
            at = _skip_blocks(body, at + 11 + _palette_bytes(body[at + 9]))
        else:
            return False
    return False


def _palette_bytes(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _skip_blocks(body: bytes, at: int) -> int:
    while at < len(body) and body[at]:
        at += body[at] + 1
    return at + 1


def _is_webp(body: bytes) -> bool:
    is_named = body.startswith(b"RIFF") and body[8:12] == b"WEBP" and body[12:16] in (b"VP8 ", b"VP8L", b"VP8X")
    return is_named and int.from_bytes(body[4:8], "little") + 8 == len(body)


def _is_pdf(body: bytes) -> bool:
    """Tells whether it is a document from its first line to its last, without what a viewer would run."""
    is_whole = _PDF_HEAD.match(body) is not None and body.rstrip(b"\r\n ").endswith(b"%%EOF")
    if not is_whole or b"startxref" not in body[-2048:]:
        return False
    return _PDF_ACTIVE.search(_PDF_ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()), body)) is None


_CHECKS: dict[str, Callable[[bytes], bool]] = {
    "png": _is_png,
    "jpg": _is_jpeg,
    "jpeg": _is_jpeg,
    "gif": _is_gif,
    "webp": _is_webp,
    "pdf": _is_pdf,
}
