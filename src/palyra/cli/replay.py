"""Replays one run of the journal offline.

Owns: finding the run and folding it again.
Does not own: the rules it is checked against (core.run).
"""

from collections.abc import Iterator

from palyra.app import Home, open_archive
from palyra.cli.lookup import choose_run
from palyra.core.errors import Corrupt
from palyra.core.events import Event
from palyra.core.ids import RunId, StreamId
from palyra.core.run.replay import Replayed, replay
from palyra.core.verification.evidence import Evidence
from palyra.core.verification.tape import TapeCheck


def replay_run(home: Home, run: str) -> tuple[StreamId, Replayed]:
    """Returns the run's tape and the result of folding it again. `run` is an id, its beginning, or `last`.

    A daemon may be running.
    """
    from palyra.app import open_public_keys

    with open_archive(home) as archive:
        evidence = archive.evidence(open_public_keys(home.public_keys))
        streams = _streams_of_runs(evidence)
        run_id = RunId(choose_run([{"id": each} for each in streams], run))
        return streams[run_id], replay(_events(evidence, streams[run_id], run_id))


def _streams_of_runs(evidence: Evidence) -> dict[RunId, StreamId]:
    """Returns each run's tape. Runs of the daemon itself and delegated ones are found by their ids too."""
    rows = ((row, stream) for stream in evidence.streams() for row in evidence.rows(stream))
    return {RunId(str(row.values["id"])): stream for row, stream in rows if row.table == "runs"}


def _events(evidence: Evidence, stream: StreamId, run_id: RunId) -> Iterator[Event]:
    """Yields only events whose chain and data hold, because a replay of altered events would prove nothing."""
    check = TapeCheck(stream, None)
    for stored in evidence.events(stream):
        checked = check.check(stored)
        if checked.findings or checked.event is None:
            raise Corrupt("tape_damaged", f"{checked.findings[0]}; palyra verify shows everything")
        if checked.event.run_id == run_id:
            yield checked.event
