"""The ledger. Owns: what is spent and reserved on every account that a budget watches, and who waits for room. Not: rules (core).

What is spent is settled on the tapes; what is reserved stands there too, with the plan of each call that is out. Kept
here is their sum: read from the projection once an account is asked for, and followed from there. A restart counts every
call it finds cut off before any new one is planned.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import msgspec

from palyra.core.budget import Account, Amount, Budget, BudgetScope, Spender, Standing, account_of
from palyra.core.events.model import RoutePlanned, UsageRecorded
from palyra.core.ids import Principal, RunId, SessionId, StreamId
from palyra.core.projections.usage import nano_usd
from palyra.core.routing import reserved_amount
from palyra.ports.views import SpendFilter, Usage

ACCOUNTS_MAX = 10_000  # Accounts of days and runs that are over pile up; the oldest are read again if ever needed.

Turn = tuple[RunId, int]


class Spent(msgspec.Struct, frozen=True):
    """Spend that the sheet records, and on whose behalf."""

    spender: Spender
    data: UsageRecorded
    at_ms: int


class Factor(NamedTuple):
    """What an estimate is multiplied by."""

    usd: float = 1.0
    tokens: float = 1.0


class Hold:
    """The reservation of one session's call."""

    __slots__ = ("accounts", "amount", "model", "turn")

    def __init__(self, turn: Turn, accounts: tuple[Account, ...], amount: Amount, model: str | None) -> None:
        self.turn = turn
        self.accounts = accounts
        self.amount = amount
        self.model = model


class Ledger:
    def __init__(self, usage: Usage, budgets: tuple[Budget, ...], wake: Callable[[SessionId], None]) -> None:
        self._usage = usage
        self._budgets = budgets
        self._wake = wake
        self._spent: dict[Account, Amount] = {}
        self._holds: dict[SessionId, Hold] = {}
        self._waiting: dict[SessionId, None] = {}
        self._factors: dict[str, Factor] = {}
        self._settling_count = 0
        self._loading_count = 0
        self._settled = asyncio.Event()
        self._loaded = asyncio.Event()
        self._is_open = not budgets

    @property
    def is_open(self) -> bool:
        """Closed until what a restart cut off is counted."""
        return self._is_open

    @property
    def has_budgets(self) -> bool:
        """Whether what a call may say must be bounded, so that what it may cost is."""
        return bool(self._budgets)

    def open(self) -> None:
        self._is_open = True
        self._wake_waiting()

    def factor(self, model: str) -> Factor | None:
        """By how much estimates of this model have been too low, at worst; None before its first settled call."""
        return self._factors.get(model)

    async def standings(self, spender: Spender, now_ms: int) -> tuple[Standing, ...]:
        """How every budget stands that this spender draws on. Nothing is awaited once all are read, so they fit together."""
        while missing := [account for _, account in self._accounts(spender, now_ms) if account not in self._spent]:
            await self._load(missing[0])
        return tuple(
            Standing(budget=budget, spent=self._spent[account], reserved=self._reserved(account))
            for budget, account in self._accounts(spender, now_ms)
        )

    def reserve(self, spender: Spender, plan: RoutePlanned, now_ms: int) -> None:
        """In the name of the session, which has one call out at most; it holds until `follow` says otherwise."""
        accounts = tuple(account for _, account in self._accounts(spender, now_ms))
        turn = (spender.run_id, plan.turn)
        self._holds[spender.session_id] = Hold(turn, accounts, reserved_amount(plan), plan.chosen)

    def wait(self, session_id: SessionId) -> None:
        """Somebody will be told when there may be room."""
        self._waiting[session_id] = None

    def follow(self, session_id: SessionId, calling: Turn | None) -> None:
        """The turn whose call is out, by the session's durable state. Any other reservation of the session is released."""
        hold = self._holds.get(session_id)
        if hold is not None and hold.turn != calling:
            del self._holds[session_id]
            self._wake_waiting()

    @asynccontextmanager
    async def settling(self, count: int) -> AsyncIterator[None]:
        """While spend is being recorded nobody may tell whether the projection holds it already, so no account is read."""
        while count and self._loading_count:
            await self._loaded.wait()
        self._settling_count += count
        try:
            yield
        finally:
            self._settling_count -= count
            if self._settling_count == 0:
                self._settled.set()
                self._settled = asyncio.Event()

    def record(self, recorded: Spent) -> None:
        """Durable spend."""
        data = recorded.data
        spent = Amount(nano_usd(data.cost_usd), data.input_tokens + data.output_tokens)
        self._learn(recorded.spender, data, spent)
        for account in {account for _, account in self._accounts(recorded.spender, recorded.at_ms)}:
            before = self._spent.get(account)
            if before is not None:
                self._spent[account] = Amount(before.nano_usd + spent.nano_usd, before.tokens + spent.tokens)

    def _learn(self, spender: Spender, data: UsageRecorded, spent: Amount) -> None:
        """An estimate that was too low once is corrected for all that follow."""
        hold = self._holds.get(spender.session_id)
        if data.is_estimate or hold is None or hold.turn != (spender.run_id, data.turn) or not self._budgets:
            return
        known = self._factors.get(data.model, Factor())
        base = known if hold.model == data.model else Factor()
        self._factors[data.model] = Factor(
            max(known.usd, base.usd * _ratio(spent.nano_usd, hold.amount.nano_usd)),
            max(known.tokens, base.tokens * _ratio(spent.tokens, hold.amount.tokens)),
        )

    def _accounts(self, spender: Spender, now_ms: int) -> list[tuple[Budget, Account]]:
        return [(budget, account_of(budget, spender, now_ms)) for budget in self._budgets]

    def _reserved(self, account: Account) -> Amount:
        holds = [hold.amount for hold in self._holds.values() if account in hold.accounts]
        return Amount(sum(each.nano_usd for each in holds), sum(each.tokens for each in holds))

    async def _load(self, account: Account) -> None:
        """Once, while no spend is being recorded."""
        self._loading_count += 1
        try:
            while self._settling_count:
                await self._settled.wait()
            if account not in self._spent:
                spend = await self._usage.spent(_filter(account))
                self._spent[account] = Amount(spend.nano_usd, spend.tokens)
        finally:
            self._loading_count -= 1
            if self._loading_count == 0:
                self._loaded.set()
                self._loaded = asyncio.Event()
        while len(self._spent) > ACCOUNTS_MAX:
            del self._spent[next(iter(self._spent))]

    def _wake_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for session_id in waiting:
            self._wake(session_id)


def _ratio(actual: int, reserved: int) -> float:
    return actual / reserved if reserved > 0 else 1.0


def _filter(account: Account) -> SpendFilter:
    subject = account.subject
    return SpendFilter(
        since_ms=account.since_ms,
        until_ms=account.until_ms,
        principal=Principal(subject) if account.scope is BudgetScope.PRINCIPAL else None,
        agent=subject if account.scope is BudgetScope.AGENT else None,
        channel=subject if account.scope is BudgetScope.CHANNEL else None,
        session_id=SessionId(StreamId(subject)) if account.scope is BudgetScope.SESSION else None,
        run_id=RunId(subject) if account.scope is BudgetScope.RUN else None,
    )
