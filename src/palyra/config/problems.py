"""Collects everything that is wrong with a configuration, each with its place and a suggestion.

Does not own: finding the problems (tables, references).
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

import msgspec

from palyra.config.lines import Path
from palyra.core.errors import Invalid

PROBLEMS_MAX = 100  # As many as people can read; they will fix the first ones.
LISTED_MAX = 12  # A longer list is looked up in docs/configuration.md.


class ConfigProblem(msgspec.Struct, frozen=True, kw_only=True):
    """`source` is a file or an environment variable; only a file has lines. `where` is the key, as section.key."""

    source: str
    line: int | None
    where: str
    what: str

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        return f"{place}: {self.where}: {self.what}" if self.where else f"{place}: {self.what}"


class ConfigInvalid(Invalid):
    """The configuration cannot be used; `problems` lists everything that is wrong with it."""

    def __init__(self, problems: tuple[ConfigProblem, ...]) -> None:
        first, rest_count = str(problems[0]), len(problems) - 1
        more = f"; and {rest_count} more: palyra config check lists them" if rest_count else ""
        super().__init__("config_invalid", f"{first}{more}")
        self.problems = problems


class ConfigProblems:
    """Collects the problems of one file and its environment variables."""

    def __init__(self, source: str, lines: Mapping[Path, int]) -> None:
        self._source = source
        self._lines = lines
        self._found: list[ConfigProblem] = []

    @property
    def problems(self) -> tuple[ConfigProblem, ...]:
        ordered = sorted(self._found, key=lambda each: (each.line is None, each.line or 0))
        return tuple(dict.fromkeys(ordered))[:PROBLEMS_MAX]

    def add(self, path: Path, what: str) -> None:
        """Adds a problem at the line of the path, or of the nearest table around it."""
        line = next((self._lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self._lines), 1)
        self._found.append(ConfigProblem(source=self._source, line=line, where=_dotted(path), what=what))

    def add_variable(self, name: str, what: str) -> None:
        self._found.append(ConfigProblem(source=name, line=None, where="", what=what))


def suggestion(word: str, known: Iterable[str]) -> str:
    """Returns the tail of a message: the nearest known word, or nothing."""
    near = get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def unknown_key(word: str, known: Iterable[str]) -> str:
    words = sorted(known)
    others = f"; there are {', '.join(words)}" if len(words) <= LISTED_MAX else ""
    return f"there is no such key{suggestion(word, words) or others}"


def _dotted(path: Path) -> str:
    """Returns `provider.name` for the name of any provider; the line tells the place in a list."""
    return ".".join(part for part in path if isinstance(part, str))
