"""Finds remembered items: candidates by words and by vectors, their neighbours, and everything the ranking looks at.

Does not own: what is in the index (memory_index), how candidates are ranked (core.memory.scores).
Owner, scopes, kinds, trust and expiry choose the partitions and entries that are read at all (L11).
Everything runs on a reading thread. The embedder is asked before; if it cannot answer, words alone decide.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import apsw

from palyra.adapters.store.sqlite.connection import fetch, json_text
from palyra.adapters.store.sqlite.empty_table import EmptyTable
from palyra.adapters.store.sqlite.memory_rows import COLUMNS, read_item
from palyra.adapters.store.sqlite.memory_vectors import measure_vectors, nearest_signs
from palyra.adapters.store.sqlite.reads import Reads
from palyra.core.errors import Unavailable
from palyra.core.ids import Principal
from palyra.core.memory.model import MemoryHit, MemoryQuery
from palyra.core.memory.question import MemoryQuestion, named_words, plain_words, take_apart
from palyra.core.memory.scores import MemoryCandidate, RankedItem, rank, rarity
from palyra.core.memory.time_words import Period, days_of
from palyra.core.trust import Trust, lowest
from palyra.ports.embedder import Embedder, UnembeddedItem, WordMeanings

HITS_MAX = 1_000
EACH_BRANCH = 150  # So many candidates of each branch are looked at closer.
NEIGHBOURS_OF = 50  # Of so many of each branch the neighbours are looked at too.
SAID_THEN_MAX = 1_000  # Of so many items of the time that a question names, the closest are looked at.
MATCHES_MAX = 8_000  # Words that are in more items than this together are left to the other measures.
STEM_SHARE = 0.5  # At least so close are words of one stem. Vectors of rare forms, such as "deploys", are poor.
STEMS_KEPT_MAX = 50_000  # About 8 MiB of words.
COMPARED_CHARS_MAX = 4_000  # Of a longer item, only the beginning is compared word by word.

_PARTITIONS = """
    SELECT id FROM memory_partitions
    WHERE owner = :owner AND (:kinds = '[]' OR kind IN (SELECT value FROM json_each(:kinds)))
        AND trust IN (SELECT value FROM json_each(:trusts))
        AND (scope, scope_id) IN (
            SELECT json_extract(value, '$.scope'), json_extract(value, '$.scope_id') FROM json_each(:scopes)
        )
"""
_SPEAKERS = """
    SELECT DISTINCT word, speaker FROM memory_speakers
    WHERE partition IN (SELECT value FROM json_each(?)) AND word IN (SELECT value FROM json_each(?))
"""
_MATCHES = """
    SELECT memory_words.rowid, -bm25(memory_words) AS score FROM memory_words
    CROSS JOIN memory_entries AS entries ON entries.number = memory_words.rowid
    WHERE memory_words MATCH :match AND entries.partition IN (SELECT value FROM json_each(:partitions))
        AND (entries.expires_at_ms IS NULL OR entries.expires_at_ms > :at_ms)
    ORDER BY score DESC, memory_words.rowid LIMIT :count
"""
# Two ranges, because an index serves only the first column of a comparison of pairs.
_NEIGHBOUR = """(
    SELECT number FROM (
        SELECT * FROM (
            SELECT near.number FROM memory_entries AS near
            WHERE near.thread = entries.thread AND near.day = entries.day AND near.position {side} entries.position
            ORDER BY near.position {order} LIMIT 2
        ) UNION ALL SELECT * FROM (
            SELECT near.number FROM memory_entries AS near
            WHERE near.thread = entries.thread AND near.day {side} entries.day
            ORDER BY near.day {order}, near.position {order} LIMIT 2
        )
    ) LIMIT 1 OFFSET {offset}
)"""
_NEIGHBOURS = """
    SELECT entries.number, {}, {}, {}, {} FROM json_each(?) AS wanted
    CROSS JOIN memory_entries AS entries ON entries.number = wanted.value WHERE entries.thread IS NOT NULL
""".format(  # noqa: S608 - our names
    *[_NEIGHBOUR.format(side="<", order="DESC", offset=offset) for offset in (0, 1)],
    *[_NEIGHBOUR.format(side=">", order="ASC", offset=offset) for offset in (0, 1)],
)
_DAYS = "SELECT coalesce(min(day), 0), coalesce(max(day), 0) FROM memory_entries WHERE day <> 0"
_SAID_THEN = """
    SELECT entries.number FROM json_each(:spans) AS span
    CROSS JOIN memory_entries AS entries ON entries.day >= json_extract(span.value, '$[0]')
        AND entries.day < json_extract(span.value, '$[1]') AND entries.day <> 0
    WHERE entries.partition IN (SELECT value FROM json_each(:partitions))
        AND (:speakers = '[]' OR entries.speaker IN (SELECT value FROM json_each(:speakers)))
        AND (entries.expires_at_ms IS NULL OR entries.expires_at_ms > :at_ms)
    LIMIT :count
