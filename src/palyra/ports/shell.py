"""The shell parser port. Owns: how a shell text becomes a tree. Not: what the tree means (core.shell)."""

from typing import Protocol

from palyra.core.shell.tree import Node


class ShellParser(Protocol):
    def parse(self, text: str) -> Node:
        """The tree of the text as bash reads it. Never raises: what is not understood is an `Unknown` in the tree."""
        ...
