"""Edits of a candidate: whose words the text is afterwards.

Does not own: who may edit, nor what becomes of the candidate (engine.api.candidates).
"""

from palyra.core.spelling import strip_unseen

KEPT_LENGTH_MIN = 12  # Shorter pieces are in common by chance; the shortest addresses and commands are longer.


def keeps_words(before: str, after: str) -> bool:
    """Tells whether a piece of the earlier text, or all of it, still stands in the new one."""
    old, new = _plain(before), _plain(after)
    length = min(KEPT_LENGTH_MIN, len(old))
    pieces = {old[at : at + length] for at in range(len(old) - length + 1)}
    return length > 0 and any(new[at : at + length] in pieces for at in range(len(new) - length + 1))


def _plain(text: str) -> str:
    return " ".join(strip_unseen(text).casefold().split())
