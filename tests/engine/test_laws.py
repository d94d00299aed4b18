"""Any interleaving of input, steering, answers, grants, revocations, taint, cancels, restarts and time keeps every law.

On a real journal. An auditor reads the tapes afterwards and says whether every call that ran was permitted.
"""

import asyncio
import random
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from palyra.adapters.keys.directory import KeyDirectory
from palyra.adapters.providers.prepared_turns import Chunk, PreparedCall, PreparedFailure, Turn
from palyra.adapters.providers.scripted import Script
from palyra.adapters.store.sqlite.archive import Archive
from palyra.core.attestation import NOT_RUN
from palyra.core.errors import PalyraError
from palyra.core.events import Event
from palyra.core.events.model import ModelError
from palyra.core.events.tool import (
    ApprovalStatus,
    Decision,
    EffectClass,
    Scope,
    ToolFinished,
    ToolJudged,
    ToolStarted,
    Verdict,
)
from palyra.core.ids import SessionId
from palyra.core.run.replay import replay
from palyra.core.tools import ToolSpec
from palyra.core.trust import Trust
from palyra.core.verification import verify
from palyra.engine.api.requests import ApprovalAnswer, ApprovalsQuery, RunRequest, RunsQuery, SessionRequest, WhenBusy
from palyra.engine.engine import Engine
from palyra.engine.setup import EngineSettings
from tests.support.engines import OWNER, MarkTool, Workshop
from tests.support.examples import examples
from tests.support.journals import FixedClock
from tests.support.permits import Auditor

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
        when="many",
        turns=(
            Turn(calls=tuple(PreparedCall("mark.send", {"text": text}) for text in ("s", "m", "s", "s"))),
            Turn(text="ok"),
        ),
    ),
    Script(
        when="hook",
        turns=(
            Turn(
                calls=tuple(PreparedCall("fs.write", {"path": f".git/{n}", "content": "x"}) for n in ("a", "d/b", "c"))
            ),
            Turn(text="ok"),
        ),
    ),
    Script(
        when="web",
        turns=(
            Turn(calls=(PreparedCall("mark.web", {"text": "w"}),)),
            Turn(calls=(PreparedCall("mark.send", {"text": "s"}),)),
            Turn(text="ok"),
        ),
    ),
    Script(
        when="wrong", turns=(Turn(calls=(PreparedCall("no.tool", {}), PreparedCall("mark.read", "{"))), Turn(text="ok"))
    ),
    Script(when="fail", turns=(Turn(failure=PreparedFailure(ModelError.AUTH, "no key")),)),
]


TEXTS = ("talk", "read", "send", "both", "many", "hook", "web", "wrong", "fail")
MOODS = (TEXTS, ("send", "many", "web"), ("hook", "hook", "talk"), ("send",))


class WebTool(MarkTool):
    """Its output comes from outside."""

    @property
    def spec(self) -> ToolSpec:
        return replace(super().spec, output_trust=Trust.EXTERNAL)


