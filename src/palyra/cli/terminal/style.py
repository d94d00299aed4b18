"""Colours, times and widths of text on a terminal, and text that cannot harm one.

Does not own: what is said.
Invariant: invisible characters of stored or received text never reach a terminal, except line ends and tabs.
"""

import os
import unicodedata
from datetime import UTC, datetime
from typing import TextIO

import msgspec

from palyra.core.events.base import JsonObject
from palyra.core.plurals import counted
from palyra.core.spelling import spell_out

_RESET = "\x1b[0m"
# Spaces of other scripts, joiners of emoji and of Indic and Persian words, and selectors of an emoji's form.
_PROSE = "\n\t\xa0\u202f\u2009\u3000\u200c\u200d\ufe0e\ufe0f"


class Style(msgspec.Struct, frozen=True):
    is_coloured: bool = False

    def dim(self, text: str) -> str:
        return self._painted(text, "\x1b[2m")

    def bold(self, text: str) -> str:
        return self._painted(text, "\x1b[1m")

    def red(self, text: str) -> str:
        return self._painted(text, "\x1b[31m")

    def green(self, text: str) -> str:
        return self._painted(text, "\x1b[32m")

    def yellow(self, text: str) -> str:
        return self._painted(text, "\x1b[33m")

    def cyan(self, text: str) -> str:
        return self._painted(text, "\x1b[36m")

    def _painted(self, text: str, code: str) -> str:
        return f"{code}{text}{_RESET}" if self.is_coloured and text else text


def style_for(stream: TextIO) -> Style:
    return Style(stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb")


def shown(text: str) -> str:
    """Returns text of several lines with invisible characters spelled out, so that no line hides what it says."""
    return spell_out(text, kept="\n\t")


def prose(text: str) -> str:
    """Returns an answer for reading, not for judging: characters that compose emoji and other scripts are kept."""
    return spell_out(text, kept=_PROSE)


def in_one_line(text: str, length_max: int) -> str:
    line = " ".join(shown(text).split())
    return line if len(line) <= length_max else f"{line[: length_max - 1]}…"


def clock_time(at_ms: object) -> str:
    """Returns the local time of day to the millisecond."""
    return _local(at_ms).strftime("%H:%M:%S.%f")[:-3] if isinstance(at_ms, int) else "–"


def date_time(at_ms: object) -> str:
    return _local(at_ms).strftime("%Y-%m-%d %H:%M:%S") if isinstance(at_ms, int) else "–"


def date_time_zone(at_ms: object) -> str:
    """Returns a time with the zone it is told in, for times that are still to come."""
    return _local(at_ms).strftime("%Y-%m-%d %H:%M:%S %Z").rstrip() if isinstance(at_ms, int) else "–"


def duration(duration_ms: float) -> str:
    if duration_ms < 1000:
        return f"{duration_ms:.0f} ms"
    seconds = duration_ms / 1000
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"


def cells(text: str) -> int:
    """Returns how many columns of a terminal the text takes."""
    return sum(_character_cells(character) for character in text)


def _character_cells(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _local(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).astimezone()


def last_lines(text: object, lines_max: int, length_max: int = 200) -> list[str]:
    """Returns the end of an output, line by line and in a harmless form. Lines that are left out are counted."""
    lines = [line for line in text.splitlines() if line.strip()] if isinstance(text, str) else []
    rest_count = len(lines) - lines_max
    told = [f"… {counted(rest_count, 'line')} before"] if rest_count > 0 else []
    return told + [in_one_line(line, length_max) for line in lines[-lines_max:]]


def time_text(at_ms: object) -> str:
    return date_time(at_ms) if isinstance(at_ms, int) else ""


def member_text(record: JsonObject, member: str) -> str:
    """Returns a member as text that is safe to show."""
    return shown(str(record.get(member) or ""))


def member_number(record: JsonObject, member: str) -> int:
    value = record.get(member)
    return value if isinstance(value, int) else 0
