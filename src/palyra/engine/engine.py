"""The engine: its start and its end.

Owns: resuming at the start, draining, signing checkpoints.
Does not own: adapters (app), how its parts are built (composition), rules (core).
"""

import asyncio

import structlog

from palyra.core.checkpoint import Anchor, anchor_of
from palyra.core.errors import PalyraError, Unavailable
from palyra.core.events.system import AdminActed, CheckpointSigned
from palyra.core.ids import Principal
from palyra.engine.composition import build_parts
from palyra.engine.services import Services, Verify
from palyra.engine.session.session_loop import JOURNAL_CLOSED
from palyra.engine.setup import EngineSetup

CHECKPOINT_EVERY_S = 5.0

log = structlog.get_logger()


class Engine(Services):
    def __init__(self, setup: EngineSetup, verify: Verify) -> None:
        self._setup = setup
        self._parts = build_parts(setup)
        super().__init__(setup, self._parts, verify)
        for observer in (setup.meter, *setup.observers):
            self._parts.hub.observe(observer)
        self.failed = asyncio.Event()

    async def start(self) -> int:
        """Resumes what an earlier process left. Returns the number of sessions with work."""
        # The node's first checkpoint comes before its first event, so that a journal without any is always damage.
        self._anchor_later(await self._sign())
        self._parts.tasks.keep(self._parts.deadlines.keep, "deadlines")
        self._parts.tasks.keep(self._sign_regularly, "checkpoints")
        self._parts.tasks.keep(self._parts.heartbeats.keep, "heartbeats")
        self._parts.tasks.spawn(self._sweep(), "artifacts")
        # The file's routines first: a worker that skips a due time would change the same rows.
        await self.routines.sync(self._setup.routines)
        await self.candidates.applier.carry_over()
        self._parts.tasks.keep(self.worker.keep, "jobs")
        self._parts.tasks.keep(self.scheduler.keep, "routines")
        self._parts.tasks.keep(self.upkeep.keep, "upkeep")
        self._parts.tasks.keep(self.watchdog.keep, "watchdog")
        self._parts.tasks.keep(lambda: self.vectors.keep(self.jobs.enqueue), "vectors")
        for service in self._setup.services:
            await service.start()
        resumed = await self._parts.loops.resume_all()
        self._parts.tasks.spawn(self.draft_sweep.sweep(), "drafts")
        if self._setup.channels:
            self._parts.tasks.keep(self.pairing.keep, "pairing")
        # Last: a message that comes in must find the work of the earlier process resumed.
        await self.channels.start()
        return resumed

    def note(self, principal: Principal, act: AdminActed) -> None:
        """Records an act for a caller that cannot wait for it."""
        self._parts.tasks.spawn(self.acts.record(principal, act), "note")

    async def wait_for(self, stop: asyncio.Event) -> None:
        """Waits until a stop is asked for.

        Raises if the journal's writer ended on its own, because then nothing may continue.
        """
        waiting = [asyncio.ensure_future(event.wait()) for event in (stop, self.failed)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()
        if self.failed.is_set():
            raise Unavailable(
                JOURNAL_CLOSED,
                "the journal's writer ended; the log says why. Check the disk. A supervisor restarts this",
            )

    async def drain(self, timeout_s: float) -> bool:
        """Begins nothing new and lets active runs finish, up to the time limit. The next start resumes the rest."""
        self.scheduler.is_draining = self.worker.is_draining = True
        self.runs.is_draining = self.status.is_draining = self._parts.slots.is_closed = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._parts.slots.wait_until_free()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Stops effects without recording it: the tape says that they began, and the next start resumes them."""
        await self.channels.close()
        await self._parts.tasks.close()
        for service in self._setup.services:
            await service.close()
        await self._setup.ports.anchors.keep(await self._sign_once())
        try:
            await self._setup.journal.close()
        except PalyraError as error:
            if not self.failed.is_set():
                raise
            log.error("journal_not_closed", code=error.code, message=error.message)

    async def _sign_regularly(self) -> None:
        while True:
            await asyncio.sleep(CHECKPOINT_EVERY_S)
            self._anchor_later(await self._sign_once())

    async def _sign_once(self) -> list[Anchor]:
        try:
            return await self._sign()
        except PalyraError as error:
            log.warning("checkpoint_failed", code=error.code, message=error.message)
            if error.code == JOURNAL_CLOSED:
                # The writer ended on its own. Nothing can be recorded any more, so nothing may continue.
                self.failed.set()
            return []

    def _anchor_later(self, anchors: list[Anchor]) -> None:
        """Writes to further places in a task of its own: a place that cannot be reached delays nothing."""
        if anchors:
            self._parts.tasks.spawn(self._setup.ports.anchors.keep(anchors), "anchors")

    async def _sign(self) -> list[Anchor]:
        """Signs what changed, and returns the heads of the new checkpoints."""
        events = await self._setup.journal.checkpoint()
        self._parts.hub.publish(events)
        signed = [(event.data, event.at_ms) for event in events if isinstance(event.data, CheckpointSigned)]
        return [anchor_of(data, at_ms) for data, at_ms in signed]

    async def _sweep(self) -> None:
        try:
            removed_count = await self.artifacts.sweep()
        except PalyraError as error:
            log.warning("artifact_sweep_failed", code=error.code, message=error.message)
        else:
            if removed_count:
                log.info("artifacts_swept", removed_count=removed_count)
