"""One command on its way through the rules. Owns: what a rule may ask of it and say about it. Not: any rule.

A rule says nothing about a command that only reads inside the workspace; for everything else it says why that asks.
"""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from palyra.core.shell.judgement import Code, Findings
from palyra.core.shell.paths import Reach, looks_outside, reach_of, readings, resolve
from palyra.core.shell.words import Argument, ShellPlace

# Judges another command in the same place: what a wrapper would run.
RunCommand: TypeAlias = Callable[[tuple[Argument, ...], ShellPlace], None]
# Judges a shell text: what `sh -c` would run.
RunText: TypeAlias = Callable[[Argument, ShellPlace], None]
SOURCE_LENGTH_MAX = 80  # Of a word in a reason; the card shows the whole command anyway.


class Invocation(msgspec.Struct, frozen=True):
    program: str
    head: Argument
    arguments: tuple[Argument, ...]
    place: ShellPlace
    sheet: Findings
    run: RunCommand
    run_text: RunText

    def ask(self, code: Code, words: str, argument: Argument | None = None) -> None:
        self.sheet.ask(code, words, (argument or self.head).span)

    def values(self) -> tuple[str, ...]:
        """The words of its arguments; what is not known is an empty string, which no table names."""
        return tuple(argument.value or "" for argument in self.arguments)

    def reads(self, argument: Argument) -> None:
        """A path it would read."""
        if argument.value is None:
            if not argument.is_inside:
                words = f"which file {short(argument.source)} names is not known before it runs"
                self.ask(Code.UNKNOWN_VALUE, words, argument)
            return
        if argument.value == "-":
            return
        for path in self.paths(argument):
            reach = reach_of(path, self.sheet.scope.roots)
            if reach is not Reach.DEVICE:
                self.sheet.touches(path)
            if reach is Reach.OUTSIDE:
                self.ask(
                    Code.OUTSIDE_WORKSPACE, f"{self.program} would read {short(path)}, outside the workspace", argument
                )

    def reads_if_path(self, argument: Argument) -> None:
        """A word that may be a path or not: only one that would lead away is taken for one."""
        if argument.value is None:
            if not argument.is_inside and (not argument.lead or looks_outside(argument.lead)):
                words = f"what {short(argument.source)} stands for is not known before it runs"
                self.ask(Code.UNKNOWN_VALUE, words, argument)
        elif looks_outside(argument.value):
            self.reads(argument)

    def paths(self, argument: Argument) -> list[str]:
        texts = readings(argument.value or "", is_pattern=argument.is_pattern)
        return [resolve(text, folder) for text in texts for folder in sorted(self.place.folders)]

    def needs_network(self, host: str = "") -> None:
        self.sheet.needs_network(self.program, host, self.head.span)

    def is_known(self) -> bool:
        """Whether every word is known before it runs; if not, says so."""
        odd = [argument for argument in self.arguments if not argument.is_certain]
        for argument in odd:
            words = f"what {short(argument.source)} stands for is not known before it runs"
            self.ask(Code.UNKNOWN_VALUE, words, argument)
        return not odd


Rule: TypeAlias = Callable[[Invocation], None]


def short(text: str) -> str:
    return text if len(text) <= SOURCE_LENGTH_MAX else text[: SOURCE_LENGTH_MAX - 1] + "…"
