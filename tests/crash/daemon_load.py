"""The load of the daemon's crash campaign. Owns: what a child process does until it is killed or done. Not: judging it.

Restart-safe: runs are started with idempotency keys, so every life of the child continues the same work. Whatever it
learns to be durable it says on a pipe before it goes on; the parent holds the journal to every such word.
"""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from palyra.adapters.providers.prepared_turns import Chunk, PreparedCall, Turn
from palyra.adapters.providers.scripted import Script, ScriptedProvider
from palyra.core.errors import Conflict
from palyra.core.events import Event
from palyra.core.events.base import JsonObject
from palyra.core.events.system import Head
from palyra.core.events.tool import ApprovalStatus, Decision, EffectClass
from palyra.core.ids import StreamId
from palyra.core.tools import ToolResult
from palyra.core.trust import Trust
from palyra.core.writes import Fence, Write
from palyra.engine.api.requests import ApprovalAnswer, ApprovalRecord, ApprovalsQuery, RunRequest
from palyra.engine.engine import Engine
from palyra.engine.setup import EngineSettings
from palyra.ports.journal import Append, Erasure, Journal
from palyra.ports.provider import Delta, ModelRequest
from palyra.ports.tools import ToolCallContext
from tests.support.engines import OWNER, MarkTool, Workshop

RUNS_COUNT = 10
SESSIONS_COUNT = 4
MARK_PAUSE_S = 0.002

SCRIPTS = [
    Script(when="read", turns=(Turn(calls=(PreparedCall("mark.read", {"text": "r"}),)), Turn(text="Read it."))),
    Script(when="keep", turns=(Turn(calls=(PreparedCall("mark.keep", {"text": "k"}),)), Turn(text="Kept it."))),
    Script(when="send", turns=(Turn(calls=(PreparedCall("mark.send", {"text": "s"}),)), Turn(text="Dealt with it."))),
    Script(
        when="several",
        turns=(
            Turn(calls=tuple(PreparedCall(f"mark.{name}", {"text": name}) for name in ("read", "keep", "send"))),
            Turn(chunks=(Chunk("All ", 1), Chunk("three.", 1))),
        ),
    ),
    Script(turns=(Turn(chunks=(Chunk("Just ", 2), Chunk("words.", 2))),)),
]
TASKS = ("read", "keep", "send", "several", "talk")


def die() -> None:
    """As a power cut would have it: no handler, no farewell."""
    os.kill(os.getpid(), signal.SIGKILL)


