"""Erasing text from tapes. Owns: what may be erased, overwriting the bytes, and putting it on record, in one transaction.

Invariants: seq, hash and digest of an erased event stay, so its tape still verifies; the tape's projection rows are folded
again from what is left, so they hold no copy; its words leave the index. Not: choosing what to erase, nor the files of artifacts.
"""

from collections.abc import Sequence

import apsw
import msgspec

from palyra.adapters.store.commit_preparation import prepare_append
from palyra.adapters.store.sqlite.connection import fetch
from palyra.adapters.store.sqlite.lookup import load_head
from palyra.adapters.store.sqlite.recorder import Recorder
from palyra.adapters.store.sqlite.refold import replace_rows
from palyra.adapters.store.sqlite.search_index import drop_texts, scrub_index
from palyra.core.commit.model import Commit
from palyra.core.erasure import as_ranges
from palyra.core.errors import Conflict, Invalid, NotFound
from palyra.core.events import Draft, Event
from palyra.core.events.codec import encode_erased
from palyra.core.events.system import Erased
from palyra.core.ids import StreamId, is_system_stream
from palyra.core.trust import Trust
from palyra.ports.journal import Erasure

RANGES_MAX = 4_000  # About 50 bytes a range: the record of an erasure stays under the cap of an event.
REASON_LENGTH_MAX = 200  # A reason is a word or a sentence, and it stays for ever.


def erase(recorder: Recorder, tape: StreamId, erasures: Sequence[Erasure]) -> tuple[Event, ...]:
    """Overwrites what is named and records it on the system tape `tape`; what was erased before is passed over."""
    whole = frozenset(erasure.stream for erasure in erasures if erasure.seqs is None)
    with recorder.transaction() as connection:
        for erasure in erasures:
            _require_erasable(connection, erasure, whole)
        words = drop_texts(connection, _indexed(connection, erasures))
        drafts = [draft for erasure in erasures for draft in _erase_one(connection, erasure)]
        scrub_index(connection, words)
        append = prepare_append(tape, load_head(connection, tape).seq, drafts)
        events = recorder.record(Commit((append,)))
    recorder.forget()
    recorder.empty_log()
    return events


def _require_erasable(connection: apsw.Connection, erasure: Erasure, whole: frozenset[StreamId]) -> None:
    stream = erasure.stream
    if is_system_stream(stream):
        raise Invalid(
            "system_tape", f"{stream} is a system tape, which holds the record of erasures and is never erased"
        )
    if not 0 < len(erasure.reason) <= REASON_LENGTH_MAX:
        raise Invalid("reason_invalid", f"an erasure needs a reason of at most {REASON_LENGTH_MAX} characters")
    head = load_head(connection, stream)
    if head.seq == 0:
        raise NotFound("session_unknown", f"there is no tape {stream}")
    if erasure.seqs is not None and any(not 1 <= seq <= head.seq for seq in erasure.seqs):
        raise Invalid("seq_unknown", f"tape {stream} has seqs 1 to {head.seq}, and others were to be erased")
    _require_idle(connection, stream)
    _require_no_branch_left(connection, erasure, whole)


def _require_idle(connection: apsw.Connection, stream: StreamId) -> None:
    sql = "SELECT id FROM runs INDEXED BY runs_unfinished WHERE ended_seq IS NULL AND session_id = ? LIMIT 1"
    run_id = connection.execute(sql, (stream,)).get
    if run_id is not None:
        raise Conflict("run_active", f"run {run_id} of session {stream} has not ended; cancel it or wait, then erase")


def _require_no_branch_left(connection: apsw.Connection, erasure: Erasure, whole: frozenset[StreamId]) -> None:
    """A branch's history is its parent's up to where it left; that part goes only together with the branch."""
    sql = "SELECT id, parent_seq FROM sessions WHERE parent_id = ?"
    for branch, parent_seq in fetch(connection, sql, (erasure.stream,)):
        is_shared = erasure.seqs is None or min(erasure.seqs, default=parent_seq + 1) <= parent_seq
        if is_shared and branch not in whole:
            message = f"session {branch} branches off {erasure.stream}; erase it whole in the same call, or keep both"
            raise Conflict("has_branches", message)


def _indexed(connection: apsw.Connection, erasures: Sequence[Erasure]) -> list[int]:
    """Positions of the texts that the index of words has, each once however often it is named."""
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
        _drop_state(connection, erasure.stream)
    else:
        _unlink_unnamed(connection, erasure.stream, linked)
    if not seqs:
        return []
    replace_rows(connection, erasure.stream)
    ranges = as_ranges(seqs)
    chunks = [ranges[start : start + RANGES_MAX] for start in range(0, len(ranges), RANGES_MAX)]
    return [
        Draft(
            data=Erased(stream=erasure.stream, ranges=chunk, reason=erasure.reason),
            actor=erasure.actor,
            trust=Trust.SYSTEM,
            at_ms=erasure.at_ms,
        )
        for chunk in chunks
    ]


def _overwrite(connection: apsw.Connection, erasure: Erasure) -> list[int]:
    """The seqs that held text until now.

    Zeros of the same length come first: SQLite writes those over the old bytes in place, while a shorter value may move
    cells between pages and leave copies of them in the gaps.
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
    """Artifacts of the tape that the events to be erased name."""
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
    """A body that only erased events named goes with them; one that another event still names stays."""
    sql = """
        DELETE FROM artifact_links WHERE artifact_id = :artifact AND stream = :stream AND NOT EXISTS (
            SELECT 1 FROM events WHERE tape_id = (SELECT id FROM tapes WHERE stream = :stream)
              AND instr(CAST(data AS TEXT), :artifact)
        )
    """
    connection.executemany(sql, [{"artifact": artifact, "stream": stream} for artifact in artifacts])


def _drop_state(connection: apsw.Connection, stream: StreamId) -> None:
    of_its_runs = "DELETE FROM sealed_secrets WHERE run_id IN (SELECT id FROM runs WHERE session_id = ?)"
    connection.execute(of_its_runs, (stream,))
    connection.execute("DELETE FROM artifact_links WHERE stream = ?", (stream,))
