"""Replays one run of the journal offline.

Owns: finding the run and folding it again.
Does not own: the rules it is checked against (core.run).
"""

from collections.abc import Iterator

from palyra.app import Home, open_archive
from palyra.core.errors import Corrupt, NotFound
from palyra.core.events import Event
from palyra.core.ids import RunId, StreamId
from palyra.core.run.replay import Replayed, replay
from palyra.core.verification.evidence import Evidence
from palyra.core.verification.tape import TapeCheck


def replay_run(home: Home, run_id: RunId) -> tuple[StreamId, Replayed]:
    """Returns the run's tape and the result of folding it again. A daemon may be running."""
    from palyra.app import open_public_keys

    with open_archive(home) as archive:
        evidence = archive.evidence(open_public_keys(home.public_keys))
        stream = _find_stream(evidence, run_id)
        return stream, replay(_events(evidence, stream, run_id))


def _find_stream(evidence: Evidence, run_id: RunId) -> StreamId:
    for stream in evidence.streams():
        rows = (row for row in evidence.rows(stream) if row.table == "runs")
        if any(row.values.get("id") == run_id for row in rows):
            return stream
    raise NotFound("run_unknown", f"the journal has no run {run_id}")


def _events(evidence: Evidence, stream: StreamId, run_id: RunId) -> Iterator[Event]:
    """Yields only events whose chain and data hold, because a replay of altered events would prove nothing."""
    check = TapeCheck(stream, None)
    for stored in evidence.events(stream):
        checked = check.check(stored)
        if checked.findings or checked.event is None:
            raise Corrupt("tape_damaged", f"{checked.findings[0]}; palyra verify shows everything")
        if checked.event.run_id == run_id:
            yield checked.event