class Point:
    """A named crash point: `before:tool.started:1` dies before the first commit that holds such an event."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._counts: dict[str, int] = {}

    def reach(self, place: str) -> None:
        self._counts[place] = self._counts.get(place, 0) + 1
        if self.name == f"{place}:{self._counts[place]}":
            die()


class CrashingJournal:
    """The journal, with a crash point on either side of every commit."""

    def __init__(self, journal: Journal, point: Point) -> None:
        self._journal = journal
        self._point = point

    @property
    def is_open(self) -> bool:
        return self._journal.is_open

    async def commit(
        self, appends: Sequence[Append], writes: Sequence[Write] = (), fence: Fence | None = None
    ) -> tuple[Event, ...]:
        types = sorted({draft.data.TYPE for append in appends for draft in append.drafts})
        for type_name in types:
            self._point.reach(f"before:{type_name}")
        events = await self._journal.commit(appends, writes, fence)
        for type_name in types:
            self._point.reach(f"after:{type_name}")
        return events

    async def read(self, stream: StreamId, after_seq: int, limit: int) -> tuple[Event, ...]:
        return await self._journal.read(stream, after_seq, limit)

    async def read_last(self, stream: StreamId, limit: int) -> tuple[Event, ...]:
        return await self._journal.read_last(stream, limit)

    async def read_all(self, after_position: int, limit: int) -> tuple[Event, ...]:
        return await self._journal.read_all(after_position, limit)

    async def head(self, stream: StreamId) -> Head | None:
        return await self._journal.head(stream)

    async def erase(self, erasures: Sequence[Erasure]) -> tuple[Event, ...]:
        return await self._journal.erase(erasures)

    async def checkpoint(self) -> tuple[Event, ...]:
        self._point.reach("before:checkpoint")
        return await self._journal.checkpoint()

    async def close(self) -> None:
        self._point.reach("before:close")
        await self._journal.close()


class CrashingMark(MarkTool):
    """Dies on either side of its mark."""

    def __init__(self, name: str, effect_class: EffectClass, marks: Path, point: Point) -> None:
        super().__init__(name, effect_class, marks, MARK_PAUSE_S)
        self._point = point

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        self._point.reach(f"unmarked:{self.spec.name}")
        result = await super().execute(arguments, context)
        self._point.reach(f"marked:{self.spec.name}")
        return result


class CrashingProvider(ScriptedProvider):
    def __init__(self, point: Point) -> None:
        super().__init__(SCRIPTS)
        self._point = point

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        self._point.reach("asked:model")
        async for delta in super().stream(request):
            yield delta
            self._point.reach("heard:model")


class Life:
    """One life of the child: from start to done, or to its end."""

    def __init__(self, root: Path, acks: int, point: Point) -> None:
        self._acks = acks
        workshop = Workshop(root, CrashingProvider(point), EngineSettings(approval_timeout_ms=60_000))
        classes = {"read": EffectClass.READ_ONLY, "keep": EffectClass.IDEMPOTENT, "send": EffectClass.ONCE}
        workshop.tools = [CrashingMark(f"mark.{name}", kind, workshop.marks, point) for name, kind in classes.items()]
        workshop.wrap_journal = lambda journal: CrashingJournal(journal, point)
        self._workshop = workshop

    async def live(self) -> None:
        async with self._workshop.open() as engine:
            answering = asyncio.create_task(self._answer_questions(engine))
            await asyncio.gather(*(self._follow(engine, number) for number in range(RUNS_COUNT)))
            answering.cancel()
            await self._settle_doubts(engine)

    def say(self, *words: object) -> None:
        os.write(self._acks, (" ".join(map(str, words)) + "\n").encode())

    async def _follow(self, engine: Engine, number: int) -> None:
        request = RunRequest(
            text=f"{TASKS[number % len(TASKS)]} {number}",
            trust=Trust.OPERATOR,
            origin="test",
            can_ask=True,
            session_key=f"s{number % SESSIONS_COUNT}",
            idempotency_key=f"r{number}",
        )
        record = await engine.runs.start(OWNER, request)
        self.say("run", record.id)
        async for frame in await engine.runs.follow(OWNER, record.id, None):
            if isinstance(frame, Event):
                self.say("event", frame.stream, frame.seq, frame.hash)

    async def _answer_questions(self, engine: Engine) -> None:
        """Allows most, refuses some, and cancels a run now and then; a doubt is left until the end."""
        while True:
            for card in await self._pending(engine):
                if card.kind == "tool":
                    await self._answer(engine, card)
            await asyncio.sleep(0.005)

    async def _answer(self, engine: Engine, card: ApprovalRecord) -> None:
        choice = int(card.digest[:2], 16) % 8
        try:
            if choice == 0 and card.run_id is not None:
                await engine.runs.cancel(OWNER, card.run_id)
            else:
                decision = Decision.DENY if choice == 1 else Decision.ALLOW
                await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=decision))
                self.say("answered", card.id)
        except Conflict:
            return

    async def _settle_doubts(self, engine: Engine) -> None:
        for card in await self._pending(engine):
            if card.kind == "uncertain":
                await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.DONE))
                self.say("answered", card.id)

    async def _pending(self, engine: Engine) -> tuple[ApprovalRecord, ...]:
        return await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))


_FREQUENT = (
    "run.accepted",
    "run.started",
    "model.requested",
    "model.output",
    "tool.judged",
    "tool.started",
    "tool.finished",
    "approval.requested",
    "approval.resolved",
    "run.waiting",
    "message.assistant",
    "run.done",
)
_SIDES = ("before", "after")

# Each is a row of points, one for each life: the second one meets a daemon that is just recovering from the first.
POINTS: tuple[tuple[str, ...], ...] = (
    *((f"{side}:{type_name}:{count}",) for type_name in _FREQUENT for side in _SIDES for count in (1, 3)),
    *((f"{side}:run.resumed:1",) for side in _SIDES),
    ("before:close:1",),
    *((f"{side}:mark.{name}:1",) for side in ("unmarked", "marked") for name in ("read", "keep", "send")),
    ("marked:mark.send:2",),
    *((point,) for point in ("asked:model:1", "asked:model:4", "heard:model:1", "heard:model:9")),
    *(("marked:mark.send:1", f"{side}:tool.uncertain:1") for side in _SIDES),
    *(("unmarked:mark.send:1", f"{side}:run.resumed:1") for side in _SIDES),
    *(("marked:mark.keep:1", point) for point in ("before:tool.started:1", "marked:mark.keep:1")),
    ("heard:model:1", "before:run.resumed:1", "after:run.resumed:1"),
)
