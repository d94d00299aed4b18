"""Signs checkpoints of this node: finds the heads that changed since the last one.

Does not own: their signature (checkpoint_drafts).
The journal itself is asked by position what changed. Nothing is remembered, so the answer is right after a crash too.
"""

from collections.abc import Sequence

import apsw

from palyra.adapters.store.checkpoint_drafts import ACTOR, draft_checkpoints, read_checkpoint
from palyra.adapters.store.commit_preparation import prepare_append
from palyra.adapters.store.sqlite.connection import fetch
from palyra.adapters.store.sqlite.lookup import load_head
from palyra.adapters.store.sqlite.recorder import Recorder
from palyra.core.checkpoint import Anchor, anchor_of, checkpoint_hash, key_id
from palyra.core.commit.model import Commit
from palyra.core.errors import Corrupt, PalyraError
from palyra.core.events import Draft, Event
from palyra.core.events.system import AdminActed, CheckpointSigned, Head
from palyra.core.events.tool import ToolFinished
from palyra.core.ids import StreamId, derive_node_id, system_stream
from palyra.core.trust import Trust
from palyra.ports.signer import Signer

HEAD_ACCEPTED = "journal.head_accepted"


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
    accepted = () if last is None else _accept_head(recorder, signer, tape, last, at_ms)
    if last is not None and not _has_changed(connection, tape, since):
        _note_head(signer, last, at_ms)
        return ()
    heads = _changed_heads(connection, tape, since)
    drafts = draft_checkpoints(signer, last, recorder.cache.numbers().position, heads, at_ms)
    signed = _record(recorder, tape, drafts)
    newest = signed[-1].data
    if isinstance(newest, CheckpointSigned):
        _note_head(signer, newest, at_ms)
    return (*accepted, *signed)


def _record(recorder: Recorder, tape: StreamId, drafts: Sequence[Draft]) -> tuple[Event, ...]:
    append = prepare_append(tape, load_head(recorder.connection, tape).seq, drafts)
    outcome = recorder.commit_group((Commit((append,)),))[0]
    if isinstance(outcome, PalyraError):
        raise outcome
    return outcome


def _accept_head(
    recorder: Recorder, signer: Signer, tape: StreamId, last: CheckpointSigned, at_ms: int
) -> tuple[Event, ...]:
    """Requires the newest checkpoint that the key is known to have signed.

    If that was given up, or an earlier release did not note it, going on from `last` is recorded.
    """
    head = signer.head()
    if head is not None:
        _require_checkpoint(recorder.connection, tape, head, last)
        return ()
    if not signer.has_begun():
        return ()
    act = AdminActed(
        action=HEAD_ACCEPTED, target=tape, detail=f"goes on from the checkpoint at position {last.position}"
    )
    return _record(recorder, tape, (Draft(data=act, actor=ACTOR, trust=Trust.SYSTEM, at_ms=at_ms),))


def _require_checkpoint(connection: apsw.Connection, tape: StreamId, head: Anchor, last: CheckpointSigned) -> None:
    if head.checkpoint == checkpoint_hash(last):
        return
    sql = """
        SELECT events.data FROM tapes JOIN events ON events.tape_id = tapes.id
        WHERE tapes.stream = ? AND events.type = ? ORDER BY events.seq DESC
    """
    for (data,) in connection.execute(sql, (tape, CheckpointSigned.TYPE)):
        checkpoint = read_checkpoint(tape, data)
        if checkpoint.position < head.position:
            break
        if checkpoint_hash(checkpoint) == head.checkpoint:
            return
    message = (
        f"the journal is older than this node knows: the checkpoint at position {head.position} is not in it "
        f"({tape}). Restore a backup, or put the newer journal back. If the loss is known, run palyra verify --accept-loss"
    )
    raise Corrupt("journal_set_back", message)


def _note_head(signer: Signer, newest: CheckpointSigned, at_ms: int) -> None:
    """The checkpoint is durable. A crash before this line leaves an older head, which is sound."""
    head = signer.head()
    if head is None or head.checkpoint != checkpoint_hash(newest):
        signer.note_head(anchor_of(newest, at_ms))


def last_signed_at_ms(connection: apsw.Connection, tape: StreamId) -> int:
    sql = """
        SELECT events.at_ms FROM tapes JOIN events ON events.tape_id = tapes.id
        WHERE tapes.stream = ? AND events.type = ? ORDER BY events.seq DESC LIMIT 1
    """
    return connection.execute(sql, (tape, CheckpointSigned.TYPE)).get or 0


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
