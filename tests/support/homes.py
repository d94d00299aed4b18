"""Homes on disk for tests: real keys and a real journal, which a test can damage from outside."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec

from palyra.adapters.artifacts.files import FileArtifacts
from palyra.adapters.keys.signer import FileSigner
from palyra.adapters.store.sqlite.connection import JournalSettings
from palyra.adapters.store.sqlite.journal import SqliteJournal, open_journal
from palyra.app import Home
from palyra.core.attestation import hash_input, hash_output, sign_bytes
from palyra.core.checkpoint import key_id
from palyra.core.events import Draft
from palyra.core.events.tool import Attestation, Outcome, ToolFinished, ToolProposed, ToolStarted
from palyra.core.ids import RunId, SessionId, StreamId, derive_effect_id, derive_node_id, make_call_id, system_stream
from palyra.core.writes import LinkArtifact
from palyra.ports.journal import Append
from palyra.ports.signer import Signer
from tests.support.journals import (
    START_MS,
    FixedClock,
    Ids,
    approval_requested,
    attested,
    draft,
    run_accepted,
    run_cycle,
    run_done,
    run_started,
    session_branched,
    session_created,
)

ARTIFACT = b"a long listing\n" * 1000


class TestHome:
    """A home with four sessions, signed and closed: two plain ones, a branch of the first, and one with an artifact."""

    __test__ = False

    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        root.mkdir(mode=0o700)
        self.signer = FileSigner(self.home.signing_key, self.home.public_keys)
        self.system = system_stream(derive_node_id(self.signer.public_key))
        ids = Ids()
        self.first, self.second, self.branch, self.attested = (ids.session() for _ in range(4))
        self.ids = ids

    def fill(self) -> "TestHome":
        self.run(self._fill)
        return self

    def run(self, act: Callable[[SqliteJournal], Awaitable[object]]) -> None:
        """Opens the journal, acts, and closes it, which signs a checkpoint."""
        asyncio.run(self._run(act))

    def append_run(self, session: SessionId) -> None:
        async def append(journal: SqliteJournal) -> None:
            head = await journal.head(session)
            assert head is not None
            await journal.commit([Append(session, head.seq, tuple(self.cycle()))])

        self.run(append)

    def spoil(self, sql: str, *bindings: object) -> None:
        """Changes the file without the journal's knowledge."""
        connection = apsw.Connection(str(self.home.journal))
        try:
            connection.execute(sql, bindings)
            assert connection.changes() > 0, "nothing was spoiled"
        finally:
            connection.close()

    def ask(self, sql: str, *bindings: object) -> Any:
        connection = apsw.Connection(str(self.home.journal))
        try:
            return connection.execute(sql, bindings).get
        finally:
            connection.close()

    def event(self, stream: StreamId, seq: int) -> str:
        """Returns the SQL condition that finds one event."""
        return f"{self.tape(stream)} AND seq = {seq}"

    def tape(self, stream: StreamId) -> str:
        """Returns the SQL condition that finds all events of a tape."""
        return f"tape_id = (SELECT id FROM tapes WHERE stream = '{stream}')"

    def copy_to(self, root: Path) -> "TestHome":
        """Copies the home, so that a test can damage the copy."""
        shutil.copytree(self.home.root, root)
        copy = TestHome.__new__(TestHome)
        copy.__dict__.update(self.__dict__)
        copy.home = Home(root)
        copy.signer = FileSigner(copy.home.signing_key, copy.home.public_keys)
        return copy

    async def _run(self, act: Callable[[SqliteJournal], Awaitable[object]]) -> None:
        journal = open_journal(JournalSettings(path=self.home.journal), self.signer, FixedClock())
        try:
            await act(journal)
        finally:
            await journal.close()

    def cycle(self) -> Sequence[Draft]:
        """Returns the events of one run, attested by this home's key."""
        return attested(run_cycle(self.ids.run()), self.signer)

    async def _fill(self, journal: SqliteJournal) -> None:
        await journal.checkpoint()
        for session in (self.first, self.second):
            created = session_created(key=f"key-{session[-2:]}", label="private label")
            await journal.commit([Append(session, 0, (created, *self.cycle()))])
        await journal.checkpoint()
        waiting = self.ids.run()
        opening = (run_accepted(waiting), run_started(waiting), approval_requested(waiting), run_done(waiting))
        await journal.commit([Append(self.second, 14, opening)])
        origin = (await journal.read(self.first, 4, 1))[0]
        await journal.commit([Append(self.branch, 0, (session_branched(origin), *self.cycle()))])
        artifact = await FileArtifacts(self.home.artifacts).put(ARTIFACT)
        run = self.ids.run()
        drafts = (session_created(), *attested_call(self.signer, run, artifact))
        link = LinkArtifact(artifact, self.attested, len(ARTIFACT), "text/plain", START_MS)
        await journal.commit([Append(self.attested, 0, drafts)], [link])


def attested_call(signer: Signer, run: RunId, artifact: str) -> tuple[Draft, ...]:
    """Returns six events: a run with one attested call, the fifth, whose output is an artifact."""
    arguments: dict[str, object] = {"command": "ls -R", "timeout_s": 2.5}
    call = make_call_id(run, 1)
    effect = derive_effect_id(run, 1, "shell.run", arguments)
    finished = ToolFinished(
        call_id=call, effect_id=effect, outcome=Outcome.OK, error=None, attestation=None, artifact_id=artifact
    )
    attestation = Attestation(
        key_id=key_id(signer.public_key),
        runtime="shell",
        sandbox="bubblewrap",
        started_at_ms=START_MS,
        finished_at_ms=START_MS + 20,
        input_sha256=hash_input(arguments),
        output_sha256=hash_output(finished),
        signature="",
    )
    signature = signer.sign(sign_bytes("shell.run", finished, attestation)).hex()
    signed = msgspec.structs.replace(finished, attestation=msgspec.structs.replace(attestation, signature=signature))
    middle = (
        ToolProposed(call_id=call, tool="shell.run", arguments=arguments),
        ToolStarted(call_id=call, effect_id=effect),
        signed,
    )
    return (run_accepted(run), run_started(run), *(draft(data, run) for data in middle), run_done(run))