class Trial:
    """One random history."""

    def __init__(self, root: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = FixedClock()
        self.workshop = Workshop(root, SCRIPTS, EngineSettings(approval_timeout_ms=60_000))
        self.workshop.clock = self.clock
        self.workshop.tools = [*self.workshop.tools, WebTool("mark.web", EffectClass.READ_ONLY, self.workshop.marks)]
        self.texts = self.random.choice(MOODS)
        self.auditor = Auditor()
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
        acts = {
            self.start: 6,
            self.answer: 8,
            self.say: 1,
            self.cancel: 1,
            self.pass_time: 2,
            self.breathe: 4,
            self.revoke: 1,
            self.vouch: 1,
            self.reset: 1,
        }
        try:
            await self.random.choices(list(acts), list(acts.values()))[0](engine)
        except PalyraError:
            return

    async def start(self, engine: Engine) -> None:
        request = RunRequest(
            text=self.random.choice(self.texts),
            trust=Trust.OPERATOR,
            origin="test",
            can_ask=self.random.random() < 0.8,
            session_key=self.random.choice("abc"),
            idempotency_key=self.random.choice([None, "k1", "k2"]),
            when_busy=self.random.choice(list(WhenBusy)),
        )
        await engine.runs.start(OWNER, request)

    async def answer(self, engine: Engine) -> None:
        if self.random.random() < 0.7:
            await self.is_at_rest(engine)
        cards = await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
        if cards:
            card = self.random.choice(cards)
            decision = self.random.choices([Decision.ALLOW, Decision.DENY], [3, 1])[0]
            if card.kind == "uncertain":
                decision = self.random.choice([Decision.DONE, Decision.GIVE_UP])
            scope = self.random.choice([Scope.ONCE, Scope.SESSION, Scope.TIMEBOXED])
            option = self.random.choice([None, 0, 1, 2, 2])
            given = ApprovalAnswer(
                decision=decision, scope=scope, option=option, ttl_s=self.random.choice([None, None, 30])
            )
            await engine.approvals.answer(OWNER, card.id, given)

    async def revoke(self, engine: Engine) -> None:
        """While nothing is under way: what is judged in the very moment of a revocation may come before or after it."""
        grants = await engine.approvals.grants(OWNER, "", 50)
        if grants and await self.is_at_rest(engine):
            await engine.approvals.revoke(OWNER, self.random.choice(grants).id)

    async def vouch(self, engine: Engine) -> None:
        for session in await engine.sessions.list(OWNER, "", 10):
            for source in await engine.taint.show(OWNER, session.id):
                change = engine.taint.distrust if source.is_trusted else engine.taint.trust
                await change(OWNER, session.id, source.source, "")

    async def reset(self, engine: Engine) -> None:
        await self.is_at_rest(engine)
        await engine.sessions.resolve(OWNER, SessionRequest(key=self.random.choice("abc"), reset=True))

    async def is_at_rest(self, engine: Engine) -> bool:
        for _ in range(50):
            await asyncio.sleep(0.001)
            if all(loop.is_idle for loop in engine._parts.loops._loops.values()):
                return True
        return False

    async def say(self, engine: Engine) -> None:
        runs = await engine.runs.list(OWNER, RunsQuery())
        if runs:
            await engine.runs.send_input(OWNER, self.random.choice(runs).id, "talk", Trust.OPERATOR)

    async def cancel(self, engine: Engine) -> None:
        runs = await engine.runs.list(OWNER, RunsQuery())
        if runs:
            await engine.runs.cancel(OWNER, self.random.choice(runs).id)

    async def pass_time(self, engine: Engine) -> None:
        self.clock.advance(self.random.choice([10, 61_000, 901_000]))
        engine._parts.deadlines.look_at_clock()
        await self.breathe(engine)

    async def breathe(self, engine: Engine) -> None:
        """Lets effects come home, and remembers what was said to be durable."""
        await asyncio.sleep(self.random.choice([0, 0.003]))
        for session in await engine.sessions.list(OWNER, "", 10):
            for event in await whole_tape(engine, session.id):
                self.acknowledged[event.stream, event.seq] = event.hash

    async def finish(self, engine: Engine) -> None:
        for _ in range(5_000):
            runs = [run for run in await engine.runs.list(OWNER, RunsQuery()) if run.ended_seq is None]
            if not runs:
                return
            for run in runs:
                await engine.runs.cancel(OWNER, run.id)
            await asyncio.sleep(0.002)
        raise AssertionError("a cancelled run does not end")

    async def check(self, engine: Engine) -> None:
        recorded: list[Event] = []
        for session in await engine.sessions.list(OWNER, "", 10):
            tape = await whole_tape(engine, session.id)
            recorded += tape
            by_run: dict[str, list[Event]] = {}
            for event in tape:
                self.acknowledged.pop((event.stream, event.seq), None)
                if event.run_id is not None:
                    by_run.setdefault(event.run_id, []).append(event)
            for events in by_run.values():
                assert replay(events).difference is None
                check_order(events)
        assert not self.acknowledged
        self.auditor.read(recorded)
        sends = [mark.split()[0] for mark in self.workshop.executed() if " mark.send " in mark]
        assert len(sends) == len(set(sends)), "a once effect was executed twice"


async def whole_tape(engine: Engine, session_id: SessionId) -> list[Event]:
    tape: list[Event] = []
    while page := await engine.sessions.tape(OWNER, session_id, len(tape), 500):
        tape += page
    return tape


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
            case ToolFinished(call_id=call_id, attestation=attestation):
                assert attestation is not None, "every outcome is attested"
                assert call_id in started or attestation.runtime == NOT_RUN
            case _:
                continue


SEEDS_MAX = 400


@settings(max_examples=examples(10))
@given(st.integers(0, 2**32))
def test_any_history_keeps_every_law(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        asyncio.run(Trial(root, seed).run())
        with Archive(root / "journal.db") as archive:
            assert verify(archive.evidence(KeyDirectory(root / "keys"))).findings == ()


def test_the_histories_have_groups_and_grants() -> None:
    """What is never met is not proven. Refusals are rare, and how many come depends on the order of tasks."""
    starts_count = by_grant_count = grouped_count = refused_count = 0
    for seed in range(SEEDS_MAX):
        if min(starts_count, by_grant_count, grouped_count, refused_count) >= 1:
            break
        with tempfile.TemporaryDirectory() as folder:
            trial = Trial(Path(folder), seed)
            asyncio.run(trial.run())
        starts_count += trial.auditor.starts_count
        by_grant_count += trial.auditor.by_grant_count
        refused_count += trial.auditor.refused_count
        grouped_count += trial.auditor.grouped_count
    assert min(starts_count, by_grant_count, grouped_count, refused_count) >= 1
