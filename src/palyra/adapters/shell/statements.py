"""Statements of the parser's tree: commands, lists, pipelines and compounds as nodes of ours.

Does not own: words (words).
Some things are known to be wrong in the parser's tree, and are corrected here and in `line_joins`. These are how lists
and pipelines nest, what a redirection after them belongs to, and where the words after a redirection's target belong.
"""

from collections.abc import Iterator, Sequence

from tree_sitter import Node as Raw

from palyra.adapters.shell.commands import REDIRECTS, Commands
from palyra.adapters.shell.heredocs import read_heredoc
from palyra.adapters.shell.line_joins import OPERATORS, attach, join
from palyra.adapters.shell.source import NotUnderstood, ShellSource, only
from palyra.adapters.shell.words import WORD_TYPES, WordReader
from palyra.core.shell import tree
from palyra.core.shell.tree import Joint, Node, ShellItem

_STATEMENTS = frozenset(
    "command redirected_statement for_statement while_statement if_statement case_statement function_definition "
    "compound_statement subshell pipeline list negated_command test_command declaration_command unset_command "
    "variable_assignment variable_assignments c_style_for_statement file_redirect".split()
)
_JOINTS = {";": Joint.THEN, "&": Joint.BESIDE}
_OF_HEREDOC = frozenset("<< <<- file_descriptor heredoc_start heredoc_body heredoc_end".split())
_AFTER = frozenset((b"", b" ", b"\t", b"\n", b";", b"&", b"|", b")", b"<", b">", b"`", b"\\"))


def read_statements(source: ShellSource, node: Raw) -> Node:
    return Statements(source).inside(node)


class Statements:
    def __init__(self, source: ShellSource) -> None:
        self._source = source
        self._words = WordReader(source, self._body)
        self._commands = Commands(source, self._words)

    def inside(self, node: Raw) -> Node:
        return self._sequence(self._source.children(node), node)

    def _body(self, source: ShellSource, node: Raw) -> Node:
        """Reads what runs inside a substitution."""
        text = source.bytes_of(node)
        children = source.children(node)
        is_known = text.startswith((b"$(", b"`", b"<(", b">(")) and text.endswith((b")", b"`"))
        if not is_known or children[0].is_named or children[-1].is_named:
            raise NotUnderstood("an unusual substitution", node)
        if text.startswith(b"$((") or (text.startswith(b"`") and b"\\" in text):
            raise NotUnderstood("a substitution that can be read in two ways", node)
        return self._sequence(children[1:-1], node)

    def _sequence(self, nodes: Sequence[Raw], parent: Raw) -> Node:
        items: list[ShellItem] = []
        before: Raw | None = None
        for node in nodes:
            if node.type in _STATEMENTS:
                if before is not None and before.type in _STATEMENTS:
                    self._check_line_between(before, node)
                items.append(ShellItem(self._statement(node), Joint.THEN))
            elif node.type in (";", "&") and before is not None and before.type in _STATEMENTS:
                items[-1] = ShellItem(items[-1].node, _JOINTS[node.type])
            else:
                raise NotUnderstood(f"an unusual place for {node.type}", node)
            before = node
        return items[0].node if len(items) == 1 and items[0].joint is Joint.THEN else tree.Sequence(tuple(items))

    def _check_line_between(self, before: Raw, node: Raw) -> None:
        if not self._source.has_newline(before.end_byte, node.start_byte):
            raise NotUnderstood("two commands with nothing between them", node)

    def _statement(self, node: Raw) -> Node:
        """Reads a statement. One that is not understood leaves the others readable."""
        try:
            return self._known_statement(node)
        except NotUnderstood as cause:
            return cause.unknown(self._source)

    def _known_statement(self, node: Raw) -> Node:
        if self._source.encoded[node.end_byte : node.end_byte + 1] not in _AFTER:
            raise NotUnderstood("a command that does not end where it seems to", node)
        match node.type:
            case "command" | "variable_assignment" | "variable_assignments" | "file_redirect":
                return self._commands.command(node)
            case "declaration_command" | "unset_command":
                return self._commands.declaration(node)
            case "list" | "pipeline" | "negated_command" | "redirected_statement":
                return join(self._elements(node), node)
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
                return self._commands.test(node)
            case "function_definition":
                return tree.Function(self._source.text_of(node).partition("(")[0].strip(), self._source.span(node))
            case _:
                raise NotUnderstood(f"a form that is not followed: {node.type}", node)

    def _elements(self, node: Raw) -> list[Node | str]:
        """Returns commands and the operators between them, in the order of the text.

        The parser does not always nest them right.
        """
        match node.type:
            case "list" | "pipeline":
                found: list[Node | str] = []
                for child in self._source.children(node):
                    found += [child.type] if child.type in OPERATORS else self._elements(child)
                return found
            case "negated_command":
                children = self._source.line(node)
                body = only(children[1:], node)
                if children[0].end_byte == body.start_byte:
                    raise NotUnderstood("a word that begins with !", node)
                return ["!", *self._elements(body)]
            case "redirected_statement":
                children = self._source.line(node)
                found = self._elements(children[0])
                for child in children[1:]:
                    found = self._with_redirection(found, child)
                return found
            case _:
                return [self._statement(node)]

    def _with_redirection(self, elements: list[Node | str], node: Raw) -> list[Node | str]:
        if node.type == "heredoc_redirect":
            return self._with_heredoc(elements, node)
        redirection, words = self._commands.redirection(node)
        return attach(elements, (redirection,), tuple(words))

    def _with_heredoc(self, elements: list[Node | str], node: Raw) -> list[Node | str]:
        """Reads the rest of the line on which a here-document begins. The parser puts it inside the document's node."""
        for child in node.children:
            self._source.check_mark(child)
        self._commands.check_descriptor(node.children[0])
        elements = attach(elements, (read_heredoc(self._source, self._words, node),), ())
        line_end = self._source.encoded.find(b"\n", node.start_byte)
        for child in node.children:
            if child.type in _OF_HEREDOC:
                continue
            if child.end_byte > line_end:
                raise NotUnderstood("a command that goes on in the next line", node)
            if child.type in REDIRECTS:
                elements = self._with_redirection(elements, child)
            elif child.type in WORD_TYPES:
                elements = attach(elements, (), (self._words.word(child),))
            else:
                elements += [child.type] if child.type in OPERATORS else self._elements(child)
        return elements

    def _subshell(self, node: Raw) -> Node:
        if self._source.bytes_of(node).startswith(b"(("):
            raise NotUnderstood("a subshell that can be read as arithmetic", node)
        return tree.Subshell(self._enclosed(node, "(", ")"))

    def _group(self, node: Raw) -> Node:
        if not self._source.bytes_of(node)[:2].startswith((b"{ ", b"{\n", b"{\t")):
            raise NotUnderstood("arithmetic, or a word in braces, as a command", node)
        return tree.ShellGroup(self._enclosed(node, "{", "}"))

    def _enclosed(self, node: Raw, opening: str, closing: str) -> Node:
        children = self._source.children(node)
        if children[0].type != opening or children[-1].type != closing:
            raise NotUnderstood(f"an unusual {node.type}", node)
        return self._sequence(children[1:-1], node)

    def _if(self, node: Raw) -> Node:
        return tree.ShellBranch(tuple(self._if_bodies(node)))

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
        return tree.ShellBranch(tuple(bodies), tuple(words))

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
