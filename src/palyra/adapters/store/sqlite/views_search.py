"""The query for messages by words, behind ports.search.MessageSearch. Does not own: what is indexed (search_index)."""

import apsw

from palyra.adapters.store.sqlite.connection import fetch, page_limit
from palyra.adapters.store.sqlite.reads import Reads
from palyra.core.ids import Principal, SessionId, StreamId
from palyra.core.trust import Trust
from palyra.ports.search import SearchHit, SearchQuery

# Limits the newest matches of a principal that are ranked: a word that is everywhere stays answerable.
RANKED_MAX = 20_000
EXCERPT_WORDS = 40

# The owner is part of the inner query, so that only one principal's matches are ranked and counted (L11). Excerpts are
# made of the best only: making one reads the text.
_SEARCH = f"""
    WITH own AS (
        SELECT search.rowid AS position, bm25(search) AS score
        FROM search
        CROSS JOIN events ON events.position = search.rowid
        CROSS JOIN tapes ON tapes.id = events.tape_id
        CROSS JOIN sessions ON sessions.id = tapes.stream
        WHERE search MATCH :match AND sessions.owner = :owner AND sessions.purpose IS NULL
        ORDER BY search.rowid DESC LIMIT {RANKED_MAX}
    ), best AS (SELECT position, score FROM own ORDER BY score, position DESC LIMIT :limit)
    SELECT tapes.stream, sessions.label, events.seq, events.type, events.actor, events.at_ms, events.trust,
           snippet(search, 0, '', '', '…', {EXCERPT_WORDS})
    FROM best
    CROSS JOIN search ON search.rowid = best.position
    CROSS JOIN events ON events.position = best.position
    CROSS JOIN tapes ON tapes.id = events.tape_id
    CROSS JOIN sessions ON sessions.id = tapes.stream
    WHERE search MATCH :match
    ORDER BY best.score, best.position DESC
"""  # noqa: S608 - our numbers


class SqliteSearch:
    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    async def search(self, query: SearchQuery) -> tuple[SearchHit, ...]:
        return await self._reads.ask(lambda connection: _hits(connection, query))


def _hits(connection: apsw.Connection, query: SearchQuery) -> tuple[SearchHit, ...]:
    bindings: dict[str, str | int | None] = {
        "match": query.match,
        "owner": query.principal,
        "limit": page_limit(query.limit),
    }
    return tuple(
        [
            SearchHit(
                session_id=SessionId(StreamId(stream)),
                label=label,
                seq=seq,
                type=type_name,
                actor=Principal(actor),
                at_ms=at_ms,
                trust=Trust(trust),
                excerpt=excerpt,
            )
            for stream, label, seq, type_name, actor, at_ms, trust, excerpt in fetch(connection, _SEARCH, bindings)
        ]
    )
