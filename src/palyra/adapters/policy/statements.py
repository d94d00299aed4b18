"""Cuts a Cedar file into its policies, each with the line it begins on.

Does not own: understanding them (policy_set).
Cedar's messages name no place. So each policy is checked by itself, and Cedar's message is about that line.
"""

import re

import msgspec

# A string, a comment, the end of a policy, or anything else up to one of these. In Cedar's grammar a semicolon only
# ends a policy. A string that is never closed runs to the end, and Cedar refuses it.
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|//[^\n\r]*|;|[^"/;]+|.', re.DOTALL)


class Statement(msgspec.Struct, frozen=True):
    text: str
    line: int


def cut(text: str) -> tuple[Statement, ...]:
    """Puts everything that is no comment or space into exactly one statement."""
    found = []
    pieces: list[str] = []
    line, begins_at = 1, 0
    for match in _PIECE.finditer(text):
        piece = match.group()
        if not begins_at and not _is_blank(piece):
            begins_at = line + _lines_before_text(piece)
        if begins_at:
            pieces.append(piece)
        line += piece.count("\n")
        if piece == ";":
            found.append(Statement("".join(pieces), begins_at))
            pieces, begins_at = [], 0
    if begins_at:
        found.append(Statement("".join(pieces), begins_at))
    return tuple(found)


def depth_of(text: str) -> int:
    """Returns how deep brackets are nested, outside strings and comments."""
    depth = deepest = 0
    for match in _PIECE.finditer(text):
        piece = match.group()
        if piece.startswith(('"', "//")):
            continue
        for letter in piece:
            depth += (letter in "([{") - (letter in ")]}")
            deepest = max(deepest, depth)
    return deepest


def _is_blank(piece: str) -> bool:
    return not piece.strip() or piece.startswith("//")


def _lines_before_text(piece: str) -> int:
    return piece[: len(piece) - len(piece.lstrip())].count("\n")
