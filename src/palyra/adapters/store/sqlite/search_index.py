"""The index of words: what enters and leaves the full-text table.

Does not own: queries (views_search).
The table holds no text. FTS5 reads it through the view `search_texts`, which alone says what is indexed.
Invariants: the index changes in the transaction that changes the events. A text leaves it before its event is
overwritten, because FTS5 has to read what it removes. No word stays that no text holds any more, in whole or in part.
"""

from bisect import bisect_left
from collections.abc import Sequence

import apsw

_TOKENIZER = ("unicode61", ["remove_diacritics", "2"])  # The table has the same.
_DIFFERING = """
    SELECT (SELECT count(*) FROM (SELECT position FROM search_texts EXCEPT SELECT id FROM search_docsize))
         + (SELECT count(*) FROM (SELECT id FROM search_docsize EXCEPT SELECT position FROM search_texts))
"""
_BEGINNINGS = "SELECT CAST(term AS BLOB) FROM search_idx"  # Each term comes after a letter of FTS5's own.
_NEXT_WORD = "SELECT term FROM temp.search_words WHERE term >= ? ORDER BY term LIMIT 1"


def index_texts(connection: apsw.Connection, positions: Sequence[int]) -> None:
    """Adds the texts of events that were just written."""
    sql = "INSERT INTO search (rowid, text) SELECT position, text FROM search_texts WHERE position = ?"
    connection.executemany(sql, [(position,) for position in positions])


def drop_texts(connection: apsw.Connection, positions: Sequence[int]) -> frozenset[str]:
    """Removes the texts of events that are about to be overwritten.

    Returns their words, to scrub before the transaction ends.
    """
    tokenize = connection.fts5_tokenizer(*_TOKENIZER)
    words: set[str] = set()
    for position in positions:
        text = connection.execute("SELECT text FROM search_texts WHERE position = ?", (position,)).get
        words.update(_words(tokenize, text) if isinstance(text, str) else ())
    connection.executemany("DELETE FROM search WHERE rowid = ?", [(position,) for position in positions])
    return frozenset(words)


def scrub_index(connection: apsw.Connection, words: frozenset[str]) -> None:
    """Removes what FTS5 leaves of dropped words: the beginnings of some, by which it finds its pages.

    Merging the index writes them anew; an index that is merged already has to be made again. Both cost as much as the
    index is long. So neither is done unless the beginning of one of these words is there and begins no other word.
    """
    ordered = sorted(words)
    for command in ("flush", "optimize", "rebuild") if words else ():
        connection.execute("INSERT INTO search (search) VALUES (?)", (command,))
        if not _has_old_beginning(connection, ordered):
            return


def _words(tokenize: apsw.FTS5Tokenizer, text: str) -> list[str]:
    body = text.encode("utf-8", "replace")
    found = tokenize(body, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False)
    return [str(word) for word in found]


def _has_old_beginning(connection: apsw.Connection, words: list[str]) -> bool:
    kept = [bytes(term)[1:].decode("utf-8", "ignore") for (term,) in connection.execute(_BEGINNINGS)]
    doubtful = {beginning for beginning in kept if beginning and _begins_any(beginning, words)}
    if not doubtful:
        return False
    connection.execute("CREATE VIRTUAL TABLE temp.search_words USING fts5vocab('main', 'search', 'instance')")
    try:
        return any(not _begins_a_kept_word(connection, beginning) for beginning in doubtful)
    finally:
        connection.execute("DROP TABLE temp.search_words")


def _begins_any(beginning: str, words: list[str]) -> bool:
    at = bisect_left(words, beginning)
    return at < len(words) and words[at].startswith(beginning)


def _begins_a_kept_word(connection: apsw.Connection, beginning: str) -> bool:
    next_word = connection.execute(_NEXT_WORD, (beginning,)).get
    return isinstance(next_word, str) and next_word.startswith(beginning)


def rebuild_index(connection: apsw.Connection) -> int:
    """Makes the index anew from the events. Returns how many texts were missing or should not have been there."""
    differing_count = connection.execute(_DIFFERING).get
    connection.execute("INSERT INTO search (search) VALUES ('rebuild')")
    return differing_count if isinstance(differing_count, int) else 0
