"""Cleans texts of MCP servers: cuts them to a length and drops what a person would not see.

Invariant: nobody believes such a text.
"""

from palyra.core.spelling import strip_unseen


def clean(text: str, length_max: int) -> str:
    """Returns only visible letters, plain spaces and line breaks. A cut is marked."""
    # The text is cut first, with room for what is dropped later, so that a long text costs no more than a short one.
    head = text[: 4 * length_max]
    shown = strip_unseen(head).strip()
    is_cut = len(shown) > length_max or len(text) > len(head)
    return f"{shown[: length_max - 1].rstrip()}…" if is_cut else shown


def clean_line(text: str, length_max: int) -> str:
    """Does the same and returns one line."""
    return " ".join(clean(text, length_max).split())
