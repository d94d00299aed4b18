"""The shell parser port: turns a shell text into a tree.

Does not own: what the tree means (core.shell).
"""

from typing import Protocol

from palyra.core.shell.tree import Node


class ShellParser(Protocol):
    def parse(self, text: str) -> Node:
        """Returns the tree of the text as bash reads it.

        Never raises: text it does not understand is an `Unknown` node.
        """
        ...
