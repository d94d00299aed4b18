"""Words as arguments. Owns: what a word expands to as far as can be known. Not: what runs inside it (judge)."""

import re
from collections.abc import Mapping
from enum import Enum
from itertools import product
from typing import assert_never

import msgspec

from palyra.core.shell.tree import Command, Literal, Opaque, Part, Span, Substitution, Variable, Word

ALTERNATIVES_MAX = 64  # Words made from one by its braces.
_WILD = re.compile(r"[*?\[]")
_BRACES = re.compile(r"\{([^{}]*)\}")
_LATE_HOME = re.compile(r"[=:]~")  # In `a=~/b` the home folder is put in as well.
_SPLITS = re.compile(r"[\s*?\[\\]")


class InputFeed(Enum):
    """What a command may find on its input, as far as `xargs` must know."""

    NOTHING = "nothing"
    DOTTED_NAMES = "dotted_names"  # Names of files in the workspace that begin with `./` or with a folder.
    NAMES = "names"  # The same, but a name may begin with `-`.
    ANYTHING = "anything"


class Value(msgspec.Struct, frozen=True):
    """What a variable is known to hold; a pattern stands for any name it matches."""

    text: str
    is_pattern: bool = False


class ShellPlace(msgspec.Struct, frozen=True):
    """Where a command runs: the folders it may be in, the variables that are known, what is on its input."""

    folders: frozenset[str]
    values: Mapping[str, Value] = {}
    feed: InputFeed = InputFeed.NOTHING
    home: str | None = None


class Argument(msgspec.Struct, frozen=True):
    """A word after expansion. `value` is None where it cannot be known; `lead` is how it certainly begins."""

    value: str | None
    lead: str
    source: str
    span: Span
    is_pattern: bool = False
    is_inside: bool = False  # Not known, but the name of something in the workspace.
    may_split: bool = False  # Not known and not quoted: it may become several words, or none.
    is_spread: bool = False  # A pattern that is not quoted: it becomes every name that it matches.

    @property
    def is_certain(self) -> bool:
        """Whether it is this word and no other."""
        return self.value is not None and not self.is_pattern

    @property
    def may_be_many(self) -> bool:
        """Whether it may become several words, so that those after it stand elsewhere than they seem to."""
        return self.may_split or self.is_spread


def plain(text: str, like: Argument) -> Argument:
    """An argument of this text, in another's place."""
    return Argument(text, text, text, like.span)


def unknown(like: Argument, lead: str = "") -> Argument:
    return Argument(None, lead, like.source, like.span)


def expand(word: Word, place: ShellPlace) -> tuple[Argument, ...]:
    """One argument for almost every word; several for braces."""
    if all(isinstance(part, Literal) for part in word.parts):
        literals = tuple(part for part in word.parts if isinstance(part, Literal))
        if any(not part.is_quoted and "{" in part.text for part in literals):
            return _braced(word, literals, place)
        return (_from_literals(word, literals, place),)
    return (_from_parts(word, place),)


def _from_literals(word: Word, literals: tuple[Literal, ...], place: ShellPlace) -> Argument:
    text = "".join(part.text for part in literals)
    is_pattern = any(not part.is_quoted and _WILD.search(part.text) for part in literals)
    if any(not part.is_quoted and _LATE_HOME.search(part.text) for part in literals):
        return Argument(None, "", word.source, word.span)
    if literals and not literals[0].is_quoted and text.startswith("~"):
        return _from_home(word, text, place, is_pattern=is_pattern)
    return _known(word, text, is_pattern=is_pattern)


def _known(word: Word, text: str, *, is_pattern: bool) -> Argument:
    lead = _WILD.split(text, maxsplit=1)[0] if is_pattern else text
    is_spread = is_pattern and any(_is_wild(part) for part in word.parts)
    return Argument(text, lead, word.source, word.span, is_pattern, is_spread=is_spread)


def _is_wild(part: Part) -> bool:
    """Between quotes a variable that holds a pattern's name stays one word; a pattern as written does not."""
    return isinstance(part, Literal) and not part.is_quoted and bool(_WILD.search(part.text))


