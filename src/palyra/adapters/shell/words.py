"""Words of the parser's tree: quotes, backslashes and expansions as parts of a word.

Does not own: commands (statements).
"""

import re
from collections.abc import Callable, Iterator

from tree_sitter import Node as Raw

from palyra.adapters.shell.source import NotUnderstood, ShellSource
from palyra.core.shell.tree import Literal, Node, Opaque, Part, Substitution, Variable, Word

# Reads the statements inside a substitution. The caller gives it, because statements hold words and words hold
# statements.
ReadBody = Callable[[ShellSource, Raw], Node]

WORD_TYPES = frozenset(
    "word number string raw_string ansi_c_string translated_string concatenation simple_expansion expansion "
    "command_substitution process_substitution arithmetic_expansion brace_expression".split()
)
# These may stand unquoted in a word. A `$` that begins no expansion stands for itself.
_PLAIN = re.compile(r"(?:\\[^\n]|[^\s;|&<>()'\"`$\\]|\$(?![\w({\['\"`*@#?!$-]))+")
_PIECE = re.compile(r"\\(.)|([^\\]+)", re.DOTALL)
_ARITHMETIC = re.compile(r"(?:0[xX][0-9a-fA-F]+|[0-9\s()+*/%<>!&|^~?:,-])*")
_SIMPLE = re.compile(r"\$([A-Za-z_]\w*|[0-9@*#?!$_-])", re.ASCII)
_BRACED = re.compile(r"\$\{([A-Za-z_]\w*|[0-9]+)\}", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_ESCAPE = re.compile(r"\\(?:([abeEfnrtv\\'\"?])|x([0-9A-Fa-f]{1,2})|([0-7]{1,3})|u([0-9A-Fa-f]{1,4}))")
_ESCAPED = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_LAST_ASCII = 0x7F
# `${x:-y}` and its like only choose or cut text. The others assign, run what a value holds, or calculate with it.
_HARMLESS_OPERATORS = frozenset(":- - :+ + % %% # ## / // /# /% , ,, ^ ^^ ${ }".split())
_LEAVES = frozenset(("variable_name", "special_variable_name", "regex", "word", "number", "extglob_pattern"))


class WordReader:
    def __init__(self, source: ShellSource, read_body: ReadBody) -> None:
        self._source = source
        self._read_body = read_body

    def word(self, node: Raw) -> Word:
        text = self._source.text_of(node)
        if text.startswith("#"):
            raise NotUnderstood("a comment was read as a word", node)
        return Word(_merged(self._parts(node)), text, self._source.span(node))

    def bodies(self, node: Raw) -> tuple[Node, ...]:
        """Returns every body that runs when a node is expanded whose value is of no interest."""
        if node.type in WORD_TYPES:
            return tuple(body for part in self._parts(node) for body in _bodies_of(part))
        if not node.children:
            self._source.check_plain(node.start_byte, node.end_byte, node)
            return ()
        return tuple(body for child in self._source.children(node) for body in self.bodies(child))

    def quoted(self, node: Raw, children: list[Raw], start: int, end: int) -> Iterator[Part]:
        """Yields the parts of text in which only `$`, backquotes and backslashes mean something."""
        for child in children:
            yield from self._quoted_text(start, child.start_byte, node)
            if child.type in ("string_content", "heredoc_content", "$"):
                yield from self._quoted_text(child.start_byte, child.end_byte, node)
            else:
                yield from self._expanded(child, is_quoted=True)
            start = child.end_byte
        yield from self._quoted_text(start, end, node)

    def _parts(self, node: Raw) -> Iterator[Part]:
        if node.type in ("word", "number"):
            yield from self._plain(node)
        elif node.type == "string":
            children = node.children
            text = self._source.bytes_of(node)
            if len(text) < 2 or not (text.startswith(b'"') and text.endswith(b'"') and children[-1].type == '"'):
                raise NotUnderstood("an unusual string", node)
            yield Literal("", is_quoted=True)  # An empty string is a word too.
            # The parser's closing quote may hold the blanks before it.
            yield from self.quoted(node, children[1:-1], node.start_byte + 1, node.end_byte - 1)
        elif node.type == "raw_string":
            raw = self._source.text_of(node)
            if len(raw) < 2 or raw[0] != "'" or raw.find("'", 1) != len(raw) - 1:
                raise NotUnderstood("an unusual string", node)
            yield Literal(raw[1:-1], is_quoted=True)
        elif node.type == "ansi_c_string":
            yield self._ansi_c(node)
        elif node.type == "concatenation":
            yield from self._joined(node)
        elif node.type == "brace_expression":
            self._source.check_plain(node.start_byte, node.end_byte, node)
            yield Opaque("a range in braces")
        else:
            yield from self._expanded(node, is_quoted=False)

    def _joined(self, node: Raw) -> Iterator[Part]:
        place = node.start_byte
        for child in node.children:
            if child.start_byte != place or child.type == "concatenation":
                raise NotUnderstood("a word with something between its parts", node)
            yield from self._parts(child)
            place = child.end_byte
        if place != node.end_byte:
            raise NotUnderstood("a word with something after its parts", node)

    def _plain(self, node: Raw) -> Iterator[Part]:
        text = self._source.text_of(node)
        if node.children or not _PLAIN.fullmatch(text):
            raise NotUnderstood("an unusual word", node)
        for piece in _PIECE.finditer(text):
            if piece[1] is not None:
                yield Literal(piece[1], is_quoted=True)
            else:
                yield Literal(piece[2], is_quoted=False)

    def _quoted_text(self, start: int, end: int, node: Raw) -> Iterator[Part]:
        if start == end:
            return
        text = self._source.between(start, end)
        self._source.check_plain(start, end, node)
        if re.search(r"(?<!\\)(?:\\\\)*\$[\w@*#?!$-]", text):
            raise NotUnderstood("a variable was not read by the parser", node)
        yield Literal(re.sub(r'\\([$`"\\]|\n)', lambda m: "" if m[1] == "\n" else m[1], text), is_quoted=True)

    def _ansi_c(self, node: Raw) -> Part:
        text = self._source.text_of(node)[2:-1]
        if not self._source.text_of(node).startswith("$'") or re.search(r"(?<!\\)(?:\\\\)*'", text):
            raise NotUnderstood("an unusual string", node)
        plain = _ESCAPE.sub(_unescape, text)
        if "\\" in _ESCAPE.sub("", text) or "\0" in plain:
            raise NotUnderstood("an escape in a string that is not known", node)
        return Literal(plain, is_quoted=True)

    def _expanded(self, node: Raw, *, is_quoted: bool) -> Iterator[Part]:
        match node.type:
            case "simple_expansion":
                yield Variable(self._name(node), is_quoted)
            case "expansion":
                braced = _BRACED.fullmatch(self._source.text_of(node))
                yield Variable(braced[1], is_quoted) if braced else self._expansion(node)
            case "command_substitution":
                yield Substitution(self._read_body(self._source, node), is_quoted)
            case "process_substitution":
                yield Substitution(self._read_body(self._source, node), is_quoted, is_pipe=True)
            case "arithmetic_expansion":
                yield self._arithmetic(node)
            case _:
                raise NotUnderstood(f"an unusual place for {node.type}", node)

    def _name(self, node: Raw) -> str:
        match = _SIMPLE.fullmatch(self._source.text_of(node))
        if match is None:
            raise NotUnderstood("an unusual variable", node)
        name = match[1]
        following = self._source.encoded[node.end_byte : node.end_byte + 1].decode(errors="replace")
        if _NAME.fullmatch(name) and re.match(r"\w", following):
            raise NotUnderstood("the name of a variable was cut short", node)
        return name

    def _expansion(self, node: Raw) -> Opaque:
        bodies: list[Node] = []
        place = node.start_byte
        for child in node.children:
            if child.start_byte != place:
                raise NotUnderstood("an expansion with something between its parts", node)
            place = child.end_byte
            self._source.check_mark(child)
            if child.is_named:
                if child.type not in _LEAVES | WORD_TYPES:
                    raise NotUnderstood(f"an expansion with {child.type}", node)
                bodies += self.bodies(child)
            elif child.type not in _HARMLESS_OPERATORS:
                raise NotUnderstood(f"an expansion with {child.type}", node)
        return Opaque("an expansion with an operator", tuple(bodies))

    def _arithmetic(self, node: Raw) -> Opaque:
        """Reads arithmetic. Only numbers are allowed: the value of a name may hold a subscript, and bash runs that."""
        text = self._source.text_of(node)
        if not text.startswith("$((") or not text.endswith("))") or not _ARITHMETIC.fullmatch(text[3:-2]):
            raise NotUnderstood("arithmetic with names", node)
        return Opaque("arithmetic")


def _merged(parts: Iterator[Part]) -> tuple[Part, ...]:
    """Joins adjacent literals, because the parser cuts words at braces."""
    merged: list[Part] = []
    for part in parts:
        before = merged[-1] if merged else None
        if isinstance(part, Literal) and isinstance(before, Literal) and part.is_quoted == before.is_quoted:
            merged[-1] = Literal(before.text + part.text, part.is_quoted)
        else:
            merged.append(part)
    return tuple(merged)


def _bodies_of(part: Part) -> tuple[Node, ...]:
    match part:
        case Substitution(body=body):
            return (body,)
        case Opaque(bodies=bodies):
            return bodies
        case _:
            return ()


def _unescape(match: re.Match[str]) -> str:
    if match[1] is not None:
        return _ESCAPED.get(match[1], match[1])
    code = int(match[2], 16) if match[2] else int(match[3], 8) if match[3] else int(match[4], 16)
    # Beyond ASCII, \x and octal name bytes. We do not build characters from them.
    return chr(code) if code <= _LAST_ASCII or match[4] else "\0"
