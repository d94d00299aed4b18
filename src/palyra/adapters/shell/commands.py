"""Simple commands of the parser's tree: their words, assignments, redirections and tests.

Does not own: what joins them (line_joins).
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tree_sitter import Node as Raw

from palyra.adapters.shell.source import BREAKS, NotUnderstood, ShellSource, only
from palyra.adapters.shell.words import WORD_TYPES, WordReader
from palyra.core.shell.tree import Assignment, Command, Literal, Redirection, Test, Word

REDIRECTS = frozenset(("file_redirect", "herestring_redirect"))
# In `[ ... ]` these would be redirections and subshells to bash; in `[[ -v x ]]` and `[[ a -eq b ]]` values may run.
_TEST_OPERATORS = frozenset(
    "= == != && || ! -a -b -c -d -e -f -g -h -k -p -r -s -t -u -w -x -L -N -O -S -G -z -n -nt -ot -ef ( )".split()
)
_NOT_OPERATORS = frozenset(("(", ")", "&&", "||"))
_NUMBER_OPERATORS = frozenset("-eq -ne -lt -le -gt -ge".split())  # In `[ ... ]` they take numbers only.
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class Commands:
    def __init__(self, source: ShellSource, words: WordReader) -> None:
        self._source = source
        self._words = words

    def command(self, node: Raw) -> Command:
        children = [node] if node.type in ("variable_assignment", "file_redirect") else self._source.line(node)
        words: list[Word] = []
        assignments: list[Assignment] = []
        redirections: list[Redirection] = []
        for before, child in zip((None, *children), children, strict=False):
            if before is not None and before.end_byte == child.start_byte and child.type not in REDIRECTS:
                raise NotUnderstood("two words without a blank between them", child)
            if before is not None and before.end_byte == child.start_byte and self._source.text_of(before).isdigit():
                raise NotUnderstood("a number that may belong to a redirection", child)
            if child.type == "command_name":
                words.append(self._words.word(only(child.children, child)))
            elif child.type == "variable_assignment" and not words:
                assignments.append(self._assignment(child))
            elif child.type in REDIRECTS:
                redirection, more = self.redirection(child)
                redirections.append(redirection)
                words += more
            elif child.type in WORD_TYPES:
                words.append(self._words.word(child))
            else:
                raise NotUnderstood(f"a command with {child.type}", child)
        return Command(tuple(words), tuple(assignments), tuple(redirections), self._source.span(node))

    def _assignment(self, node: Raw) -> Assignment:
        children = node.children
        for child in children:
            self._source.check_mark(child)
        if len(children) not in (2, 3) or children[0].type != "variable_name" or children[1].type not in ("=", "+="):
            raise NotUnderstood("an unusual assignment", node)
        if any(left.end_byte != right.start_byte for left, right in pairwise(children)):
            raise NotUnderstood("an assignment with something between its parts", node)
        empty = Word((), "", self._source.span(children[1]))
        if len(children) == 3 and children[2].type not in WORD_TYPES:
            raise NotUnderstood(f"an assignment of {children[2].type}", node)
        value = self._words.word(children[2]) if len(children) == 3 else empty
        name = self._source.text_of(children[0])
        if not _NAME.fullmatch(name):
            raise NotUnderstood("an assignment to what is not a name", node)
        return Assignment(name, value, children[1].type == "+=", self._source.span(node))

    def declaration(self, node: Raw) -> Command:
        """Reads `export a=b` as words, the way bash treats it."""
        words = []
        for child in self._source.line(node):
            text = self._source.text_of(child)
            if child.type == "variable_assignment":
                assignment = self._assignment(child)
                lead = Literal(text.partition("=")[0] + "=", is_quoted=True)
                words.append(Word((lead, *assignment.value.parts), text, assignment.span))
            elif child.type in WORD_TYPES:
                words.append(self._words.word(child))
            elif not child.children:
                words.append(Word((Literal(text, is_quoted=True),), text, self._source.span(child)))
            else:
                raise NotUnderstood(f"a declaration with {child.type}", child)
        return Command(tuple(words), (), (), self._source.span(node))

    def redirection(self, node: Raw) -> tuple[Redirection, list[Word]]:
        children = self._source.line(node)
        self.check_descriptor(children[0])
        children = children[1:] if children[0].type == "file_descriptor" else children
        operator, targets = children[0].type, [self._target(child) for child in children[1:]]
        if any(left.end_byte == right.start_byte for left, right in pairwise(children[1:])):
            raise NotUnderstood("two words without a blank between them", node)
        if operator in ("<&-", ">&-"):
            return Redirection(operator, None, self._source.span(node)), targets
        if not targets:
            raise NotUnderstood("a redirection to nowhere", node)
        return Redirection(operator, targets[0], self._source.span(node)), targets[1:]

    def check_descriptor(self, node: Raw) -> None:
        is_number = self._source.bytes_of(node).isdigit() and self._source.before(node) in BREAKS
        if node.type == "file_descriptor" and not is_number:
            raise NotUnderstood("a redirection of what is not a number", node)

    def _target(self, node: Raw) -> Word:
        if node.type not in WORD_TYPES:
            raise NotUnderstood(f"a redirection with {node.type}", node)
        return self._words.word(node)

    def test(self, node: Raw) -> Command | Test:
        is_plain = node.children[0].type == "["
        self._check_brackets(node, is_plain=is_plain)
        parts = list(self._test_parts(node.children[1:-1]))
        for part in parts:
            text = self._source.text_of(part)
            is_operator = part.type == "test_operator" or not part.is_named
            known = _TEST_OPERATORS - _NOT_OPERATORS | _NUMBER_OPERATORS if is_plain else _TEST_OPERATORS
            if is_operator and text not in known:
                raise NotUnderstood(f"a test with {text}", part)
        if is_plain:
            return self._bracket(node, parts)
        bodies = tuple(body for part in parts for body in self._words.bodies(part))
        return Test(bodies, self._source.span(node))

    def _bracket(self, node: Raw, parts: list[Raw]) -> Command:
        """Reads `[` as a command like others, with words."""
        words = []
        for part in (node.children[0], *parts, node.children[-1]):
            text = self._source.text_of(part)
            literal = Word((Literal(text, is_quoted=True),), text, self._source.span(part))
            words.append(self._words.word(part) if part.type in WORD_TYPES else literal)
        return Command(tuple(words), (), (), self._source.span(node))

    def _test_parts(self, nodes: Sequence[Raw]) -> Iterator[Raw]:
        """Yields words and operators of a test, out of the expressions the parser makes of them."""
        for node in nodes:
            if node.type in WORD_TYPES or not node.children:
                yield node
            else:
                yield from self._test_parts(self._source.children(node))

    def _check_brackets(self, node: Raw, *, is_plain: bool) -> None:
        """Checks that the brackets are words of their own."""
        children = self._source.children(node)
        text = self._source.bytes_of(node)
        width = len(children[0].type)
        is_apart = text[width : width + 1].isspace() and text[-width - 1 : -width].isspace()
        if not is_apart or (is_plain and (self._source.has_newline(node.start_byte, node.end_byte) or b"#" in text)):
            raise NotUnderstood("an unusual test", node)
