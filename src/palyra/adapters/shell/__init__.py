"""Parses shell texts with tree-sitter-bash: the parser behind the port, and its limits.

Does not own: judging (core.shell).
tree-sitter is made to colour code. It repairs what it does not understand and knows some of bash only roughly. So its
tree is checked while it is read (`statements`, `words`, `heredocs`). Every character must be accounted for. Anything of
an unknown form becomes an `Unknown`, which asks.
"""

import re

import tree_sitter
import tree_sitter_bash

from palyra.adapters.shell.source import NotUnderstood, ShellSource
from palyra.adapters.shell.statements import read_statements
from palyra.core.shell.tree import Node, Unknown

DEPTH_MAX = 100  # Limits the nesting of the parser's tree. A person's command has some twenty levels.
# bash and the parser may not agree about these characters: controls but for tab and newline, and blanks beyond ASCII.
_JOINED = re.compile(rb"(?<![ \t\n])\\\n")
_STRANGE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\xa0\xad\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
# The grammar's scanner looks such a character up in a table of 256 and may crash the whole process.
_DEADLY = re.compile(r"\{[0-9.\s-]*[^\x00-\x7f]")


class TreeSitterShell:
    def __init__(self) -> None:
        self._parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))

    def parse(self, text: str) -> Node:
        strange = _STRANGE.search(text)
        if strange is not None:
            return Unknown("it holds characters that are not shown", strange.span())
        deadly = _DEADLY.search(text)
        if deadly is not None:
            return Unknown("a brace stands before a character beyond ASCII", deadly.span())
        source = ShellSource(text)
        root = self._parser.parse(source.encoded).root_node
        if root.has_error:
            return Unknown("it does not parse", source.span(_first_error(root)))
        if _is_too_deep(root):
            return Unknown("it is nested too deep", (0, len(text)))
        joined = _joined_line(source, root)
        if joined is not None:
            return Unknown("a line is continued inside a word", source.span_of(joined, joined + 2))
        try:
            return read_statements(source, root)
        except NotUnderstood as cause:
            return cause.unknown(source)


def _first_error(root: tree_sitter.Node) -> tree_sitter.Node:
    node = root
    while not (node.is_error or node.is_missing):
        broken = [child for child in node.children if child.has_error]
        if not broken:
            return node
        node = broken[0]
    return node


def _joined_line(source: ShellSource, root: tree_sitter.Node) -> int | None:
    """Returns where a backslash removes a line's end and no blank separates what it joins.

    The parser sees two things there.
    """
    for match in _JOINED.finditer(source.encoded):
        node = root.descendant_for_byte_range(match.start(), match.end())
        if node is None or node.type != "raw_string":
            return match.start()
    return None


def _is_too_deep(root: tree_sitter.Node) -> bool:
    level = [root]
    for _ in range(DEPTH_MAX):
        level = [child for node in level for child in node.children]
        if not level:
            return False
    return True
