"""The index of remembered items: what enters and leaves it, and whether it agrees with the items.

Does not own: the items (memory_writes), vectors (memory_vectors), questions (memory_search).
Invariants: the index changes in the transaction that changes the items. Only active items are in it. An entry leaves
before its item is changed, because FTS5 has to read what it removes.
"""

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b

import apsw

from palyra.adapters.store.sqlite.connection import fetch, json_text
from palyra.adapters.store.sqlite.memory_rows import COLUMNS, read_item
from palyra.adapters.store.sqlite.memory_vectors import drop_vectors
from palyra.core.ids import MemoryId
from palyra.core.memory.model import MemoryItem, MemoryStatus
from palyra.core.memory.question import TERM_LENGTH_MAX, plain_words, spaced
from palyra.core.memory.time_words import day_of, said_at

NAME_WORDS_MAX = 4  # Nobody is asked for by more words of a name.
REBUILD_STEP = 500
POSITION_MAX = 2**63 - 1

_ADD_ENTRY = """
    INSERT INTO memory_entries (number, partition, expires_at_ms, thread, position, speaker, said_from_ms, said_until_ms,
        day, pairs, vector_version) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '')
"""
_ADD_WORDS = """
    INSERT INTO memory_words (rowid, content, pairs)
    SELECT number, content, pairs FROM memory_texts WHERE number IN (SELECT value FROM json_each(?))
"""
_DIFFERING = """
    SELECT number, 0 FROM memory_items WHERE status = 'active'
        AND (number NOT IN (SELECT id FROM memory_words_docsize) OR number NOT IN (SELECT number FROM memory_entries))
    UNION SELECT id, 1 FROM memory_words_docsize
        WHERE id NOT IN (SELECT number FROM memory_items WHERE status = 'active')
    UNION SELECT number, 1 FROM memory_entries
        WHERE number NOT IN (SELECT number FROM memory_items WHERE status = 'active')
"""


def index_items(connection: apsw.Connection, items: Sequence[MemoryItem]) -> None:
    """Adds items that were just written."""
    active = {item.id: item for item in items if item.status is MemoryStatus.ACTIVE}
    if not active:
        return
    sql = "SELECT id, number FROM memory_items WHERE id IN (SELECT value FROM json_each(?))"
    numbers = [(number, active[memory_id]) for memory_id, number in fetch(connection, sql, (json_text(list(active)),))]
    partitions: dict[tuple[str, ...], int] = {}
    counts: Counter[int] = Counter()
    speakers: Counter[tuple[int, str, str]] = Counter()
    entries = []
    for number, item in numbers:
        partition = _partition(connection, item, partitions)
        counts[partition] += 1
        speakers.update((partition, word, item.source.speaker) for word in _name_words(item.source.speaker))
        entries.append((number, partition, *_entry(item, number)))
    connection.executemany(_ADD_ENTRY, entries)
    _count(connection, counts, speakers)
    connection.execute(_ADD_WORDS, (json_text([number for number, _ in numbers]),))


def drop_items(connection: apsw.Connection, ids: Sequence[MemoryId]) -> None:
    """Removes items that are about to be changed or deleted. Those that are not in the index are left alone."""
    sql = """
        SELECT entries.number, entries.partition, entries.speaker FROM memory_items AS items
        CROSS JOIN memory_entries AS entries ON entries.number = items.number
        WHERE items.id IN (SELECT value FROM json_each(?))
    """
    found = fetch(connection, sql, (json_text(list(ids)),))
    counts: Counter[int] = Counter()
    speakers: Counter[tuple[int, str, str]] = Counter()
    for _, partition, speaker in found:
        counts[partition] -= 1
        speakers.subtract((partition, word, speaker) for word in _name_words(speaker))
    keys = [(number,) for number, _, _ in found]
    drop_vectors(connection, [number for number, _, _ in found])
    connection.executemany("DELETE FROM memory_words WHERE rowid = ?", keys)
    connection.executemany("DELETE FROM memory_entries WHERE number = ?", keys)
    _count(connection, counts, speakers)


