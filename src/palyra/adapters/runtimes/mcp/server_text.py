"""Text of servers. Owns: taking out what a person would not see, and cutting to a length. Not: believing it; nobody does."""

import unicodedata

# Controls, marks of direction, joiners and tags, private and unassigned letters, halves of surrogates.
_HIDDEN = frozenset({"Cc", "Cf", "Co", "Cs", "Cn"})
_KEPT = frozenset("\n\t")
_BREAKS = {"\r": "\n", "\u2028": "\n", "\u2029": "\n"}
# Letters and marks by their category, and yet nothing shows: text can be hidden in a row of them.
_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
_SELECTORS = (range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))


def clean(text: str, length_max: int) -> str:
    """Only letters that show, plain spaces and breaks of lines; a cut is marked."""
    # Cut first with room for what falls out, so that a long text costs no more than a short one.
    head = text[: 4 * length_max]
    shown = "".join(_shown(letter) for letter in head).strip()
    is_cut = len(shown) > length_max or len(text) > len(head)
    return f"{shown[: length_max - 1].rstrip()}…" if is_cut else shown


def clean_line(text: str, length_max: int) -> str:
    """The same on one line."""
    return " ".join(clean(text, length_max).split())


def _shown(letter: str) -> str:
    if " " <= letter <= "~" or letter in _KEPT:
        return letter
    if letter in _BREAKS:
        return _BREAKS[letter]
    category = unicodedata.category(letter)
    if category == "Zs":
        return " "
    is_hidden = category in _HIDDEN or letter in _BLANKS or any(ord(letter) in each for each in _SELECTORS)
    return "" if is_hidden else letter
