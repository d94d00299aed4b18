"""Text of servers. Owns: cutting it to a length, without what a person would not see. Not: believing it; nobody does."""

from palyra.core.spelling import strip_unseen


def clean(text: str, length_max: int) -> str:
    """Only letters that show, plain spaces and breaks of lines; a cut is marked."""
    # Cut first with room for what falls out, so that a long text costs no more than a short one.
    head = text[: 4 * length_max]
    shown = strip_unseen(head).strip()
    is_cut = len(shown) > length_max or len(text) > len(head)
    return f"{shown[: length_max - 1].rstrip()}…" if is_cut else shown


def clean_line(text: str, length_max: int) -> str:
    """The same on one line."""
    return " ".join(clean(text, length_max).split())
