"""Putting nodes together. Owns: redirections and words that belong to the last command, and pipes. Not: reading the tree."""

import msgspec

from palyra.core.shell import tree
from palyra.core.shell.tree import Command, Item, Node, Redirection, Unknown, Word


def attach(node: Node, redirections: tuple[Redirection, ...], words: tuple[Word, ...]) -> Node:
    match node:
        case Command():
            return msgspec.structs.replace(
                node, words=(*node.words, *words), redirections=(*node.redirections, *redirections)
            )
        case tree.Pipeline(stages=stages):
            return tree.Pipeline((*stages[:-1], attach(stages[-1], redirections, words)))
        case tree.Sequence(items=items) if items:
            last = items[-1]
            return tree.Sequence((*items[:-1], Item(attach(last.node, redirections, words), last.joint)))
        case tree.Redirected(body=body, redirections=before) if not words:
            return tree.Redirected(body, (*before, *redirections))
        case _ if not words:
            return tree.Redirected(node, redirections)
        case _:
            return Unknown("words after a compound command", words[0].span)


def pipe(first: Node, rest: tuple[Node, ...]) -> Node:
    match first:
        case tree.Pipeline(stages=stages):
            return tree.Pipeline((*stages, *rest))
        case tree.Sequence(items=items) if items:
            last = items[-1]
            return tree.Sequence((*items[:-1], Item(pipe(last.node, rest), last.joint)))
        case _:
            return tree.Pipeline((first, *rest))
