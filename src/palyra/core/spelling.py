"""Characters that show nothing, or pass for a blank.

Owns: the one list of them; their codes instead, for people; text without them, for models; whether a text holds any.
Does not own: who is shown what.
Invariant: whoever decides by what a screen shows sees all that is there, and a model reads nothing that a person would not.

Controls, marks of direction, joiners, tags, private, unassigned and half characters, and every space but the plain one, are
those that `str.isprintable` refuses. The others are named here.
"""

import re

# Letters, marks and symbols by their category, and yet nothing shows: fillers, selectors, an empty cell of Braille.
BLANK_RANGES = (
    (0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2800, 0x2800), (0x3164, 0x3164),
    (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xFFFC, 0xFFFC), (0x13441, 0x13442), (0x16FE4, 0x16FE4), (0x1D159, 0x1D159),
    (0xE0100, 0xE01EF),
)  # fmt: skip
_BLANK = re.compile(f"[{''.join(f'{chr(first)}-{chr(last)}' for first, last in BLANK_RANGES)}]")
_DOUBTFUL = re.compile("[^ -~]+")
_DOUBTFUL_IN_LINES = re.compile("[^ -~\n\t]+")
_BREAKS = "\r\u2028\u2029"
# One choice of an emoji's form and one joiner after a character, as emoji are written. More of them in a row are not.
_EMOJI_JOINT = re.compile("(?<=\\S)(?:[\ufe0e\ufe0f]\u200d?|\u200d)(?![\u200d\ufe00-\ufe0f])")


def is_seen(letter: str) -> bool:
    """Tells whether the letter leaves a mark of its own on a screen, or is a plain space."""
    return letter.isprintable() and not _BLANK.match(letter)


def spell_out(text: str, kept: str = "") -> str:
    """Replaces characters that are not seen by their code, as in `\\u200b`; those in `kept` stay."""
    return _DOUBTFUL.sub(lambda found: _spelled(found[0], kept), text)


def strip_unseen(text: str) -> str:
    """For models: what is not seen is left out. Tabs and line ends stay, other spaces become plain ones."""
    return _DOUBTFUL_IN_LINES.sub(lambda found: _stripped(found[0]), text.replace("\r\n", "\n"))


def hides_something(text: str) -> bool:
    """For texts that a person accepts as a whole. Spaces of any kind hide nothing, nor do the joints of an emoji."""
    plain = _EMOJI_JOINT.sub("", text)
    return any(not _is_harmless(letter) for run in _DOUBTFUL_IN_LINES.findall(plain) for letter in run)


def spell_json(encoded: str) -> str:
    """Returns the same JSON value, spelled so that everything in it is seen. Takes JSON without line breaks."""
    return _DOUBTFUL.sub(lambda found: _escaped(found[0]), encoded)


def _spelled(run: str, kept: str) -> str:
    if _is_all_seen(run):
        return run
    return "".join(
        letter if letter in kept or is_seen(letter) else letter.encode("unicode_escape").decode() for letter in run
    )


def _stripped(run: str) -> str:
    return run if _is_all_seen(run) else "".join(map(_in_plain, run))


def _in_plain(letter: str) -> str:
    if letter in _BREAKS:
        return "\n"
    if letter.isspace():
        return " "
    return letter if is_seen(letter) else ""


def _is_harmless(letter: str) -> bool:
    return is_seen(letter) or (letter.isspace() and letter >= "\xa0")


def _escaped(run: str) -> str:
    if _is_all_seen(run):
        return run
    return "".join(letter if is_seen(letter) else _units(letter) for letter in run)


def _is_all_seen(run: str) -> bool:
    return run.isprintable() and not _BLANK.search(run)


def _units(letter: str) -> str:
    """Returns JSON's own escapes, which are in UTF-16: two for a character beyond its first plane."""
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))
