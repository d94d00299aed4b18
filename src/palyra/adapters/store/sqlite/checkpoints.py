"""Signs checkpoints of this node: finds the heads that changed since the last one.

Does not own: their signature (checkpoint_drafts).
The journal itself is asked by position what changed. Nothing is remembered, so the answer is right after a crash too.
"""

import apsw

from palyra.adapters.store.checkpoint_drafts import draft_checkpoints, read_checkpoint
from palyra.adapters.store.commit_preparation import prepare_append
from palyra.adapters.store.sqlite.connection import fetch
from palyra.adapters.store.sqlite.lookup import load_head
from palyra.adapters.store.sqlite.recorder import Recorder
from palyra.core.checkpoint import key_id
from palyra.core.commit.model import Commit
from palyra.core.errors import Corrupt, PalyraError
from palyra.core.events import Event
from palyra.core.events.system import CheckpointSigned, Head
from palyra.core.events.tool import ToolFinished
from palyra.core.ids import StreamId, derive_node_id, system_stream
from palyra.ports.signer import Signer


def sign_heads(recorder: Recorder, signer: Signer, at_ms: int) -> tuple[Event, ...]:
    """Appends the checkpoint, in as many events as its heads need; none if only checkpoints came since the last.

    The first one of a node may have no heads: it begins the tape before anything else is recorded.
    """
    connection = recorder.connection
    tape = system_stream(derive_node_id(signer.public_key))
    last = _last_checkpoint(connection, tape)
    if last is None:
        _require_new(connection, tape, signer)
    since = last.position if last is not None else 0
    if last is not None and not _has_changed(connection, tape, since):
        return ()
    heads = _changed_heads(connection, tape, since)
    drafts = draft_checkpoints(signer, last, recorder.cache.numbers().position, heads, at_ms)
    append = prepare_append(tape, load_head(connection, tape).seq, drafts)
    outcome = recorder.commit_group((Commit((append,)),))[0]
    if isinstance(outcome, PalyraError):
        raise outcome
    if last is None:
        signer.note_begun()
    return outcome


def _require_new(connection: apsw.Connection, tape: StreamId, signer: Signer) -> None:
    """Refuses to begin a tape of checkpoints with a key that has signed before: somebody took its tape away."""
    sql = "SELECT 1 FROM events WHERE type = ? AND instr(data, ?) > 0 LIMIT 1"
    attested = (ToolFinished.TYPE, key_id(signer.public_key).encode())
    if signer.has_begun() or connection.execute(sql, attested).fetchone() is not None:
        message = (
            f"the journal has no checkpoint of this node, whose key has signed before ({tape}): it was removed or "
            "replaced. Run palyra verify, and restore a backup. To begin anew, move signing.key and keys/ away"
        )
        raise Corrupt("checkpoints_gone", message)


def _last_checkpoint(connection: apsw.Connection, tape: StreamId) -> CheckpointSigned | None:
    sql = """
        SELECT events.data FROM tapes JOIN events ON events.tape_id = tapes.id
        WHERE tapes.stream = ? AND events.type = ? ORDER BY events.seq DESC LIMIT 1
    """
    found = connection.execute(sql, (tape, CheckpointSigned.TYPE)).fetchone()
    return None if found is None else read_checkpoint(tape, found[0])


def _has_changed(connection: apsw.Connection, tape: StreamId, since: int) -> bool:
    """Tells whether anything changed. A checkpoint is not itself a change, or each would call for the next."""
    sql = """
        SELECT 1 FROM events WHERE position > ?
        AND NOT (type = ? AND tape_id = (SELECT id FROM tapes WHERE stream = ?)) LIMIT 1
    """
    return connection.execute(sql, (since, CheckpointSigned.TYPE, tape)).fetchone() is not None


def _changed_heads(connection: apsw.Connection, tape: StreamId, since: int) -> tuple[Head, ...]:
    """Returns the heads of the tapes with events since, and always of our own tape.

    That tape holds the erasures and the checkpoint before.
    """
    sql = """
        WITH changed (tape_id, seq) AS (
            SELECT tape_id, max(seq) FROM events WHERE position > :since GROUP BY tape_id
            UNION
            SELECT tape_id, max(seq) FROM events
            WHERE tape_id = (SELECT id FROM tapes WHERE stream = :tape) GROUP BY tape_id
        )
        SELECT tapes.stream, events.seq, events.hash
        FROM changed
        JOIN tapes ON tapes.id = changed.tape_id
        JOIN events ON events.tape_id = changed.tape_id AND events.seq = changed.seq
        ORDER BY tapes.stream
    """
    rows = fetch(connection, sql, {"since": since, "tape": tape})
    return tuple([Head(stream=stream, seq=seq, hash=event_hash.hex()) for stream, seq, event_hash in rows])
