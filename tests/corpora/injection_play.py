"""Playing a case. Owns: a model that obeys whatever it reads, a person who answers, and the account of one run. Not: the cases.

The model follows the person's wish until a result carries an order, and then the order, at once or at the end. The person
allows what the wish needs, as widely as a session's grant is offered, so that an order may try to slip through what was
allowed; to an order the person says no, or nothing at all.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path

import msgspec

from palyra.adapters.providers.prepared_turns import PreparedCall, Turn, find_standing, play
from palyra.adapters.store.sqlite.connection import JournalSettings
from palyra.core.context.messages import ToolMessage
from palyra.core.events import Event
from palyra.core.events.base import JsonObject
from palyra.core.events.model import ModelOutput, ToolCall
from palyra.core.events.tool import (
    ApprovalRequested,
    ApprovalResolved,
    ApprovalStatus,
    Decision,
    GrantOption,
    Risk,
    Scope,
    ToolJudged,
    ToolStarted,
    Verdict,
)
from palyra.core.ids import RunId
from palyra.core.tools import Runtime
from palyra.engine.api.requests import ApprovalAnswer, SessionRequest
from palyra.engine.engine import Engine
from palyra.ports.policy import Policy
from palyra.ports.provider import Delta, ModelRequest
from tests.corpora.injection_runtime import Perform, Ran, Stage, StagedTool
from tests.corpora.injection_tools import Entry
from tests.support.asking import ask
from tests.support.engines import OWNER, Workshop

AT_ONCE_MAX = 24
ANSWER = "I looked into it and have nothing to add."


class Attitude(Enum):
    """What the person does when an order asks."""

    SILENT = "silent"
    REFUSES = "refuses"


class Wanted(msgspec.Struct, frozen=True):
    tool: str
    arguments: JsonObject


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A wish, as batches of calls, one batch a turn; and the order that comes in with a result, known by its `marker`."""

    name: str
    prompt: str
    wish: tuple[tuple[Wanted, ...], ...]
    perform: Perform
    order: tuple[Wanted, ...] = ()
    marker: str | None = None
    attitude: Attitude = Attitude.REFUSES
    is_patient: bool = False  # The order waits until the wish is fulfilled, and all that was allowed for it is allowed.


class CallRecord(msgspec.Struct, kw_only=True):
    """One proposed call and what became of it, by the tape."""

    tool: str
    arguments: JsonObject | str
    is_order: bool
    turn: int
    is_known_address: bool = (
        False  # Its address stands as it is in what was asked or read: asking there tells nothing new.
    )
    verdict: Verdict | None = None
    rule: str = ""
    is_asked: bool = False
    is_approved: bool = False
    is_started: bool = False

    @property
    def would_ask(self) -> bool:
        """By the policy alone: what a grant covers would have asked without it."""
        return self.verdict is Verdict.ASK or self.rule == "grant"


class Outcome(msgspec.Struct, kw_only=True):
    case: Case
    calls: list[CallRecord]
    ran: list[Ran]
    cards: int  # Questions that a person was shown; calls that are alike share one.
    is_told: bool  # A result carried the order.
    is_heard: bool  # The model saw it in what it was sent.


class Role:
    """The model's part in one case."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.is_told = False
        self.is_heard = False
        self.order_turns: set[int] = set()
        self.read = case.prompt
        self._wish = deque(case.wish)
        self._order = deque(case.order)

    def perform(self, tool: str, arguments: JsonObject) -> str:
        output = self.case.perform(tool, arguments)
        self.is_told = self.is_told or self._carries(output)
        self.read += f"\n{output}"
        return output

    def take_turn(self, request: ModelRequest) -> Turn:
        texts = [message.text for message in request.messages if isinstance(message, ToolMessage)]
        self.is_heard = self.is_heard or any(map(self._carries, texts))
        # An order in a result too long to be shown whole is one page away, so the model is taken to have it.
        if self.is_told and not (self.case.is_patient and self._wish):
            self.order_turns.add(request.turn)
            return _turn((self._order.popleft(),)) if self._order else Turn(text=ANSWER)
        return _turn(self._wish.popleft()) if self._wish else Turn(text=ANSWER)

    def _carries(self, text: str) -> bool:
        return self.case.marker is not None and self.case.marker in text


class ObedientModel:
    """The port Provider. Whatever was asked begins with its case's name."""

    def __init__(self) -> None:
        self.roles: dict[str, Role] = {}

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        name = find_standing(request.messages).asked.split(maxsplit=1)[0]
        return play(self.roles[name].take_turn(request))


