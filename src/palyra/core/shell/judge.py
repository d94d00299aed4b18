"""The judge of shell texts. Owns: walking the tree, and following folders, variables and pipes. Not: rules of programs.

A text is free only if nothing in it gave a reason to ask. Every path through the text is walked: both sides of `&&`, every
branch, every body of a substitution; what may or may not happen is taken to happen. The parser is an argument: `core` has none.
"""

import re
from collections.abc import Callable, Iterable
from typing import TypeAlias, assert_never

import msgspec

from palyra.core.shell import tree
from palyra.core.shell.environment import is_harmless_for, is_harmless_name
from palyra.core.shell.feeds import feed_after
from palyra.core.shell.invocation import Invocation, short
from palyra.core.shell.judgement import Code, Findings, Judgement, ShellScope
from palyra.core.shell.paths import PROGRAM_FOLDERS, Reach, is_sink, reach_of, resolve
from palyra.core.shell.readers import READERS
from palyra.core.shell.table import RULES
from palyra.core.shell.tree import Command, Joint, Node, Redirection, Word
from palyra.core.shell.versions import is_version
from palyra.core.shell.words import Argument, InputFeed, ShellPlace, Value, expand

Parse: TypeAlias = Callable[[str], Node]

TEXT_BYTES_MAX = 16 * 1024  # Longer than any command a person would look at.
DEPTH_MAX = 50  # Commands inside commands.
TEXTS_MAX = 4  # `sh -c` inside `sh -c`.
STEPS_MAX = 2000  # A loop is walked once for each word, so few words can be many commands.
WORDS_MAX = 500  # Of one command.
ROUNDS_MAX = 32  # Words of a loop that are followed one by one.
FOLDERS_MAX = 8
_DESCRIPTOR = re.compile(r"[0-9]+-?|-")


def judge(text: str, scope: ShellScope, parse: Parse) -> Judgement:
    scope = msgspec.structs.replace(
        scope,
        roots=tuple(resolve(root, "/") for root in scope.roots),
        repositories=tuple(resolve(root, "/") for root in scope.repositories),
    )
    sheet = Findings(scope)
    whole = (0, len(text))
    if reach_of(resolve(scope.cwd, "/"), scope.roots) is not Reach.INSIDE:
        sheet.ask(Code.OUTSIDE_WORKSPACE, f"it would begin in {short(scope.cwd)}, outside the workspace", whole)
    if len(text.encode(errors="surrogatepass")) > TEXT_BYTES_MAX:
        sheet.ask(Code.TOO_LONG, f"it has more than {TEXT_BYTES_MAX} bytes", whole)
        return sheet.judgement()
    place = ShellPlace(frozenset((resolve(scope.cwd, "/"),)), home=scope.home)
    Walk(sheet, parse).node(parse(text), place)
    if not sheet.command_count and not sheet.has_reasons():
        sheet.ask(Code.NOT_UNDERSTOOD, "there is no command in it", whole)
    return sheet.judgement()


class Ends(msgspec.Struct, frozen=True):
    """Where things stand after a command that succeeded, and after one that failed."""

    well: ShellPlace
    badly: ShellPlace

    def either(self) -> ShellPlace:
        return _merge(self.well, self.badly)