"""
_DETAILS = """
    SELECT entries.number, items.content, entries.speaker, entries.thread, entries.said_from_ms, entries.said_until_ms,
        entries.pairs
    FROM json_each(:numbers) AS wanted
    CROSS JOIN memory_entries AS entries ON entries.number = wanted.value
    CROSS JOIN memory_items AS items ON items.number = entries.number
    WHERE entries.partition IN (SELECT value FROM json_each(:partitions))
        AND (entries.expires_at_ms IS NULL OR entries.expires_at_ms > :at_ms)
"""
_ITEMS = f"""
    SELECT items.number, {COLUMNS} FROM json_each(:numbers) AS wanted
    CROSS JOIN memory_items AS items ON items.number = wanted.value
    WHERE items.owner = :owner AND items.status = 'active'
"""  # noqa: S608 - our names
_PENDING = """
    SELECT entries.number, items.owner, items.content FROM memory_entries AS entries
    CROSS JOIN memory_items AS items ON items.number = entries.number
    WHERE entries.vector_version {} ? AND items.owner NOT IN (SELECT value FROM json_each(?))
    ORDER BY entries.vector_version, entries.number LIMIT ?
"""
_COUNT_PENDING = "SELECT count(*) FROM memory_entries WHERE vector_version < ? OR vector_version > ?"

_known_stems: dict[str, str] = {}


class _Asked(NamedTuple):
    """A question with the partitions that it may read, and its vector if there is one."""

    query: MemoryQuery
    question: MemoryQuestion
    partitions: list[int]
    vector: tuple[str, bytes] | None


class SqliteMemorySearch:
    def __init__(self, reads: Reads, items: EmptyTable) -> None:
        self._reads = reads
        self._items = items
        self._embedder: Embedder | None = None
        self._meanings: WordMeanings | None = None

    def use(self, embedder: Embedder, meanings: WordMeanings | None) -> None:
        """Sets what makes vectors. Until then, and while it is unavailable, words alone decide."""
        self._embedder, self._meanings = embedder, meanings

    async def search_memory(self, query: MemoryQuery) -> tuple[MemoryHit, ...]:
        if not query.scopes or query.limit < 1 or not plain_words(query.text[:1_000]):
            return ()
        if await self._items.is_empty():
            return ()
        asked = await self._reads.ask(lambda connection: _take_apart(connection, query))
        if not asked.partitions:
            return ()
        vector = await self._embed(asked.question.vector_text, query.owner)
        return await self._reads.ask(
            lambda connection: _search(connection, asked._replace(vector=vector), self._meanings)
        )

    async def new_items(self, limit: int, but_for: Sequence[Principal] = ()) -> tuple[UnembeddedItem, ...]:
        return await self._reads.ask(lambda connection: _pending(connection, "=", "", (json_text(but_for), limit)))

    async def unembedded(
        self, version: str, limit: int, but_for: Sequence[Principal] = ()
    ) -> tuple[UnembeddedItem, ...]:
        return await self._reads.ask(lambda connection: _unembedded(connection, version, json_text(but_for), limit))

    async def count_unembedded(self, version: str) -> int:
        rows = await self._reads.ask(lambda connection: fetch(connection, _COUNT_PENDING, (version, version)))
        return int(rows[0][0])

    async def has_items(self) -> bool:
        sql = "SELECT EXISTS (SELECT 1 FROM memory_entries)"
        return bool((await self._reads.ask(lambda connection: fetch(connection, sql)))[0][0])

    async def _embed(self, text: str, owner: Principal) -> tuple[str, bytes] | None:
        if self._embedder is None:
            return None
        try:
            vectors = await self._embedder.embed((text,), owner)
        except Unavailable:
            return None  # The watchdog looks at the embedder; a search by words is better than none.
        return self._embedder.traits.version, vectors[0]


def _take_apart(connection: apsw.Connection, query: MemoryQuery) -> _Asked:
    trusts = [level.value for level in Trust if lowest((level, query.trust_min)) is query.trust_min]
    bindings: dict[str, str | int | None] = {
        "owner": query.owner,
        "kinds": json_text(query.kinds),
        "trusts": json_text(trusts),
        "scopes": json_text(query.scopes),
    }
    partitions = [found for (found,) in fetch(connection, _PARTITIONS, bindings)]
    names = (
        fetch(connection, _SPEAKERS, (json_text(partitions), json_text(named_words(query.text)))) if partitions else []
    )
    return _Asked(query, take_apart(query.text, names, query.at_ms), partitions, None)


def _search(connection: apsw.Connection, asked: _Asked, meanings: WordMeanings | None) -> tuple[MemoryHit, ...]:
    hits: tuple[MemoryHit, ...] = ()
    with connection:  # One snapshot for all reads.
        rarities = _rarities(connection, asked.question.terms)
        limit = min(asked.query.limit, HITS_MAX)
        candidates = _candidates(connection, asked, rarities, max(EACH_BRANCH, limit))
        if not _compare_words(connection, candidates, rarities, meanings):
            _compare_stems(connection, candidates, rarities)
        rarity_sum = sum(weight for weight, _ in rarities.values())
        has_vector = asked.vector is not None
        ranked = rank(asked.question, rarity_sum, candidates, limit, has_vector=has_vector)
        hits = _hits(connection, asked.query, ranked)
    return hits  # noqa: RET504 - by its type, the block above might swallow an error


def _rarities(connection: apsw.Connection, terms: Sequence[str]) -> dict[str, tuple[float, int]]:
    """Returns for each term how much it tells, and how many items hold it."""
    items_count = fetch(connection, "SELECT coalesce(sum(items_count), 0) FROM memory_partitions")[0][0]
    rarities: dict[str, tuple[float, int]] = {}
    for term in terms:
        stems = _stems(connection, term)
        found = [fetch(connection, "SELECT doc FROM memory_terms WHERE term = ?", (stem,)) for stem in stems]
        held = min((rows[0][0] if rows else 0 for rows in found), default=0)
        rarities[term] = (rarity(items_count, held), held)
    return rarities


def _candidates(
    connection: apsw.Connection, asked: _Asked, rarities: dict[str, tuple[float, int]], count: int
) -> list[MemoryCandidate]:
    at_ms, partitions = asked.query.at_ms, asked.partitions
    by_text = dict(_matches(connection, asked, rarities, count))
    by_vector: dict[int, float] = {}
    if asked.vector is not None:
        near = nearest_signs(connection, asked.vector, partitions, at_ms, 2 * count)
        measured = measure_vectors(connection, asked.vector, near)
        by_vector = dict(sorted(measured.items(), key=lambda one: -one[1])[:count])
    best = [*list(by_text)[:NEIGHBOURS_OF], *list(by_vector)[:NEIGHBOURS_OF]]
    # Of the two on each side only the nearest can rise by its neighbour.
    around = {near for row in _neighbours(connection, best).values() for near in row[::2] if near is not None}
    numbers = list({*by_text, *by_vector, *around, *_said_then(connection, asked)})
    if asked.vector is not None:
        missing = [number for number in numbers if number not in by_vector]
        by_vector |= measure_vectors(connection, asked.vector, missing)
    bindings: dict[str, str | int | None] = {
        "numbers": json_text(numbers),
        "partitions": json_text(partitions),
        "at_ms": at_ms,
    }
    neighbours = _neighbours(connection, numbers)
    return [
        _candidate(row, by_text.get(row[0]), by_vector.get(row[0]), neighbours.get(row[0], ()))
        for row in fetch(connection, _DETAILS, bindings)
    ]


def _matches(
    connection: apsw.Connection, asked: _Asked, rarities: dict[str, tuple[float, int]], count: int
) -> list[tuple[Any, ...]]:
    """Returns items by BM25 of the rarer words; a word that is almost everywhere would only cost time."""
    chosen: list[str] = []
    total = 0
    for term, (_, held) in sorted(rarities.items(), key=lambda one: one[1][1]):
        total += held
        if chosen and total > MATCHES_MAX:
            break
        chosen.append(term)
    bindings: dict[str, str | int | None] = {
        "match": " OR ".join(f'"{term}"' for term in chosen),
        "partitions": json_text(asked.partitions),
        "at_ms": asked.query.at_ms,
        "count": count,
    }
    return fetch(connection, _MATCHES, bindings) if chosen else []


def _said_then(connection: apsw.Connection, asked: _Asked) -> list[int]:
    """Returns items of the time that the question names, the closest first. Their words often do not name it."""
    if asked.question.period is None:
        return []
    spans = days_of(asked.question.period, *fetch(connection, _DAYS)[0])
    bindings: dict[str, str | int | None] = {
        "spans": json_text(spans),
        "partitions": json_text(asked.partitions),
        "speakers": json_text(sorted(asked.question.speakers)),
        "at_ms": asked.query.at_ms,
        "count": SAID_THEN_MAX,
    }
    numbers = [number for (number,) in fetch(connection, _SAID_THEN, bindings)]
    close = measure_vectors(connection, asked.vector, numbers) if asked.vector is not None else {}
    return sorted(numbers, key=lambda number: -close.get(number, 0.0))[:EACH_BRANCH]


def _neighbours(connection: apsw.Connection, numbers: Sequence[int]) -> dict[int, tuple[int | None, ...]]:
    """Returns of each item in a conversation the two before and the two after it, the nearest first."""
    return {row[0]: tuple(row[1:]) for row in fetch(connection, _NEIGHBOURS, (json_text(list(numbers)),))}


def _candidate(
    row: tuple[Any, ...], text: float | None, vector: float | None, near: tuple[int | None, ...]
) -> MemoryCandidate:
    number, content, speaker, thread, said_from_ms, said_until_ms, pairs = row
    words = (pairs or content)[:COMPARED_CHARS_MAX]
    return MemoryCandidate(
        row=number,
        content=words,
        word_count=words.count(" ") + 1,
        text=text,
        vector=vector,
        speaker=speaker,
        in_conversation=thread is not None,
        said=Period(said_from_ms, said_until_ms) if said_from_ms is not None else None,
        before=tuple(one for one in near[:2] if one is not None),
        after=tuple(one for one in near[2:] if one is not None),
    )


def _compare_words(
    connection: apsw.Connection,
    candidates: Sequence[MemoryCandidate],
    rarities: dict[str, tuple[float, int]],
    meanings: WordMeanings | None,
) -> bool:
    """Measures words by their meaning; those of one stem have much of it. Returns whether that could be done."""
    if meanings is None or not candidates or not rarities:
        return False
    weights = [weight for weight, _ in rarities.values()]
    total = sum(weights)
    texts = [plain_words(one.content) for one in candidates]
    try:
        closeness = meanings.closest(list(rarities), texts)
    except Unavailable:
        return False
    asked = [_stem(connection, term) for term in rarities]
    for candidate, words, close in zip(candidates, texts, closeness, strict=True):
        held = {_stem(connection, word) for word in words}
        shares = (max(share, STEM_SHARE) if stem in held else share for stem, share in zip(asked, close, strict=True))
        candidate.meaning = sum(weight * share for weight, share in zip(weights, shares, strict=True)) / total
    return True


def _stem(connection: apsw.Connection, word: str) -> str:
    """Returns a word as the index has it. Splitting it anew for each question would take longer than all the rest."""
    stem = _known_stems.get(word)
    if stem is None:
        if len(_known_stems) >= STEMS_KEPT_MAX:
            _known_stems.clear()
        stem = _known_stems[word] = " ".join(_stems(connection, word))
    return stem


def _compare_stems(
    connection: apsw.Connection, candidates: Sequence[MemoryCandidate], rarities: dict[str, tuple[float, int]]
) -> None:
    """Measures words that are the same but for their endings. BM25 alone says nothing where there are few items."""
    total = sum(weight for weight, _ in rarities.values())
    asked = [(weight, set(_stems(connection, term))) for term, (weight, _) in rarities.items()]
    for candidate in candidates:
        held = set(_stems(connection, candidate.content))
        candidate.meaning = sum(weight for weight, stems in asked if stems and stems <= held) / total if total else 0.0


def _stems(connection: apsw.Connection, text: str) -> list[str]:
    """Returns the words of a text as the index has them."""
    tokenize = connection.fts5_tokenizer("porter", ["unicode61", "remove_diacritics", "2"])
    found = tokenize(text.encode(), apsw.FTS5_TOKENIZE_QUERY, None, include_offsets=False, include_colocated=False)
    return [str(stem) for stem in found]


def _hits(connection: apsw.Connection, query: MemoryQuery, ranked: Sequence[RankedItem]) -> tuple[MemoryHit, ...]:
    bindings: dict[str, str | int | None] = {"numbers": json_text([one.row for one in ranked]), "owner": query.owner}
    items = {number: read_item(cells) for number, *cells in fetch(connection, _ITEMS, bindings)}
    return tuple([MemoryHit(item=items[one.row], score=one.score, why=one.why) for one in ranked if one.row in items])


def _unembedded(connection: apsw.Connection, version: str, but_for: str, limit: int) -> tuple[UnembeddedItem, ...]:
    """Returns those below the version, then those above it, because an index finds both."""
    found = _pending(connection, "<", version, (but_for, limit))
    if len(found) == limit:
        return found
    return (*found, *_pending(connection, ">", version, (but_for, limit - len(found))))


def _pending(
    connection: apsw.Connection, side: str, version: str, chosen: tuple[str, int]
) -> tuple[UnembeddedItem, ...]:
    """`chosen` are the owners to leave out, as JSON, and how many items are wanted."""
    found = fetch(connection, _PENDING.format(side), (version, *chosen))
    return tuple([UnembeddedItem(number, Principal(owner), content) for number, owner, content in found])
