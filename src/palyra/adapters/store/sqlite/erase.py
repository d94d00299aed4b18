"""Erases text from tapes, in one transaction.

Owns: overwriting the bytes. Does not own: what may be erased (erasure_rules).
Invariants: seq, hash and digest of an erased event stay, so its tape still verifies. The tape's projection rows are
folded again from what is left, so they hold no copy. Its words leave the index. Its state rows are deleted if the whole
tape is erased.
"""

from collections.abc import Sequence

import apsw
import msgspec

from palyra.adapters.store.commit_preparation import prepare_append
from palyra.adapters.store.erasure_rules import TapeFacts, draft_erasure, require_erasable
from palyra.adapters.store.sqlite.connection import fetch
from palyra.adapters.store.sqlite.lookup import load_head
from palyra.adapters.store.sqlite.recorder import Recorder
from palyra.adapters.store.sqlite.refold import replace_rows
from palyra.adapters.store.sqlite.search_index import drop_texts, scrub_index
from palyra.adapters.store.sqlite.state_writes import drop_state
from palyra.core.commit.model import Commit
from palyra.core.events import Draft, Event
from palyra.core.events.codec import encode_erased
from palyra.core.ids import StreamId
from palyra.ports.journal import Erasure


def erase(recorder: Recorder, tape: StreamId, erasures: Sequence[Erasure]) -> tuple[Event, ...]:
    """Overwrites what is named and records it on the system tape `tape`. Events that were erased before are skipped."""
    whole = frozenset(erasure.stream for erasure in erasures if erasure.seqs is None)
    with recorder.transaction() as connection:
        for erasure in erasures:
            require_erasable(erasure, _tape_facts(connection, erasure.stream), whole)
        words = drop_texts(connection, _indexed(connection, erasures))
        drafts = [draft for erasure in erasures for draft in _erase_one(connection, erasure)]
        scrub_index(connection, words)
        append = prepare_append(tape, load_head(connection, tape).seq, drafts)
        events = recorder.record(Commit((append,)))
    recorder.forget()
    recorder.empty_log()
    return events


def _tape_facts(connection: apsw.Connection, stream: StreamId) -> TapeFacts:
    unfinished = "SELECT id FROM runs INDEXED BY runs_unfinished WHERE ended_seq IS NULL AND session_id = ? LIMIT 1"
    branches = fetch(connection, "SELECT id, parent_seq FROM sessions WHERE parent_id = ?", (stream,))
    return TapeFacts(
        head_seq=load_head(connection, stream).seq,
        unfinished_run=connection.execute(unfinished, (stream,)).get,
        branches=tuple([(branch, parent_seq) for branch, parent_seq in branches]),
        used_at_ms=connection.execute("SELECT updated_at_ms FROM sessions WHERE id = ?", (stream,)).get or 0,
    )


def _indexed(connection: apsw.Connection, erasures: Sequence[Erasure]) -> list[int]:
    """Returns the positions of the texts in the index of words, each once however often it is named."""
    sql = """
        SELECT search_texts.position FROM search_texts JOIN events ON events.position = search_texts.position
        WHERE events.tape_id = (SELECT id FROM tapes WHERE stream = :stream)
          AND (:seqs IS NULL OR events.seq IN (SELECT value FROM json_each(:seqs)))
    """
    found = {position for erasure in erasures for (position,) in fetch(connection, sql, _named(erasure))}
    return sorted(found)


def _named(erasure: Erasure) -> dict[str, str | int | None]:
    seqs = None if erasure.seqs is None else msgspec.json.encode(erasure.seqs).decode()
    return {"stream": erasure.stream, "seqs": seqs}


def _erase_one(connection: apsw.Connection, erasure: Erasure) -> list[Draft]:
    linked = _linked_artifacts(connection, erasure)
    seqs = _overwrite(connection, erasure)
    if erasure.seqs is None:
        drop_state(connection, erasure.stream)
    else:
        _unlink_unnamed(connection, erasure.stream, linked)
    if seqs:
        replace_rows(connection, erasure.stream)
    return draft_erasure(erasure, seqs)


def _overwrite(connection: apsw.Connection, erasure: Erasure) -> list[int]:
    """Overwrites the texts and returns the seqs that held text until now.

    Zeros of the same length come first, because SQLite writes those over the old bytes in place. A shorter value may
    move cells between pages and leave copies of them in the gaps.
    """
    find = """
        SELECT position, seq FROM events
        WHERE tape_id = (SELECT id FROM tapes WHERE stream = :stream) AND salt IS NOT NULL
          AND (:seqs IS NULL OR seq IN (SELECT value FROM json_each(:seqs)))
    """
    found = fetch(connection, find, _named(erasure))
    positions = [(position,) for position, _ in found]
    blank = "UPDATE events SET data = zeroblob(length(data)), salt = zeroblob(length(salt)) WHERE position = ?"
    connection.executemany(blank, positions)
    erased = encode_erased(erasure.reason)
    shorten = "UPDATE events SET data = ?, salt = NULL WHERE position = ?"
    connection.executemany(shorten, [(erased, position) for (position,) in positions])
    return [seq for _, seq in found]


def _linked_artifacts(connection: apsw.Connection, erasure: Erasure) -> list[str]:
    """Returns the artifacts of the tape that the events to be erased name."""
    sql = """
        SELECT DISTINCT artifact_links.artifact_id FROM artifact_links, events
        WHERE artifact_links.stream = :stream
          AND events.tape_id = (SELECT id FROM tapes WHERE stream = :stream)
          AND events.seq IN (SELECT value FROM json_each(:seqs))
          AND instr(CAST(events.data AS TEXT), artifact_links.artifact_id)
    """
    seqs = msgspec.json.encode(erasure.seqs or ()).decode()
    return [artifact_id for (artifact_id,) in fetch(connection, sql, {"stream": erasure.stream, "seqs": seqs})]


def _unlink_unnamed(connection: apsw.Connection, stream: StreamId, artifacts: list[str]) -> None:
    """Unlinks the artifacts that only erased events named. One that another event still names stays."""
    sql = """
        DELETE FROM artifact_links WHERE artifact_id = :artifact AND stream = :stream AND NOT EXISTS (
            SELECT 1 FROM events WHERE tape_id = (SELECT id FROM tapes WHERE stream = :stream)
              AND instr(CAST(data AS TEXT), :artifact)
        )
    """
    connection.executemany(sql, [{"artifact": artifact, "stream": stream} for artifact in artifacts])
