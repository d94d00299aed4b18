"""Here-documents: checks that the parser ends each where bash does, and reads what runs inside it.

Does not own: other redirections (commands).
"""

import re

from tree_sitter import Node as Raw

from palyra.adapters.shell.source import BREAKS, NotUnderstood, ShellSource
from palyra.adapters.shell.words import WordReader
from palyra.core.shell.tree import Literal, Redirection, Word

_DELIMITER = re.compile(r"""(?P<plain>\w+)|'(?P<single>[\w ]+)'|"(?P<double>\w+)"|\\(?P<escaped>\w+)""", re.ASCII)


def read_heredoc(source: ShellSource, words: WordReader, node: Raw) -> Redirection:
    """Reads the parser's heredoc_redirect. The caller reads what the node holds besides the document."""
    by_type = {child.type: child for child in node.children}
    start, body, end = by_type.get("heredoc_start"), by_type.get("heredoc_body"), by_type.get("heredoc_end")
    if start is None or body is None or end is None:
        raise NotUnderstood("an unusual here-document", node)
    if source.encoded[start.end_byte : start.end_byte + 1] not in BREAKS:
        raise NotUnderstood("an end mark of a here-document that goes on", start)
    delimiter = _DELIMITER.fullmatch(source.text_of(start))
    if delimiter is None:
        raise NotUnderstood("an unusual end mark of a here-document", start)
    name = next(text for text in delimiter.groups() if text is not None)
    first = source.encoded.find(b"\n", start.end_byte) + 1
    _check_lines(source, node, name, (first, end))
    if delimiter["plain"] is None:
        parts = [Literal(source.between(first, end.start_byte), is_quoted=True)]
        return Redirection("<<", Word(tuple(parts), "", source.span(start)), source.span(start))
    read = tuple(words.quoted(body, body.children, first, end.start_byte))
    return Redirection("<<", Word(read, "", source.span(start)), source.span(start))


def _check_lines(source: ShellSource, node: Raw, name: str, place: tuple[int, Raw]) -> None:
    """Checks where the document ends.

    bash ends it at the first line that is the mark, after leading tabs if it began with `<<-`.
    """
    first, end = place
    strip = "\t" if any(child.type == "<<-" for child in node.children) else ""
    lines = source.between(first, len(source.encoded)).split("\n")
    position = first
    for line in lines:
        if line.lstrip(strip) == name if strip else line == name:
            if position + len(line.encode()) != end.end_byte:
                break
            return
        position += len(line.encode()) + 1
    raise NotUnderstood("a here-document that may end elsewhere", node)
