"""Secrets known by their value: the daemon's own keys, which are found whatever their form.

Does not own: where the keys come from.
A value is searched for only if it is long or mixed enough not to be a word that people use, and holds no blank. A key
has no blank, and a stream decides run by run.
"""

import re

from palyra.core.redaction.values import Look, look_of

VALUES_MAX = 2_000
LENGTH_MIN = 8
LENGTH_CLEAR = 12  # From this length on even letters alone are no word.
KIND = "known"
SEEN_MAX = 64  # Values of one run that are searched for again. A text of more secrets is a list of them.
SEEN_CHARS_MAX = 512


class KnownSecrets:
    """Grows as keys are read. A key that was replaced stays known: text that holds it may still come back."""

    def __init__(self) -> None:
        self._values: dict[str, None] = {}
        self.pattern: re.Pattern[str] | None = None

    def add(self, *values: str) -> None:
        new = [value for value in values if value not in self._values and _is_telling(value)]
        if not new:
            return
        self._values.update(dict.fromkeys(new))
        while len(self._values) > VALUES_MAX:
            del self._values[next(iter(self._values))]
        longest_first = sorted(self._values, key=len, reverse=True)
        self.pattern = re.compile("|".join(re.escape(each) for each in longest_first))

    def could_begin(self, letters: str) -> bool:
        """Tells whether one of the secrets begins with these letters."""
        return any(value.startswith(letters) for value in self._values)

    def mask(self, text: str) -> str:
        """Masks secrets without a way back: for text that is shown and not stored."""
        return text if self.pattern is None else self.pattern.sub("‹secret›", text)


class SeenSecrets:
    """Values that were found in one text or one run. Each is masked wherever it comes again, whatever stands there."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}
        self.pattern: re.Pattern[str] | None = None

    def note(self, value: str, kind: str) -> None:
        """Remembers a value that nobody would use as a word."""
        if value in self._kinds or len(self._kinds) >= SEEN_MAX or len(value) > SEEN_CHARS_MAX:
            return
        if _is_telling(value) and look_of(value) >= Look.MIXED and any(map(str.isdigit, value)):
            self._kinds[value] = kind
            longest_first = sorted(self._kinds, key=len, reverse=True)
            self.pattern = re.compile("|".join(re.escape(each) for each in longest_first))

    def kind_of(self, value: str) -> str:
        return self._kinds[value]


def _is_telling(value: str) -> bool:
    if len(value) < LENGTH_MIN or re.search(r"\s", value):
        return False
    is_mixed = re.search(r"[0-9]", value) is not None and re.search(r"[A-Za-z]", value) is not None
    return len(value) >= LENGTH_CLEAR or is_mixed