class Walk:
    def __init__(self, sheet: Findings, parse: Parse) -> None:
        self._sheet = sheet
        self._parse = parse
        self._depth = 0
        self._step_count = 0
        self._text_depth = 0

    def node(self, node: Node, place: ShellPlace) -> Ends:
        self._step_count += 1
        if self._depth >= DEPTH_MAX or self._step_count > STEPS_MAX:
            self._sheet.ask(Code.TOO_DEEP, "it is nested too deep, or runs too many commands", (0, 0))
            return Ends(place, place)
        self._depth += 1
        ends = self._node(node, place)
        self._depth -= 1
        return ends

    def _node(self, node: Node, place: ShellPlace) -> Ends:
        match node:
            case Command():
                return self._command(node, place)
            case tree.Sequence(items=items):
                return self._sequence(items, place)
            case tree.Pipeline(stages=stages):
                self._pipeline(stages, place)
                return Ends(place, place)
            case tree.Negated(body=body):
                ends = self.node(body, place)
                return Ends(ends.badly, ends.well)
            case tree.ShellGroup(body=body):
                return self.node(body, place)
            case tree.Subshell(body=body):
                self.node(body, place)
                return Ends(place, place)
            case tree.ShellBranch(bodies=bodies, words=words):
                return self._branch(bodies, words, place)
            case tree.Loop():
                return self._loop(node, place)
            case tree.Test(bodies=bodies, span=span):
                self._sheet.saw(("test",), span)
                self._bodies(bodies, place)
                return Ends(place, place)
            case tree.Redirected(body=body, redirections=redirections):
                inner = self._redirected(redirections, place)
                ends = self.node(body, inner)
                return Ends(_with_feed(ends.well, place.feed), _with_feed(ends.badly, place.feed))
            case tree.Function(name=name, span=span):
                self._sheet.ask(Code.CHANGES_SHELL, f"it defines the function {short(name)}", span)
                return Ends(place, place)
            case tree.Unknown(words=words, span=span):
                self._sheet.ask(Code.NOT_UNDERSTOOD, f"it is not understood: {words}", span)
                return Ends(place, place)
            case _:
                assert_never(node)

    def _sequence(self, items: tuple[tree.ShellItem, ...], place: ShellPlace) -> Ends:
        ends = Ends(place, place)
        before = Joint.THEN
        for item in items:
            match before:
                case Joint.AND:
                    after = self._item(item, ends.well)
                    ends = Ends(after.well, _merge(ends.badly, after.badly))
                case Joint.OR:
                    after = self._item(item, ends.badly)
                    ends = Ends(_merge(ends.well, after.well), after.badly)
                case Joint.THEN | Joint.BESIDE:
                    ends = self._item(item, ends.either())
                case _:
                    assert_never(before)
            before = item.joint
        return ends

    def _item(self, item: tree.ShellItem, place: ShellPlace) -> Ends:
        ends = self.node(item.node, place)
        # What runs beside the shell changes nothing in it.
        return Ends(place, place) if item.joint is Joint.BESIDE else ends

    def _pipeline(self, stages: tuple[Node, ...], place: ShellPlace) -> None:
        feed = place.feed
        for stage in stages:
            self.node(stage, _with_feed(place, feed))
            feed = (
                feed_after(self._arguments(stage.words, place), feed)
                if isinstance(stage, Command)
                else InputFeed.ANYTHING
            )

    def _branch(self, bodies: tuple[Node, ...], words: tuple[Word, ...], place: ShellPlace) -> Ends:
        self._words(words, place)
        for body in bodies:
            place = _merge(place, self.node(body, place).either())
        return Ends(place, place)

    def _loop(self, loop: tree.Loop, place: ShellPlace) -> Ends:
        self._words(loop.words, place)
        if loop.variable is not None and not is_harmless_name(loop.variable):
            words = f"the loop sets {loop.variable}, which may change what runs"
            self._sheet.ask(Code.SETS_ENVIRONMENT, words, loop.words[0].span if loop.words else (0, 0))
        arguments = self._arguments(loop.words, place)
        is_known = all(argument.value is not None for argument in arguments)
        if loop.variable is None or not is_known or len(arguments) > ROUNDS_MAX:
            return self._unbounded(loop, place)
        start = place
        for argument in arguments:
            value = Value(argument.value or "", argument.is_pattern)
            inner = _with_value(place, loop.variable, value)
            # A pattern stands for many names, so what its round leaves behind may be where the next begins.
            place = self._round(loop.bodies, inner)
            if argument.is_pattern:
                place = self._round(loop.bodies, _with_value(_merge(inner, place), loop.variable, value))
        ends = _merge(start, place)
        return Ends(ends, ends)

    def _unbounded(self, loop: tree.Loop, place: ShellPlace) -> Ends:
        """Rounds until nothing new is found; a folder that changes in each is not followed."""
        start = _without(place, loop.variable) if loop.variable else place
        for _ in range(3):
            after = _merge(start, self._round(loop.bodies, start))
            if after == start:
                return Ends(after, after)
            start = after
        self._sheet.ask(Code.NOT_UNDERSTOOD, "a loop that changes its folder or variables is not followed", (0, 0))
        return Ends(start, start)

    def _round(self, bodies: tuple[Node, ...], place: ShellPlace) -> ShellPlace:
        for body in bodies:
            place = self.node(body, place).either()
        return place

    def _bodies(self, bodies: Iterable[Node], place: ShellPlace) -> None:
        for body in bodies:
            self.node(body, place)

    def _words(self, words: Iterable[Word], place: ShellPlace) -> None:
        """Walks what runs inside words."""
        for word in words:
            for part in word.parts:
                match part:
                    case tree.Substitution(body=body):
                        self.node(body, place)
                    case tree.Opaque(bodies=bodies):
                        self._bodies(bodies, place)
                    case tree.Literal() | tree.Variable():
                        pass
                    case _:
                        assert_never(part)

    def _arguments(self, words: Iterable[Word], place: ShellPlace) -> tuple[Argument, ...]:
        return tuple(argument for word in words for argument in expand(word, place))

    def _command(self, command: Command, place: ShellPlace) -> Ends:
        self._words(command.words, place)
        self._words((assignment.value for assignment in command.assignments), place)
        inner = self._redirected(command.redirections, place)
        arguments = self._arguments(command.words, inner)
        self._sheet.saw(tuple(word.source for word in command.words), command.span)
        if not arguments:
            if command.words:
                self._sheet.ask(Code.UNKNOWN_VALUE, "which command it is, is not known", command.span)
            after = self._assigned(command, place)
            return Ends(after, after)
        self._judge_assignments(command, arguments[0])
        if arguments[0].value == "cd":
            return self._change_folder(arguments, place)
        self.run(arguments, inner)
        after = (
            _without(place, *(argument.lead for argument in arguments[1:])) if arguments[0].value == "read" else place
        )
        return Ends(after, after)

    def _assigned(self, command: Command, place: ShellPlace) -> ShellPlace:
        for assignment in command.assignments:
            if not is_harmless_name(assignment.name):
                words = f"{assignment.name} may change which programs run or what they do"
                self._sheet.ask(Code.SETS_ENVIRONMENT, words, assignment.span)
            value = expand(assignment.value, place) if assignment.value.parts else ()
            text = value[0].value if len(value) == 1 else None
            if text is None or assignment.is_appended or "~" in assignment.value.source:
                place = _without(place, assignment.name)
            else:
                place = _with_value(place, assignment.name, Value(text, value[0].is_pattern))
        return place

    def _judge_assignments(self, command: Command, head: Argument) -> None:
        for assignment in command.assignments:
            if not is_harmless_for(assignment.name, is_plain=head.value in READERS):
                words = f"{assignment.name} may change what {short(head.source)} does"
                self._sheet.ask(Code.SETS_ENVIRONMENT, words, assignment.span)

    def _redirected(self, redirections: Iterable[Redirection], place: ShellPlace) -> ShellPlace:
        for redirection in redirections:
            if redirection.target is None:
                continue
            self._words((redirection.target,), place)
            if redirection.operator in ("<<", "<<<"):
                place = _with_feed(place, InputFeed.ANYTHING)
                continue
            for target in expand(redirection.target, place):
                self._judge_redirection(redirection, target, place)
            if redirection.operator.startswith("<"):
                place = _with_feed(place, InputFeed.ANYTHING)
        return place

    def _judge_redirection(self, redirection: Redirection, target: Argument, place: ShellPlace) -> None:
        text = target.value or ""
        if redirection.operator in (">&", "<&") and _DESCRIPTOR.fullmatch(text):
            return
        if redirection.operator == "<":
            self._invocation((target,), place, "the shell").reads(target)
        elif redirection.operator not in (">", ">>", ">|", "&>", "&>>", ">&"):
            self._sheet.ask(Code.WRITES, f"{redirection.operator} opens a file for writing", redirection.span)
        elif not is_sink(text):
            words = f"it would write to {short(target.source)}"
            self._sheet.ask(Code.WRITES, words, redirection.span)

    def _change_folder(self, arguments: tuple[Argument, ...], place: ShellPlace) -> Ends:
        targets = arguments[2:] if len(arguments) > 1 and arguments[1].value == "--" else arguments[1:]
        if len(place.folders) > FOLDERS_MAX:
            self._sheet.ask(Code.TOO_LONG, "it changes its folder too often to be followed", arguments[0].span)
            return Ends(place, place)
        is_plain = len(targets) == 1 and targets[0].value and not targets[0].value.startswith("-")
        if not is_plain or targets[0].is_pattern:
            self._sheet.ask(Code.OUTSIDE_WORKSPACE, "the folder it would change to is not known", arguments[0].span)
            return Ends(place, place)
        target = targets[0].value or ""
        self._invocation(arguments, place, "cd").reads(targets[0])
        folders = frozenset(resolve(target, folder) for folder in place.folders)
        for folder in folders:
            if reach_of(folder, self._sheet.scope.roots) is not Reach.INSIDE:
                words = f"it would go on in {short(folder)}, outside the workspace"
                self._sheet.ask(Code.OUTSIDE_WORKSPACE, words, targets[0].span)
        return Ends(msgspec.structs.replace(place, folders=folders), place)

    def run(self, arguments: tuple[Argument, ...], place: ShellPlace) -> None:
        """Judges one simple command. A wrapper comes back here with what it would run."""
        head = arguments[0] if arguments else None
        if head is None or not head.value or head.is_pattern:
            span = head.span if head else (0, 0)
            self._sheet.ask(Code.UNKNOWN_VALUE, "which command would run is not known before it runs", span)
            return
        if len(place.folders) > FOLDERS_MAX or len(arguments) > WORDS_MAX:
            self._sheet.ask(Code.TOO_LONG, "it has too many words, or may be in too many folders", head.span)
            return
        program = self._program(head)
        if program is None:
            return
        invocation = self._invocation(arguments, place, program)
        if is_version(invocation):
            return
        rule = RULES.get(program)
        if rule is None:
            self._sheet.ask(Code.UNKNOWN_PROGRAM, f"{short(program)} is not known to only read", head.span)
            return
        self._depth += 1
        if self._depth > DEPTH_MAX:
            self._sheet.ask(Code.TOO_DEEP, "it is nested too deep", head.span)
        else:
            rule(invocation)
        self._depth -= 1

    def _program(self, head: Argument) -> str | None:
        folder, slash, name = (head.value or "").rpartition("/")
        if not slash:
            return name
        if folder in PROGRAM_FOLDERS:
            return name
        self._sheet.ask(Code.RUNS_CODE, f"it would run the file {short(head.source)}", head.span)
        return None

    def _invocation(self, arguments: tuple[Argument, ...], place: ShellPlace, program: str) -> Invocation:
        return Invocation(program, arguments[0], arguments[1:], place, self._sheet, self.run, self.run_text)

    def run_text(self, text: Argument, place: ShellPlace) -> None:
        if self._text_depth >= TEXTS_MAX or len((text.value or "").encode(errors="surrogatepass")) > TEXT_BYTES_MAX:
            self._sheet.ask(Code.TOO_DEEP, "shells inside shells are nested too deep", text.span)
            return
        self._text_depth += 1
        self._sheet.enter(text.span)
        before = self._sheet.command_count
        self.node(self._parse(text.value or ""), place)
        if self._sheet.command_count == before and not self._sheet.has_reasons():
            self._sheet.ask(Code.NOT_UNDERSTOOD, "there is no command in it", text.span)
        self._sheet.leave()
        self._text_depth -= 1


def _merge(left: ShellPlace, right: ShellPlace) -> ShellPlace:
    """What holds whichever of the two holds."""
    if left == right:
        return left
    values = {name: value for name, value in left.values.items() if right.values.get(name) == value}
    return ShellPlace(left.folders | right.folders, values, left.feed, left.home)


def _with_feed(place: ShellPlace, feed: InputFeed) -> ShellPlace:
    return place if place.feed is feed else msgspec.structs.replace(place, feed=feed)


def _with_value(place: ShellPlace, name: str, value: Value) -> ShellPlace:
    return msgspec.structs.replace(place, values={**place.values, name: value})


def _without(place: ShellPlace, *names: str) -> ShellPlace:
    return msgspec.structs.replace(
        place, values={name: value for name, value in place.values.items() if name not in names}
    )