def find_misindexed(connection: apsw.Connection) -> list[tuple[int, bool]]:
    """Returns the numbers of active items that the index lacks, and of entries without an active item (True)."""
    return [(number, bool(is_stray)) for number, is_stray in fetch(connection, _DIFFERING)]


def rebuild_items(connection: apsw.Connection) -> int:
    """Makes the index anew from the items; vectors follow later. Returns how many entries were wrong or missing."""
    differing_count = len(find_misindexed(connection))
    for table in ("memory_entries", "memory_partitions", "memory_speakers", "memory_vectors", "memory_blocks"):
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 - our names
    connection.execute("INSERT INTO memory_words (memory_words) VALUES ('rebuild')")
    after = 0
    while rows := _active_items(connection, after):
        index_items(connection, [item for _, item in rows])
        after = rows[-1][0]
    return differing_count


def _active_items(connection: apsw.Connection, after: int) -> list[tuple[int, MemoryItem]]:
    sql = f"""
        SELECT items.number, {COLUMNS} FROM memory_items AS items
        WHERE items.number > ? AND items.status = 'active' ORDER BY items.number LIMIT {REBUILD_STEP}
    """  # noqa: S608 - our names
    return [(number, read_item(cells)) for number, *cells in fetch(connection, sql, (after,))]


def _partition(connection: apsw.Connection, item: MemoryItem, known: dict[tuple[str, ...], int]) -> int:
    key = (item.owner, item.scope.value, item.scope_id, item.kind.value, item.trust.value)
    if key not in known:
        connection.execute(
            "INSERT OR IGNORE INTO memory_partitions (owner, scope, scope_id, kind, trust, items_count)"
            " VALUES (?, ?, ?, ?, ?, 0)",
            key,
        )
        sql = """
            SELECT id FROM memory_partitions
            WHERE owner = ? AND scope = ? AND scope_id = ? AND kind = ? AND trust = ?
        """
        known[key] = fetch(connection, sql, key)[0][0]
    return known[key]


def _entry(item: MemoryItem, number: int) -> tuple[str | int | None, ...]:
    """Numbers grow in the order in which items are given, and order a conversation that has no positions."""
    source = item.source
    said = said_at(source.at)
    position = source.position if source.position is not None and abs(source.position) <= POSITION_MAX else number
    thread = _thread(item) if source.conversation else None
    days = (said.from_ms, said.until_ms, day_of(said.from_ms)) if said is not None else (None, None, 0)
    text = spaced(item.content)
    # The tokenizer drops nothing of the content, so only the pairs are kept beside it.
    pairs = "" if text.isascii() or text == item.content else text
    return (item.expires_at_ms, thread, position, source.speaker, *days, pairs)


def _thread(item: MemoryItem) -> int:
    name = "\x1f".join((item.owner, item.scope.value, item.scope_id, item.source.conversation))
    return int.from_bytes(blake2b(name.encode("utf-8", "replace"), digest_size=8).digest(), "big", signed=True)


def _name_words(speaker: str) -> list[str]:
    return [word[:TERM_LENGTH_MAX] for word in dict.fromkeys(plain_words(speaker))][:NAME_WORDS_MAX]


def _count(connection: apsw.Connection, counts: Counter[int], speakers: Counter[tuple[int, str, str]]) -> None:
    sql = "UPDATE memory_partitions SET items_count = items_count + ? WHERE id = ?"
    connection.executemany(sql, [(added, partition) for partition, added in counts.items()])
    connection.executemany("DELETE FROM memory_partitions WHERE id = ? AND items_count = 0", [(one,) for one in counts])
    sql = """
        INSERT INTO memory_speakers (partition, word, speaker, items_count) VALUES (?, ?, ?, ?)
        ON CONFLICT DO UPDATE SET items_count = items_count + excluded.items_count
    """
    connection.executemany(sql, [(*key, added) for key, added in speakers.items()])
    sql = "DELETE FROM memory_speakers WHERE partition = ? AND word = ? AND speaker = ? AND items_count <= 0"
    connection.executemany(sql, list(speakers))