def _from_home(word: Word, text: str, place: ShellPlace, *, is_pattern: bool) -> Argument:
    rest = text[1:]
    if place.home is None or (rest and not rest.startswith("/")):
        return Argument(None, "~", word.source, word.span)
    return _known(word, place.home + rest, is_pattern=is_pattern)


def _braced(word: Word, literals: tuple[Literal, ...], place: ShellPlace) -> tuple[Argument, ...]:
    """`a{b,c}` is `ab ac`. Only the plain form is followed: each brace within one unquoted part, none inside another."""
    choices: list[list[Literal]] = []
    for part in literals:
        if part.is_quoted:
            choices.append([part])
            continue
        place_in_text = 0
        for match in _BRACES.finditer(part.text):
            if "," not in match[1]:
                continue
            choices.append([Literal(part.text[place_in_text : match.start()], is_quoted=False)])
            choices.append([Literal(text, is_quoted=False) for text in match[1].split(",")])
            place_in_text = match.end()
        choices.append([Literal(part.text[place_in_text:], is_quoted=False)])
    left = "".join(choice[0].text for choice in choices if len(choice) == 1 and not choice[0].is_quoted)
    count = 1
    for choice in choices:
        count *= len(choice)
    is_odd = (".." in left and "{" in left) or left.count("{") != left.count("}") or ("," in left and "{" in left)
    if is_odd or count > ALTERNATIVES_MAX:
        return (Argument(None, "", word.source, word.span, may_split=True),)
    return tuple(_from_literals(word, tuple(combination), place) for combination in product(*choices))


def _from_parts(word: Word, place: ShellPlace) -> Argument:
    known, is_pattern = "", False
    for part in word.parts:
        value = _value_of(part, place)
        if value is None:
            lead = _WILD.split(known, maxsplit=1)[0] if is_pattern else known
            return Argument(None, lead, word.source, word.span, is_pattern, may_split=_may_split(word))
        known += value.text
        is_pattern = is_pattern or value.is_pattern
    return _known(word, known, is_pattern=is_pattern)


def _may_split(word: Word) -> bool:
    return any(_part_may_split(part) for part in word.parts)


def _part_may_split(part: Part) -> bool:
    match part:
        case Literal(text=text, is_quoted=is_quoted):
            return not is_quoted and ("{" in text or bool(_WILD.search(text)))
        case Variable(name=name, is_quoted=is_quoted):
            return not is_quoted or name == "@"
        case Substitution(is_quoted=is_quoted):
            return not is_quoted
        case Opaque():
            return True
        case _:
            assert_never(part)


def _value_of(part: Part, place: ShellPlace) -> Value | None:
    match part:
        case Literal(text=text, is_quoted=True):
            return Value(text)
        case Literal(text=text):
            return None if "{" in text or text.startswith("~") else Value(text, bool(_WILD.search(text)))
        case Variable(name=name, is_quoted=is_quoted):
            return _unsplit(_variable(name, place), is_quoted=is_quoted)
        case Substitution(body=Command() as command, is_pipe=False, is_quoted=is_quoted) if _is_pwd(command):
            return _unsplit(_variable("PWD", place), is_quoted=is_quoted)
        case Substitution(is_pipe=True):
            return Value("/dev/fd/63")
        case _:
            return None


def _variable(name: str, place: ShellPlace) -> Value | None:
    if name in place.values:
        return place.values[name]
    if name == "PWD" and len(place.folders) == 1:
        return Value(next(iter(place.folders)))
    return Value(place.home) if name == "HOME" and place.home is not None else None


def _unsplit(value: Value | None, *, is_quoted: bool) -> Value | None:
    """Without quotes a value is split at blanks and matched against files again: then it is not known."""
    if value is None or is_quoted:
        return value
    return None if value.is_pattern or not value.text or _SPLITS.search(value.text) else value


def _is_pwd(command: Command) -> bool:
    return [word.source for word in command.words] == ["pwd"] and not command.redirections and not command.assignments
