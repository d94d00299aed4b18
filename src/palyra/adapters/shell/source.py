"""The text under the parser's tree: bytes, spans, and the check that nothing lies between nodes.

Does not own: what nodes mean (statements, words).
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from tree_sitter import Node

from palyra.core.shell.tree import Span, Unknown

_BLANK = re.compile(rb"(?:[ \t\n]|\\\n)*")
# These may stand before a word, and after it unless a redirection does.
BREAKS = frozenset((b"", b" ", b"\t", b"\n", b";", b"&", b"|", b"(", b")"))
# These would run inside text that was taken for plain.
_LIVE = re.compile(rb"`|\$[({\[]|[<>]\(")


class NotUnderstood(Exception):
    """A node is not of a form we know. This never leaves the package: it becomes an `Unknown`."""

    def __init__(self, words: str, node: Node) -> None:
        super().__init__(words)
        self.words = words
        self.node = node

    def unknown(self, source: "ShellSource") -> Unknown:
        return Unknown(self.words, source.span(self.node))


class ShellSource:
    def __init__(self, text: str) -> None:
        self.encoded = text.encode()
        self._is_ascii = len(self.encoded) == len(text)

    def bytes_of(self, node: Node) -> bytes:
        return self.encoded[node.start_byte : node.end_byte]

    def text_of(self, node: Node) -> str:
        return self.bytes_of(node).decode()

    def between(self, start: int, end: int) -> str:
        return self.encoded[start:end].decode()

    def span(self, node: Node) -> Span:
        return self.span_of(node.start_byte, node.end_byte)

    def span_of(self, start: int, end: int) -> Span:
        if self._is_ascii:
            return start, end
        start_chars = len(self.encoded[:start].decode(errors="replace"))
        return start_chars, start_chars + len(self.encoded[start:end].decode(errors="replace"))

    def children(self, node: Node) -> list[Node]:
        """Returns the children of a node without comments.

        It checks that only blanks lie before, between and after them.
        """
        found = node.children
        # The root leaves out what stands before and after the first and last node it knows.
        place, end = (node.start_byte, node.end_byte) if node.parent else (0, len(self.encoded))
        for child in found:
            self.check_gap(place, child.start_byte, node)
            self.check_mark(child)
            place = child.end_byte
        self.check_gap(place, end, node)
        return [child for child in found if child.type != "comment"]

    def check_mark(self, child: Node) -> None:
        """Checks that an operator or a word of the language is what it seems, and that a comment is one to bash too."""
        if child.type == "comment" and self.before(child) not in BREAKS:
            raise NotUnderstood("a word that was read as a comment", child)
        if child.is_named:
            return
        if self.bytes_of(child).strip(b" \t") != child.type.encode():
            raise NotUnderstood("a mark that is not what it seems", child)
        if child.type.isalpha() and not self._is_apart(child):
            raise NotUnderstood("a word that was read as a part of the language", child)

    def _is_apart(self, child: Node) -> bool:
        after = self.encoded[child.end_byte : child.end_byte + 1]
        return self.before(child) in BREAKS and (after in BREAKS or after in (b"<", b">", b"`"))

    def line(self, node: Node) -> list[Node]:
        """Returns the children of a node that bash reads only up to the end of the line."""
        found = self.children(node)
        if len(found) != len(node.children):
            raise NotUnderstood("a comment inside a command", node)
        for before, after in pairwise(found):
            if self.has_newline(before.end_byte, after.start_byte):
                raise NotUnderstood("a command that goes on in the next line", node)
        return found

    def before(self, node: Node) -> bytes:
        """Returns the byte before a node, if there is one."""
        return self.encoded[max(0, node.start_byte - 1) : node.start_byte]

    def check_gap(self, start: int, end: int, node: Node) -> None:
        gap = self.encoded[start:end]
        if not _BLANK.fullmatch(gap):
            raise NotUnderstood("a part of it was not read by the parser", node)
        if gap and not gap.replace(b"\\\n", b""):
            # bash would join what stands before the line's end with what stands after it.
            raise NotUnderstood("a line is continued inside a word", node)

    def has_newline(self, start: int, end: int) -> bool:
        return b"\n" in self.encoded[start:end].replace(b"\\\n", b"")

    def check_plain(self, start: int, end: int, node: Node) -> None:
        """Checks that text which bash expands and we do not parse holds nothing that runs."""
        if _LIVE.search(re.sub(rb"\\.", b"", self.encoded[start:end], flags=re.DOTALL)):
            raise NotUnderstood("a substitution was not read by the parser", node)


def only(nodes: Sequence[Node], parent: Node) -> Node:
    if len(nodes) != 1:
        raise NotUnderstood(f"an unusual form of {parent.type}", parent)
    return nodes[0]
