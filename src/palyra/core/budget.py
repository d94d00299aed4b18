"""Budgets: which account a spender's money comes from, and whether one more call fits into it.

Does not own: keeping accounts (engine.spend.accounts).
Before a call is made, the most it may cost is reserved. Afterwards what it did cost is settled. A call fits while the
sum of spent, reserved and its own cost stays within the limit. The last call before the limit may go beyond it, but
only while no other call is in flight.
A delegated run draws on its own accounts and on those of every run above it. A cap on such a run is a budget as well.
Invariant: a limit is overshot by at most one request, however many run at once (L9).
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from enum import Enum
from operator import attrgetter
from typing import NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from palyra.core.events.run import Ancestor
from palyra.core.ids import Principal, RunId, SessionId

NANO = 1_000_000_000
CAP_TITLE = "delegation"  # The name of a cap on a delegated run, as plans and messages show it.


class BudgetScope(Enum):
    GLOBAL = "global"
    PRINCIPAL = "principal"
    CHANNEL = "channel"
    AGENT = "agent"
    SESSION = "session"
    RUN = "run"


class BudgetPeriod(Enum):
    DAY = "day"
    MONTH = "month"
    NONE = "none"


class BudgetAction(Enum):
    DENY = "deny"
    ASK = "ask"
    DOWNGRADE = "downgrade"


class Amount(msgspec.Struct, frozen=True):
    """Tokens are input and output together; `nano_usd` leaves out calls of unknown price."""

    nano_usd: int = 0
    tokens: int = 0


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    scope: BudgetScope
    period: BudgetPeriod = BudgetPeriod.NONE
    action: BudgetAction = BudgetAction.DENY
    limit_nano_usd: int | None = None
    limit_tokens: int | None = None
    timezone: str = "UTC"
    title: str = ""

    @property
    def name(self) -> str:
        if self.title:
            return self.title
        return self.scope.value if self.period is BudgetPeriod.NONE else f"{self.scope.value}/{self.period.value}"

    @property
    def needs_price(self) -> bool:
        """Tells whether calls of a model without a known price would escape this budget."""
        return self.limit_nano_usd is not None and self.limit_tokens is None


class Spender(msgspec.Struct, frozen=True, kw_only=True):
    """The one on whose behalf a call is made. `channel` is where the work came from.

    `ancestors` are the runs above a delegated one, and `cap_nano_usd` is the most that it may spend with its children.
    """

    principal: Principal
    channel: str
    agent: str
    session_id: SessionId
    run_id: RunId
    ancestors: tuple[Ancestor, ...] = ()
    cap_nano_usd: int | None = None

    @property
    def is_capped(self) -> bool:
        return self.cap_nano_usd is not None or any(each.budget_nano_usd is not None for each in self.ancestors)


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """One subject's spend in one period, which a budget limits. No end means that the period never ends."""

    scope: BudgetScope
    subject: str
    since_ms: int = 0
    until_ms: int | None = None


class Draw(NamedTuple):
    """A budget, and one of the accounts that a spender draws on under it."""

    budget: Budget
    account: Account


class _Measure(NamedTuple):
    """One limit, of money or of tokens."""

    limit: int
    spent: int
    reserved: int
    of: Callable[[Amount], int]


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    budget: Budget
    spent: Amount = Amount()
    reserved: Amount = Amount()

    @property
    def is_used_up(self) -> bool:
        return any(measure.spent >= measure.limit for measure in _measures(self))

    @property
    def is_reserved(self) -> bool:
        return any(measure.reserved > 0 for measure in _measures(self))


def draws_of(budgets: Iterable[Budget], spender: Spender, now_ms: int) -> tuple[Draw, ...]:
    """Returns every account that this spender draws on: its own, and those of the runs above it."""
    draws = [Draw(budget, account) for budget in budgets for account in accounts_of(budget, spender, now_ms)]
    if spender.is_capped:
        draws += _caps(spender)
    return tuple(draws)


def accounts_of(budget: Budget, spender: Spender, now_ms: int) -> tuple[Account, ...]:
    since_ms, until_ms = period_of(budget, now_ms)
    subjects = dict.fromkeys(_subjects(budget.scope, spender))
    return tuple(
        Account(scope=budget.scope, subject=subject, since_ms=since_ms, until_ms=until_ms) for subject in subjects
    )


def _caps(spender: Spender) -> list[Draw]:
    caps = [(each.run_id, each.budget_nano_usd) for each in spender.ancestors]
    return [
        Draw(
            Budget(scope=BudgetScope.RUN, limit_nano_usd=cap, title=CAP_TITLE),
            Account(scope=BudgetScope.RUN, subject=run_id),
        )
        for run_id, cap in (*caps, (spender.run_id, spender.cap_nano_usd))
        if cap is not None
    ]


def has_room(standing: Standing, amount: Amount, is_proven: bool) -> bool:
    """Tells whether the call may be made beside those in flight.

    A model that was never called before is called alone: its estimate is a guess.
    """
    if not standing.is_reserved:
        return True
    if not is_proven:
        return False
    return all(each.spent + each.reserved + each.of(amount) <= each.limit for each in _measures(standing))


def left_usd(standings: Iterable[Standing]) -> float | None:
    """Returns what the tightest budget in USD leaves after reservations; None where there is no such budget."""
    left = [
        limit - standing.spent.nano_usd - standing.reserved.nano_usd
        for standing in standings
        if (limit := standing.budget.limit_nano_usd) is not None
    ]
    return max(0, min(left)) / NANO if left else None


def period_of(budget: Budget, now_ms: int) -> tuple[int, int | None]:
    """Returns the period that contains this moment, by the budget's own calendar."""
    if budget.period is BudgetPeriod.NONE:
        return 0, None
    zone = ZoneInfo(budget.timezone)
    today = datetime.fromtimestamp(now_ms / 1000, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    if budget.period is BudgetPeriod.DAY:
        return _ms(today), _ms(_day_after(today))
    first = today.replace(day=1)
    return _ms(first), _ms(_day_after(first + timedelta(days=31)).replace(day=1))


def _day_after(day: datetime) -> datetime:
    """Uses wall clock arithmetic: days of 23 and 25 hours are days too."""
    return (day + timedelta(days=1)).replace(hour=0)


def _ms(moment: datetime) -> int:
    return int(moment.timestamp()) * 1000


def _measures(standing: Standing) -> list[_Measure]:
    budget, spent, reserved = standing.budget, standing.spent, standing.reserved
    measures: list[_Measure] = []
    if budget.limit_nano_usd is not None:
        measures.append(_Measure(budget.limit_nano_usd, spent.nano_usd, reserved.nano_usd, attrgetter("nano_usd")))
    if budget.limit_tokens is not None:
        measures.append(_Measure(budget.limit_tokens, spent.tokens, reserved.tokens, attrgetter("tokens")))
    return measures


def _subjects(scope: BudgetScope, spender: Spender) -> tuple[str, ...]:
    above = spender.ancestors
    match scope:
        case BudgetScope.GLOBAL:
            return ("",)
        case BudgetScope.PRINCIPAL:
            return (spender.principal,)
        case BudgetScope.CHANNEL:
            return (spender.channel,)
        case BudgetScope.AGENT:
            return (spender.agent, *(each.agent for each in above))
        case BudgetScope.SESSION:
            return (spender.session_id, *(each.session_id for each in above))
        case BudgetScope.RUN:
            return (spender.run_id, *(each.run_id for each in above))
