"""Warnings about settings that nothing reads yet.

Owns: finding what a file or a variable sets without effect, and the words about it.
Does not own: which settings those are; their records say so (records).
"""

from collections.abc import Iterable, Mapping

from palyra.config.environment import Overrides, variable_name
from palyra.config.problems import ConfigProblem, ConfigProblems
from palyra.config.records import Section, plain_sections, repeated_sections, unread_keys

WORDS = "is not read yet: it has no effect in this release"


def find_unread(
    document: Mapping[str, object], overrides: Overrides, report: ConfigProblems
) -> tuple[ConfigProblem, ...]:
    """One warning for a table that is not read at all, else one for each such key."""
    found = report.beside()
    for name, section in {**plain_sections(), **repeated_sections()}.items():
        _find_in_file(name, section, document.get(name), found)
        for key in _in_order(unread_keys(section), overrides.get(name, {})):
            found.add_variable(variable_name(name, key), WORDS)
    return found.problems


def _find_in_file(name: str, section: type[Section], given: object, found: ConfigProblems) -> None:
    if given is not None and not section.is_read:
        found.add((name,), WORDS)
    elif isinstance(given, dict):
        for key in _in_order(unread_keys(section), given):
            found.add((name, key), WORDS)


def _in_order(unread: frozenset[str], given: Iterable[str]) -> list[str]:
    return [key for key in given if key in unread]
