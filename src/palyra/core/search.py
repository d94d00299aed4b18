"""Search by words. Owns: which events have words in the index, and expressions for it from what somebody typed. Not: the index.

Does not own: the index (adapters.store).
Everything a person or a model types is words. The only operators are quotation marks around words that belong together.
So no query fails; a query without a word finds nothing.
"""

import re

from palyra.core.events.run import MessageAssistant, MessageUser

INDEXED_TYPES = frozenset(
    {MessageUser.TYPE, MessageAssistant.TYPE}
)  # A store's index holds the texts of exactly these.
QUERY_LENGTH_MAX = 400
WORDS_MAX = 24  # Each is looked up separately; nobody means more.

_PART = re.compile(r'"([^"]*)"|([^\s"]+)')


def all_words(query: str) -> str | None:
    """Returns an expression for texts that hold every word; None if there is no word."""
    return _joined(query, " AND ")


def any_word(query: str) -> str | None:
    """Returns an expression for texts that hold at least one word."""
    return _joined(query, " OR ")


def _joined(query: str, operator: str) -> str | None:
    parts = [quoted or word for quoted, word in _PART.findall(query[:QUERY_LENGTH_MAX])]
    words = [part for part in parts if any(letter.isalnum() for letter in part)][:WORDS_MAX]
    return operator.join(f'"{_plain(word)}"' for word in words) or None


def _plain(word: str) -> str:
    """Removes what an expression cannot hold: the end of a C string, half a character."""
    return word.replace("\x00", " ").encode("utf-8", "replace").decode()
