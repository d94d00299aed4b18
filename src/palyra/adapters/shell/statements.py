"""Statements of the parser's tree. Owns: commands, lists, pipelines, compounds as nodes of ours. Not: words (words).

Known to be wrong in the parser's tree, and put right here: redirections after a list or pipeline belong to its last command,
and words after a redirection's target belong to the command.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tree_sitter import Node as Raw

from palyra.adapters.shell.heredocs import read_heredoc
from palyra.adapters.shell.joining import attach, pipe
from palyra.adapters.shell.source import BREAKS, NotUnderstood, Source, only
from palyra.adapters.shell.words import WORD_TYPES, WordReader
from palyra.core.shell import tree
from palyra.core.shell.tree import Command, Item, Joint, Node, Redirection, Word

_STATEMENTS = frozenset(
    "command redirected_statement for_statement while_statement if_statement case_statement function_definition "
    "compound_statement subshell pipeline list negated_command test_command declaration_command unset_command "
    "variable_assignment variable_assignments c_style_for_statement file_redirect".split()
)
_REDIRECTS = frozenset(("file_redirect", "herestring_redirect"))
_JOINTS = {";": Joint.THEN, "&": Joint.BESIDE, "&&": Joint.AND, "||": Joint.OR}
# In `[ ... ]` these would be redirections and subshells to bash; in `[[ -v x ]]` and `[[ a -eq b ]]` values may run.
_TEST_OPERATORS = frozenset(
    "= == != && || ! -a -b -c -d -e -f -g -h -k -p -r -s -t -u -w -x -L -N -O -S -G -z -n -nt -ot -ef ( )".split()
)
_NOT_OPERATORS = frozenset(("(", ")", "&&", "||"))
_AFTER = frozenset((b"", b" ", b"\t", b"\n", b";", b"&", b"|", b")", b"<", b">", b"`", b"\\"))
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def read_statements(source: Source, node: Raw) -> Node:
    return Statements(source).inside(node)


class Statements:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._words = WordReader(source, self._body)

    def inside(self, node: Raw) -> Node:
        return self._sequence(self._source.children(node), node)

    def _body(self, source: Source, node: Raw) -> Node:
        """What runs inside a substitution."""
        text = source.bytes_of(node)
        children = source.children(node)
        is_known = text.startswith((b"$(", b"`", b"<(", b">(")) and text.endswith((b")", b"`"))
        if not is_known or children[0].is_named or children[-1].is_named:
            raise NotUnderstood("an unusual substitution", node)
        if text.startswith(b"$((") or (text.startswith(b"`") and b"\\" in text):
            raise NotUnderstood("a substitution that can be read in two ways", node)
        return self._sequence(children[1:-1], node)

    def _sequence(self, nodes: Sequence[Raw], parent: Raw) -> Node:
        items: list[Item] = []
        before: Raw | None = None
        for node in nodes:
            if node.type in _STATEMENTS:
                if before is not None and before.type in _STATEMENTS:
                    self._check_line_between(before, node)
                items.append(Item(self._statement(node), Joint.THEN))
            elif node.type in (";", "&") and before is not None and before.type in _STATEMENTS:
                items[-1] = Item(items[-1].node, _JOINTS[node.type])
            else:
                raise NotUnderstood(f"an unusual place for {node.type}", node)
            before = node
        return items[0].node if len(items) == 1 and items[0].joint is Joint.THEN else tree.Sequence(tuple(items))

    def _check_line_between(self, before: Raw, node: Raw) -> None:
        if not self._source.has_newline(before.end_byte, node.start_byte):
            raise NotUnderstood("two commands with nothing between them", node)

    def _statement(self, node: Raw) -> Node:
        """A statement that is not understood leaves the others readable."""
        try:
            return self._known_statement(node)
        except NotUnderstood as cause:
            return cause.unknown(self._source)

    def _known_statement(self, node: Raw) -> Node:
        if self._source.encoded[node.end_byte : node.end_byte + 1] not in _AFTER:
            raise NotUnderstood("a command that does not end where it seems to", node)
        match node.type:
            case "command" | "variable_assignment" | "variable_assignments" | "file_redirect":
                return self._command(node)
            case "declaration_command" | "unset_command":
                return self._declaration(node)
            case "redirected_statement":
                return self._redirected(node)
            case "list":
                return self._list(node)
            case "pipeline":
                return self._pipeline(node)
            case "negated_command":
                return self._negated(node)
            case "subshell":
                return self._subshell(node)
            case "compound_statement":
                return self._group(node)
            case "if_statement":
                return self._if(node)
            case "case_statement":
                return self._case(node)
            case "for_statement":
                return self._for(node)
            case "while_statement":
                return self._while(node)
            case "test_command":
                return self._test(node)
            case "function_definition":
                return tree.Function(self._source.text_of(node).partition("(")[0].strip(), self._source.span(node))
            case _:
                raise NotUnderstood(f"a form that is not followed: {node.type}", node)

    def _negated(self, node: Raw) -> Node:
        mark, body = self._source.line(node)
        if mark.end_byte == body.start_byte:
            raise NotUnderstood("a word that begins with !", node)
        return self._statement(body)

    def _command(self, node: Raw) -> Node:
        children = [node] if node.type in ("variable_assignment", "file_redirect") else self._source.line(node)
        words: list[Word] = []
        assignments: list[tree.Assignment] = []
        redirections: list[Redirection] = []
        for before, child in zip((None, *children), children, strict=False):
            if before is not None and before.end_byte == child.start_byte and child.type not in _REDIRECTS:
                raise NotUnderstood("two words without a blank between them", child)
            if before is not None and before.end_byte == child.start_byte and self._source.text_of(before).isdigit():
                raise NotUnderstood("a number that may belong to a redirection", child)
            if child.type == "command_name":
                words.append(self._words.word(only(child.children, child)))
            elif child.type == "variable_assignment" and not words:
                assignments.append(self._assignment(child))
            elif child.type in _REDIRECTS:
                redirection, more = self._redirection(child)
                redirections.append(redirection)
                words += more
            elif child.type in WORD_TYPES:
                words.append(self._words.word(child))
            else:
                raise NotUnderstood(f"a command with {child.type}", child)
        return Command(tuple(words), tuple(assignments), tuple(redirections), self._source.span(node))

    def _assignment(self, node: Raw) -> tree.Assignment:
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
        return tree.Assignment(name, value, children[1].type == "+=", self._source.span(node))

    def _declaration(self, node: Raw) -> Node:
        """`export a=b`: told as words, the way bash treats it."""
        words = []
        for child in self._source.line(node):
            text = self._source.text_of(child)
            if child.type == "variable_assignment":
                assignment = self._assignment(child)
                lead = tree.Literal(text.partition("=")[0] + "=", is_quoted=True)
                words.append(Word((lead, *assignment.value.parts), text, assignment.span))
            elif child.type in WORD_TYPES:
                words.append(self._words.word(child))
            elif not child.children:
                words.append(Word((tree.Literal(text, is_quoted=True),), text, self._source.span(child)))
            else:
                raise NotUnderstood(f"a declaration with {child.type}", child)
        return Command(tuple(words), (), (), self._source.span(node))

    def _redirection(self, node: Raw) -> tuple[Redirection, list[Word]]:
        children = self._source.line(node)
        self._check_descriptor(children[0])
        children = children[1:] if children[0].type == "file_descriptor" else children
        operator, targets = children[0].type, [self._target(child) for child in children[1:]]
        if any(left.end_byte == right.start_byte for left, right in pairwise(children[1:])):
            raise NotUnderstood("two words without a blank between them", node)
        if operator in ("<&-", ">&-"):
            return Redirection(operator, None, self._source.span(node)), targets
        if not targets:
            raise NotUnderstood("a redirection to nowhere", node)
        return Redirection(operator, targets[0], self._source.span(node)), targets[1:]

    def _check_descriptor(self, node: Raw) -> None:
        is_number = self._source.bytes_of(node).isdigit() and self._source.before(node) in BREAKS
        if node.type == "file_descriptor" and not is_number:
            raise NotUnderstood("a redirection of what is not a number", node)

    def _target(self, node: Raw) -> Word:
        if node.type not in WORD_TYPES:
            raise NotUnderstood(f"a redirection with {node.type}", node)
        return self._words.word(node)

    def _redirected(self, node: Raw) -> Node:
        children = self._source.line(node)
        body = self._statement(children[0])
        for child in children[1:]:
            if child.type == "heredoc_redirect":
                body = self._with_heredoc(body, child)
            else:
                redirection, words = self._redirection(child)
                body = attach(body, (redirection,), tuple(words))
        return body

    def _with_heredoc(self, body: Node, node: Raw) -> Node:
        """The rest of the line on which a here-document begins is inside the parser's node for it."""
        for child in node.children:
            self._source.check_mark(child)
        self._check_descriptor(node.children[0])
        body = attach(body, (read_heredoc(self._source, self._words, node),), ())
        rest = [
            child
            for child in node.children
            if not child.type.startswith("heredoc_") and child.type not in ("<<", "<<-", "file_descriptor")
        ]
        line_end = self._source.encoded.find(b"\n", node.start_byte)
        if any(child.end_byte > line_end for child in rest):
            raise NotUnderstood("a command that goes on in the next line", node)
        while rest and rest[0].type in _REDIRECTS | WORD_TYPES:
            child = rest.pop(0)
            if child.type in WORD_TYPES:
                body = attach(body, (), (self._words.word(child),))
            else:
                redirection, words = self._redirection(child)
                body = attach(body, (redirection,), tuple(words))
        return self._continued(body, rest, node)

    def _continued(self, body: Node, rest: list[Raw], node: Raw) -> Node:
        match [child.type for child in rest]:
            case []:
                return body
            case ["pipeline"]:
                stages = [child for child in self._source.children(rest[0]) if child.type not in ("|", "|&")]
                return pipe(body, tuple(self._statement(stage) for stage in stages))
            case [("&&" | "||") as operator, _]:
                return tree.Sequence((Item(body, _JOINTS[operator]), Item(self._statement(rest[1]), Joint.THEN)))
            case _:
                raise NotUnderstood("an unusual line with a here-document", node)

    def _list(self, node: Raw) -> Node:
        match self._source.children(node):
            case [left, operator, right] if operator.type in ("&&", "||"):
                first = self._statement(left)
                items = first.items if isinstance(first, tree.Sequence) and left.type == "list" else ()
                before = (*items[:-1], Item(items[-1].node, _JOINTS[operator.type])) if items else ()
                before = before or (Item(first, _JOINTS[operator.type]),)
                return tree.Sequence((*before, Item(self._statement(right), Joint.THEN)))
            case _:
                raise NotUnderstood("an unusual list", node)

    def _pipeline(self, node: Raw) -> Node:
        children = self._source.children(node)
        if any(child.type not in ("|", "|&") for child in children[1::2]) or len(children) % 2 == 0:
            raise NotUnderstood("an unusual pipeline", node)
        return tree.Pipeline(tuple(self._statement(child) for child in children[::2]))

    def _subshell(self, node: Raw) -> Node:
        if self._source.bytes_of(node).startswith(b"(("):
            raise NotUnderstood("a subshell that can be read as arithmetic", node)
        return tree.Subshell(self._enclosed(node, "(", ")"))

    def _group(self, node: Raw) -> Node:
        if not self._source.bytes_of(node)[:2].startswith((b"{ ", b"{\n", b"{\t")):
            raise NotUnderstood("arithmetic, or a word in braces, as a command", node)
        return tree.Group(self._enclosed(node, "{", "}"))

    def _enclosed(self, node: Raw, opening: str, closing: str) -> Node:
        children = self._source.children(node)
        if children[0].type != opening or children[-1].type != closing:
            raise NotUnderstood(f"an unusual {node.type}", node)
        return self._sequence(children[1:-1], node)

    def _if(self, node: Raw) -> Node:
        return tree.Branch(tuple(self._if_bodies(node)))

    def _if_bodies(self, node: Raw) -> Iterator[Node]:
        group: list[Raw] = []
        for child in self._source.children(node):
            if child.type in ("if", "then", "elif", "else", "fi", "elif_clause", "else_clause"):
                if group:
                    yield self._sequence(group, node)
                group = []
                if child.type.endswith("_clause"):
                    yield from self._if_bodies(child)
            else:
                group.append(child)
        if group:
            yield self._sequence(group, node)

    def _case(self, node: Raw) -> Node:
        children = self._source.children(node)
        words = [self._words.word(child) for child in children if child.type in WORD_TYPES]
        bodies: list[Node] = []
        for item in (child for child in children if child.type == "case_item"):
            parts = self._source.children(item)
            end = next((index for index, part in enumerate(parts) if part.type == ")"), None)
            if end is None:
                raise NotUnderstood("an unusual case", item)
            for pattern in parts[:end]:
                bodies += self._words.bodies(pattern)
            inner = [part for part in parts[end + 1 :] if part.type not in (";;", ";&", ";;&")]
            bodies.append(self._sequence(inner, item))
        if any(child.type not in WORD_TYPES | {"case", "in", "esac", "case_item", ";"} for child in children):
            raise NotUnderstood("an unusual case", node)
        return tree.Branch(tuple(bodies), tuple(words))

    def _for(self, node: Raw) -> Node:
        children = self._source.children(node)
        if [child.type for child in children[:3]] != ["for", "variable_name", "in"]:
            raise NotUnderstood("a loop over what it was given", node)
        words = [self._words.word(child) for child in children[3:] if child.type in WORD_TYPES]
        groups = [child for child in children if child.type == "do_group"]
        if len(words) + len(groups) + 3 + sum(child.type == ";" for child in children) != len(children):
            raise NotUnderstood("an unusual loop", node)
        body = self._enclosed(only(groups, node), "do", "done")
        return tree.Loop((body,), self._source.text_of(children[1]), tuple(words))

    def _while(self, node: Raw) -> Node:
        children = self._source.children(node)
        if children[0].type not in ("while", "until") or children[-1].type != "do_group":
            raise NotUnderstood("an unusual loop", node)
        return tree.Loop((self._sequence(children[1:-1], node), self._enclosed(children[-1], "do", "done")))

    def _test(self, node: Raw) -> Node:
        is_plain = node.children[0].type == "["
        self._check_brackets(node, is_plain=is_plain)
        parts = list(self._test_parts(node.children[1:-1]))
        for part in parts:
            text = self._source.text_of(part)
            is_operator = part.type == "test_operator" or not part.is_named
            if is_operator and (text not in _TEST_OPERATORS or (is_plain and text in _NOT_OPERATORS)):
                raise NotUnderstood(f"a test with {text}", part)
        if is_plain:
            return self._bracket(node, parts)
        bodies = tuple(body for part in parts for body in self._words.bodies(part))
        return tree.Test(bodies, self._source.span(node))

    def _bracket(self, node: Raw, parts: list[Raw]) -> Node:
        """`[` is a command like others, and its words are words."""
        words = []
        for part in (node.children[0], *parts, node.children[-1]):
            text = self._source.text_of(part)
            literal = Word((tree.Literal(text, is_quoted=True),), text, self._source.span(part))
            words.append(self._words.word(part) if part.type in WORD_TYPES else literal)
        return Command(tuple(words), (), (), self._source.span(node))

    def _test_parts(self, nodes: Sequence[Raw]) -> Iterator[Raw]:
        """Words and operators of a test, out of the expressions the parser makes of them."""
        for node in nodes:
            if node.type in WORD_TYPES or not node.children:
                yield node
            else:
                yield from self._test_parts(self._source.children(node))

    def _check_brackets(self, node: Raw, *, is_plain: bool) -> None:
        """The brackets are words of their own."""
        children = self._source.children(node)
        text = self._source.bytes_of(node)
        width = len(children[0].type)
        is_apart = text[width : width + 1].isspace() and text[-width - 1 : -width].isspace()
        if not is_apart or (is_plain and (self._source.has_newline(node.start_byte, node.end_byte) or b"#" in text)):
            raise NotUnderstood("an unusual test", node)
