"""What is spent on every account that a budget watches: read once, then kept up to date.

Does not own: reservations (ledger).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from palyra.core.budget import Account, Amount, BudgetScope
from palyra.core.ids import Principal, RunId, SessionId, StreamId
from palyra.ports.views import SpendFilter, UsageViews

ACCOUNTS_MAX = (
    10_000  # Accounts of past days and runs add up. The least recently used are dropped, and read again if needed.
)


class Accounts:
    """No account is read while spend is being recorded, and none is recorded while one is read.

    So nothing is counted twice, and nothing is missed.
    """

    def __init__(self, usage: UsageViews) -> None:
        self._usage = usage
        self._spent: dict[Account, Amount] = {}
        self._settling_count = 0
        self._loading_count = 0
        self._settled = asyncio.Event()
        self._loaded = asyncio.Event()

    async def load(self, accounts: tuple[Account, ...]) -> None:
        """Loads accounts. The caller must not await anything between this and reading their amounts."""
        while missing := [account for account in accounts if account not in self._spent]:
            await self._load(missing[0])

    def spent(self, account: Account) -> Amount:
        amount = self._spent.pop(account)
        self._spent[account] = amount  # The most recently used account is last.
        return amount

    def add(self, account: Account, amount: Amount) -> None:
        """Adds spend. An account that nobody has asked for yet is left to the projection."""
        before = self._spent.get(account)
        if before is not None:
            self._spent[account] = plus(before, amount)

    @asynccontextmanager
    async def settling(self, count: int) -> AsyncIterator[None]:
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

    async def _load(self, account: Account) -> None:
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


def plus(one: Amount, other: Amount) -> Amount:
    return Amount(one.nano_usd + other.nano_usd, one.tokens + other.tokens)


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