class Theatre:
    """A whole engine with these tools, for many cases."""

    def __init__(
        self,
        root: Path,
        table: Mapping[str, Entry],
        policy: Policy | None = None,
        runtime: Runtime = Runtime.INTERNAL,
    ) -> None:
        self._model = ObedientModel()
        self._stage = Stage()
        self._prefix = "mcp." if runtime is Runtime.MCP else ""
        self._workshop = Workshop(root, self._model)
        self._workshop.tools = [StagedTool(name, entry, self._stage, runtime) for name, entry in table.items()]
        # Nothing is killed here, so nothing is lost by a journal that waits for no disk.
        self._workshop.journal_settings = JournalSettings(path=root / "journal.db", durability="normal")
        if policy is not None:
            self._workshop.policy = policy

    async def perform(self, cases: Iterable[Case]) -> list[Outcome]:
        places = asyncio.Semaphore(AT_ONCE_MAX)
        async with self._workshop.open() as engine:

            async def one(case: Case) -> Outcome:
                async with places:
                    return await self._perform(engine, case)

            return list(await asyncio.gather(*map(one, cases)))

    async def _perform(self, engine: Engine, case: Case) -> Outcome:
        role = self._model.roles[case.name] = Role(_prefixed(case, self._prefix))
        session = await engine.sessions.resolve(OWNER, SessionRequest())
        self._stage.set_up(session.id, role.perform)
        request = ask(f"{case.name} {case.prompt}", session_id=session.id)
        started, frames = await engine.runs.start_and_follow(OWNER, request)
        account = _Account(role)
        async for frame in frames:
            if isinstance(frame, Event):
                asked = account.take(frame)
                if asked is not None:
                    await _answer(engine, started.id, asked, role.case if account.is_order(asked) else None)
        return Outcome(
            case=case,
            calls=account.calls(),
            ran=self._stage.ran.pop(session.id, []),
            cards=account.cards(),
            is_told=role.is_told,
            is_heard=role.is_heard,
        )


class _Account:
    """A run's events, put together by call."""

    def __init__(self, role: Role) -> None:
        self._role = role
        self._calls: dict[str, CallRecord] = {}
        self._asked: dict[str, tuple[str, ...]] = {}
        self._covered: set[str] = set()

    def calls(self) -> list[CallRecord]:
        return list(self._calls.values())

    def cards(self) -> int:
        return len(self._asked) - len(self._covered)

    def is_order(self, asked: ApprovalRequested) -> bool:
        return self._calls[str(asked.call_id)].is_order

    def _begin(self, one: ToolCall, turn: int) -> CallRecord:
        url = one.arguments.get("url") if isinstance(one.arguments, dict) else None
        return CallRecord(
            tool=one.tool,
            arguments=one.arguments,
            is_order=turn in self._role.order_turns,
            turn=turn,
            is_known_address=isinstance(url, str) and url in self._role.read,
        )

    def take(self, event: Event) -> ApprovalRequested | None:
        match event.data:
            case ModelOutput(tool_calls=proposed, turn=turn):
                for one in proposed:
                    self._calls[one.call_id] = self._begin(one, turn)
            case ToolJudged(call_id=call_id, verdict=verdict, rule=rule):
                self._calls[call_id].verdict, self._calls[call_id].rule = verdict, rule
            case ToolStarted(call_id=call_id):
                self._calls[call_id].is_started = True
            case ApprovalRequested(call_id=str(call_id), approval_id=approval_id) as asked:
                self._asked[approval_id] = asked.calls or (call_id,)
                for each in self._asked[approval_id]:
                    self._calls[each].is_asked = True
                return asked
            case ApprovalResolved(approval_id=approval_id, covered_by=covered_by, status=ApprovalStatus.ALLOWED):
                self._covered |= {approval_id} if covered_by is not None else set()
                for each in self._asked[approval_id]:
                    self._calls[each].is_approved = covered_by is None
            case _:
                pass
        return None


async def _answer(engine: Engine, run_id: RunId, asked: ApprovalRequested, ordered: Case | None) -> None:
    if ordered is not None and ordered.attitude is Attitude.SILENT:
        await engine.runs.cancel(OWNER, run_id)
        return
    if ordered is not None:
        answer = ApprovalAnswer(decision=Decision.DENY)
    elif asked.risk is Risk.CRITICAL:
        answer = ApprovalAnswer(decision=Decision.ALLOW)
    else:
        widest = max(index for index, option in enumerate(asked.options) if _is_grant(option))
        answer = ApprovalAnswer(decision=Decision.ALLOW, scope=Scope.SESSION, option=widest)
    await engine.approvals.answer(OWNER, asked.approval_id, answer)


def _prefixed(case: Case, prefix: str) -> Case:
    def put(calls: Sequence[Wanted]) -> tuple[Wanted, ...]:
        return tuple(Wanted(f"{prefix}{call.tool}", call.arguments) for call in calls)

    return msgspec.structs.replace(case, wish=tuple(map(put, case.wish)), order=put(case.order))


def _turn(calls: Sequence[Wanted]) -> Turn:
    return Turn(calls=tuple(PreparedCall(call.tool, call.arguments) for call in calls))


def batches(calls: Iterable[Wanted]) -> tuple[tuple[Wanted, ...], ...]:
    """Calls of one tool that follow each other are proposed at once, as models do."""
    grouped: list[list[Wanted]] = []
    for call in calls:
        if grouped and grouped[-1][-1].tool == call.tool:
            grouped[-1].append(call)
        else:
            grouped.append([call])
    return tuple(map(tuple, grouped))


def _is_grant(option: GrantOption) -> bool:
    """To trust a source is no grant: who vouches for what was read has read it."""
    return option.scope is Scope.SESSION and not option.trusts
