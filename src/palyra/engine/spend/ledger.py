"""The ledger of spend.

Owns: the state of budgets: what is spent, what running calls have reserved, and who waits for room.
Does not own: rules (core.budget).
Spend is settled on the tapes, and so is what each running call has reserved, in its plan. The ledger keeps their sums.
A restart counts every interrupted call before any new one is planned.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from palyra.core.budget import Amount, Budget, BudgetScope, Spender, Standing, draws_of
from palyra.core.delegation import channel_of
from palyra.core.events.model import RoutePlanned, UsageRecorded
from palyra.core.ids import RunId, SessionId
from palyra.core.projections.usage import nano_usd
from palyra.core.routing import reserved_amount
from palyra.core.run.state import Run
from palyra.engine.spend.accounts import Accounts, plus
from palyra.ports.views import UsageViews

# Estimates are learned upwards so far and no further: one absurd bill must not make every later run unaffordable.
FACTOR_MAX = 64.0

Turn = tuple[RunId, int]
Subject = tuple[BudgetScope, str]


class Spent(msgspec.Struct, frozen=True):
    """Spend that a commit records, and on whose behalf."""

    spender: Spender
    data: UsageRecorded
    at_ms: int

    @property
    def amount(self) -> Amount:
        return Amount(nano_usd(self.data.cost_usd), self.data.input_tokens + self.data.output_tokens)


class EstimateFactor(NamedTuple):
    usd: float = 1.0
    tokens: float = 1.0


@dataclass(slots=True)
class ReservationHold:
    """What one running call has reserved. It counts on any day, because it will be paid on the next one."""

    subjects: frozenset[Subject]
    amount: Amount
    model: str | None


class BudgetWaiter(NamedTuple):
    """A session that found no room: where room was missing, and everything it draws on."""

    crowded: frozenset[Subject]
    subjects: frozenset[Subject]


class Ledger:
    def __init__(self, usage: UsageViews, budgets: tuple[Budget, ...], wake: Callable[[SessionId], None]) -> None:
        self._accounts = Accounts(usage)
        self._budgets = budgets
        self._wake = wake
        self._holds: dict[SessionId, dict[Turn, ReservationHold]] = {}
        self._waiting: dict[SessionId, BudgetWaiter] = {}
        self._factors: dict[str, EstimateFactor] = {}
        self._is_open = False

    def is_open(self, spender: Spender) -> bool:
        """Whoever a budget limits waits until the calls that a restart interrupted are counted."""
        return self._is_open or not (self._budgets or spender.is_capped)

    @property
    def has_budgets(self) -> bool:
        """Whether the output of a call must be bounded, so that its cost is bounded."""
        return bool(self._budgets)

    def open(self) -> None:
        self._is_open = True
        self._wake_waiting()

    def factor(self, model: str) -> EstimateFactor | None:
        """Returns how far estimates of this model were too low at worst, or None before its first settled call."""
        return self._factors.get(model)

    async def standings(self, spender: Spender, now_ms: int, spends: tuple[Spent, ...]) -> tuple[Standing, ...]:
        """Returns the state of every budget that this spender draws on.

        It includes spend that the spender's own commit is about to record.
        """
        draws = draws_of(self._budgets, spender, now_ms)
        await self._accounts.load(tuple(draw.account for draw in draws))
        own = _sum(spend.amount for spend in spends)
        return tuple(
            Standing(
                budget=budget,
                spent=plus(self._accounts.spent(account), own),
                reserved=self._reserved((account.scope, account.subject), spender.session_id),
            )
            for budget, account in draws
        )

    def is_behind(self, spender: Spender) -> bool:
        """Tells whether somebody has waited longer for the same budget.

        A later call does not overtake, however small.
        """
        mine = self._subjects(spender)
        for session_id, waiter in self._waiting.items():
            if session_id == spender.session_id:
                return False
            if waiter.crowded & mine:
                return True
        return False

    def reserve(self, spender: Spender, plan: RoutePlanned) -> None:
        """Reserves in addition to the session's last call, whose hold is released only when its spend is recorded."""
        hold = ReservationHold(self._subjects(spender), reserved_amount(plan), plan.chosen)
        self._holds.setdefault(spender.session_id, {})[(spender.run_id, plan.turn)] = hold
        if self._waiting.pop(spender.session_id, None) is not None:
            self._wake_waiting()

    def foresee(self, spend: Spent) -> None:
        """Its call is over: until the spend is durable, its hold is what it cost."""
        hold = self._hold(spend.spender, spend.data)
        if hold is not None:
            self._learn(spend, hold)
            hold.amount = spend.amount

    def wait(self, spender: Spender, budgets: tuple[str, ...]) -> None:
        """Adds the session to the queue; it is woken when there may be room."""
        if spender.session_id in self._waiting:
            return
        draws = draws_of(self._budgets, spender, 0)
        names = set(budgets) or {draw.budget.name for draw in draws}
        crowded = frozenset((account.scope, account.subject) for budget, account in draws if budget.name in names)
        self._waiting[spender.session_id] = BudgetWaiter(crowded, self._subjects(spender))

    def follow(self, session_id: SessionId, calling: Turn | None, *, is_planning: bool) -> None:
        """Follows the session's durable state: which call runs, and whether one is wanted.

        All its other holds are released.
        """
        holds = self._holds.get(session_id, {})
        is_freed = self.release(session_id, tuple(turn for turn in holds if turn != calling))
        is_left = not is_planning and self._waiting.pop(session_id, None) is not None
        if is_freed or is_left:
            self._wake_waiting()

    def release(self, session_id: SessionId, turns: tuple[Turn, ...]) -> bool:
        """Releases what these turns held; True if they held anything."""
        holds = self._holds.get(session_id, {})
        freed = [holds.pop(turn) for turn in turns if turn in holds]
        if not holds:
            self._holds.pop(session_id, None)
        return bool(freed)

    @asynccontextmanager
    async def recording(self, spends: tuple[Spent, ...]) -> AsyncIterator[None]:
        """Surrounds the commit of spend. If it succeeds, the spend is counted before anybody can look again."""
        async with self._accounts.settling(len(spends)):
            yield
            for spend in spends:
                for account in {draw.account for draw in draws_of(self._budgets, spend.spender, spend.at_ms)}:
                    self._accounts.add(account, spend.amount)

    def _learn(self, spend: Spent, hold: ReservationHold) -> None:
        """Corrects later estimates after one that was too low. Usage that no provider counted is taken as correct."""
        model = spend.data.model
        known = self._factors.setdefault(model, EstimateFactor())
        if spend.data.is_estimate:
            return
        base = known if hold.model == model else EstimateFactor()
        self._factors[model] = EstimateFactor(
            min(FACTOR_MAX, max(known.usd, base.usd * _ratio(spend.amount.nano_usd, hold.amount.nano_usd))),
            min(FACTOR_MAX, max(known.tokens, base.tokens * _ratio(spend.amount.tokens, hold.amount.tokens))),
        )

    def _hold(self, spender: Spender, data: UsageRecorded) -> ReservationHold | None:
        turn = (spender.run_id, data.turn) if data.turn is not None else None
        return None if turn is None else self._holds.get(spender.session_id, {}).get(turn)

    def _reserved(self, subject: Subject, but_for: SessionId) -> Amount:
        holds = (hold for session_id, own in self._holds.items() if session_id != but_for for hold in own.values())
        return _sum(hold.amount for hold in holds if subject in hold.subjects)

    def _subjects(self, spender: Spender) -> frozenset[Subject]:
        return frozenset((account.scope, account.subject) for _, account in draws_of(self._budgets, spender, 0))

    def _wake_waiting(self) -> None:
        """Wakes sessions that nobody is ahead of. Each one that is served wakes the next."""
        ahead: set[Subject] = set()
        for session_id, waiter in tuple(self._waiting.items()):
            if not ahead & waiter.subjects:
                self._wake(session_id)
            ahead |= waiter.crowded


def spender_of(run: Run, session_id: SessionId) -> Spender:
    return Spender(
        principal=run.principal,
        channel=channel_of(run),
        agent=run.agent,
        session_id=session_id,
        run_id=run.run_id,
        ancestors=run.lineage,
        cap_nano_usd=run.budget_nano_usd,
    )


def _sum(amounts: Iterable[Amount]) -> Amount:
    total = Amount()
    for amount in amounts:
        total = plus(total, amount)
    return total


def _ratio(actual: int, reserved: int) -> float:
    return actual / reserved if reserved > 0 else 1.0
