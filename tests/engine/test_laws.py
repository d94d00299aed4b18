"""Any interleaving of input, steering, answers, cancels, restarts and time keeps every law, on a real journal."""

import asyncio
import random
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.adapters.keys.directory import KeyDirectory
from palyra.adapters.providers.scripted import Script
from palyra.adapters.providers.turns import Chunk, PreparedCall, PreparedFailure, Turn
from palyra.adapters.store.sqlite.archive import Archive
from palyra.core.errors import PalyraError
from palyra.core.events import Event
from palyra.core.events.model import ModelError
from palyra.core.events.tool import ApprovalStatus, Decision, Scope, ToolFinished, ToolJudged, ToolStarted, Verdict
from palyra.core.run.replay import replay
from palyra.core.verification import verify
from palyra.engine.engine import Engine
from palyra.engine.office import Settings
from palyra.engine.requests import ApprovalAnswer, ApprovalsQuery, RunRequest, RunsQuery, WhenBusy
from tests.support.engines import OWNER, Workshop
from tests.support.journals import FixedClock

STEPS = 25
SCRIPTS = [
    Script(when="talk", turns=(Turn(chunks=(Chunk("a ", 1), Chunk("b", 2))),)),
    Script(when="read", turns=(Turn(calls=(PreparedCall("mark.read", {"text": "r"}),)), Turn(text="ok"))),
    Script(when="send", turns=(Turn(calls=(PreparedCall("mark.send", {"text": "s"}),)), Turn(text="ok"))),
    Script(
        when="both",
        turns=(
            Turn(calls=(PreparedCall("mark.keep", {"text": "k"}), PreparedCall("mark.send", {"text": "b"}))),
            Turn(calls=(PreparedCall("mark.send", {"text": "b"}),)),
            Turn(text="ok"),
        ),
    ),
    Script(
        when="wrong", turns=(Turn(calls=(PreparedCall("no.tool", {}), PreparedCall("mark.read", "{"))), Turn(text="ok"))
    ),
    Script(when="fail", turns=(Turn(failure=PreparedFailure(ModelError.AUTH, "no key")),)),
]


class Trial:
    """One random history."""

    def __init__(self, root: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = FixedClock()
        self.workshop = Workshop(root, SCRIPTS, Settings(approval_timeout_ms=60_000))
        self.workshop.clock = self.clock
        self.acknowledged: dict[tuple[str, int], str] = {}

    async def run(self) -> None:
        for _ in range(3):
            async with self.workshop.open() as engine:
                for _ in range(self.random.randrange(STEPS)):
                    await self.step(engine)
        async with self.workshop.open() as engine:
            await self.finish(engine)
            await self.check(engine)

    async def step(self, engine: Engine) -> None:
        acts = [self.start, self.start, self.answer, self.answer, self.say, self.cancel, self.pass_time, self.breathe]
        try:
            await self.random.choice(acts)(engine)
        except PalyraError:
            return

    async def start(self, engine: Engine) -> None:
        request = RunRequest(
            text=self.random.choice(["talk", "read", "send", "both", "wrong", "fail"]),
            origin="test",
            can_ask=self.random.random() < 0.8,
            session_key=self.random.choice("ab"),
            idempotency_key=self.random.choice([None, "k1", "k2"]),
            when_busy=self.random.choice(list(WhenBusy)),
        )
        await engine.runs.start(OWNER, request)

    async def answer(self, engine: Engine) -> None:
        cards = await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
        if cards:
            card = self.random.choice(cards)
            decision = self.random.choice([Decision.ALLOW, Decision.ALLOW, Decision.DENY])
            if card.kind == "uncertain":
                decision = self.random.choice([Decision.DONE, Decision.GIVE_UP])
            scope = self.random.choice([Scope.ONCE, Scope.SESSION, Scope.TIMEBOXED])
            await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=decision, scope=scope))

    async def say(self, engine: Engine) -> None:
        runs = await engine.runs.list(OWNER, RunsQuery())
        if runs:
            await engine.runs.send_input(OWNER, self.random.choice(runs).id, "talk")

    async def cancel(self, engine: Engine) -> None:
        runs = await engine.runs.list(OWNER, RunsQuery())
        if runs:
            await engine.runs.cancel(OWNER, self.random.choice(runs).id)

    async def pass_time(self, engine: Engine) -> None:
        self.clock.advance(self.random.choice([10, 61_000, 901_000]))
        engine._office.desks.look_at_clock()
        await self.breathe(engine)

    async def breathe(self, engine: Engine) -> None:
        """Lets effects come home, and remembers what was said to be durable."""
        await asyncio.sleep(self.random.choice([0, 0.003]))
        for session in await engine.sessions.list(OWNER, "", 10):
            for event in await engine.sessions.tape(OWNER, session.id, 0, 500):
                self.acknowledged[event.stream, event.seq] = event.hash

    async def finish(self, engine: Engine) -> None:
        for _ in range(200):
            runs = [run for run in await engine.runs.list(OWNER, RunsQuery()) if run.ended_seq is None]
            if not runs:
                return
            for run in runs:
                await engine.runs.cancel(OWNER, run.id)
            await asyncio.sleep(0.002)
        raise AssertionError("a cancelled run does not end")

    async def check(self, engine: Engine) -> None:
        for session in await engine.sessions.list(OWNER, "", 10):
            tape = await engine.sessions.tape(OWNER, session.id, 0, 500)
            by_run: dict[str, list[Event]] = {}
            for event in tape:
                self.acknowledged.pop((event.stream, event.seq), None)
                if event.run_id is not None:
                    by_run.setdefault(event.run_id, []).append(event)
            for events in by_run.values():
                assert replay(events).difference is None
                check_order(events)
        assert not self.acknowledged
        sends = [mark.split()[0] for mark in self.workshop.executed() if " mark.send " in mark]
        assert len(sends) == len(set(sends)), "a once effect was executed twice"


def check_order(events: list[Event]) -> None:
    """L1: every start has a verdict before it, every outcome of an executed call a start."""
    judged: dict[str, Verdict] = {}
    started: set[str] = set()
    for event in events:
        match event.data:
            case ToolJudged(call_id=call_id, verdict=verdict):
                judged[call_id] = verdict
            case ToolStarted(call_id=call_id):
                assert judged[call_id] is not Verdict.DENY
                started.add(call_id)
            case ToolFinished(call_id=call_id, attestation=attestation) if attestation is not None:
                assert call_id in started
            case _:
                continue


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_any_history_keeps_every_law(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        asyncio.run(Trial(root, seed).run())
        with Archive(root / "journal.db") as archive:
            assert verify(archive.evidence(KeyDirectory(root / "keys"))).findings == ()
