"""Text for eyes. Owns: which characters show nothing or pass for a blank, and their codes instead. Not: who is shown what.

Somebody who decides by what a screen shows must see all that is there. Controls, marks of direction, joiners, tags, private,
unassigned and half characters, and every space but the plain one, are told by `str.isprintable`; the others are named here.
"""

import re

# Letters, marks and symbols by their category, and yet nothing shows: fillers, selectors, an empty cell of Braille.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\ufffc"
    "\U00013441\U00013442\U00016fe4\U0001d159\U000e0100-\U000e01ef]"
)
_DOUBTFUL = re.compile("[^ -~]+")


def is_seen(letter: str) -> bool:
    """It leaves a mark of its own on a screen, or is a plain space."""
    return letter.isprintable() and not _BLANK.match(letter)


def spell_out(text: str, kept: str = "") -> str:
    """What is not seen becomes its code, as in `\\u200b`; those in `kept` stay."""
    return _DOUBTFUL.sub(lambda found: _spelled(found[0], kept), text)


def spell_json(encoded: str) -> str:
    """The same value in JSON, spelled so that everything in it is seen. Takes JSON without breaks of lines."""
    return _DOUBTFUL.sub(lambda found: _escaped(found[0]), encoded)


def _spelled(run: str, kept: str) -> str:
    if _is_all_seen(run):
        return run
    return "".join(
        letter if letter in kept or is_seen(letter) else letter.encode("unicode_escape").decode() for letter in run
    )


def _escaped(run: str) -> str:
    if _is_all_seen(run):
        return run
    return "".join(letter if is_seen(letter) else _units(letter) for letter in run)


def _is_all_seen(run: str) -> bool:
    return run.isprintable() and not _BLANK.search(run)


def _units(letter: str) -> str:
    """JSON's own escapes, which are of UTF-16: two for what lies beyond its first plane."""
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))
