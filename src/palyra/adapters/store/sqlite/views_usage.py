"""Queries for settled spend, behind ports.views.UsageViews.

Does not own: prices, budgets.
A principal's spend is that of the runs accepted for them (L11), whoever owns the session.
Invariant: sums and their total come from one statement, so that they agree while others write.
"""

from collections.abc import Iterable
from datetime import datetime, tzinfo
from typing import Any

import apsw

from palyra.adapters.store.sqlite.connection import fetch, page_limit
from palyra.adapters.store.sqlite.reads import Reads
from palyra.core.errors import Invalid
from palyra.core.projections.usage import QUARTER_MS
from palyra.ports.views import Spend, SpendFilter, UsageFilter, UsageGroup, UsageReport, UsageSum

_COUNTS = (
    "calls_count",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "cost_nano_usd",
    "unpriced_count",
)
_SUMS = ", ".join(f"sum({name}) AS {name}" for name in _COUNTS)
_SUMS_OF_USAGE = ", ".join(f"sum(usage.{name}) AS {name}" for name in _COUNTS)
_KEYS = {
    UsageGroup.DAY: "usage.quarter",
    UsageGroup.MODEL: "usage.model",
    UsageGroup.SESSION: "+usage.session_id",  # The plus keeps SQLite from walking all sessions to have them in order.
    UsageGroup.AGENT: "runs.agent",
    UsageGroup.PRINCIPAL: "runs.principal",
    UsageGroup.CHANNEL: "runs.origin",
}


# What a delegated run spends counts for every run above it, and for their sessions, agents and channel. A run and a
# session are followed down by an index. Agents and channels are looked up from each row of the period, as far as
# core.delegation.DEPTH_MAX lets runs be nested.
_WITH_RUNS = "usage JOIN runs ON runs.id = usage.run_id"
_ABOVE = """
    LEFT JOIN runs AS parent ON parent.id = runs.parent_run_id
    LEFT JOIN runs AS grandparent ON grandparent.id = parent.parent_run_id
    LEFT JOIN runs AS first ON first.id = grandparent.parent_run_id"""
_SPENT = {
    "principal": "runs.principal = :principal",
    "agent": ":agent IN (runs.agent, parent.agent, grandparent.agent, first.agent)",
    "channel": "coalesce(first.origin, grandparent.origin, parent.origin, runs.origin) = :channel",
    "session_id": """usage.session_id IN (
        WITH RECURSIVE tree (id) AS (
            SELECT :session_id
            UNION SELECT sessions.id FROM sessions JOIN tree ON sessions.serves = tree.id
            WHERE sessions.purpose = 'delegation'
        ) SELECT id FROM tree)""",
    "run_id": """usage.run_id IN (
        WITH RECURSIVE tree (id) AS (
            SELECT :run_id UNION SELECT runs.id FROM runs JOIN tree ON runs.parent_run_id = tree.id
        ) SELECT id FROM tree)""",
}


class SqliteUsage:
    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    async def report(self, query: UsageFilter) -> UsageReport:
        page_limit(query.limit)
        if query.group is UsageGroup.DAY:
            return await self._reads.ask(lambda connection: _report_by_day(connection, query))
        return await self._reads.ask(lambda connection: _report_by_key(connection, query))

    async def spent(self, query: SpendFilter) -> Spend:
        conditions, bindings = _span(query)
        for name, value in (
            ("principal", query.principal),
            ("agent", query.agent),
            ("channel", query.channel),
            ("session_id", query.session_id),
            ("run_id", query.run_id),
        ):
            if value is not None:
                conditions.append(_SPENT[name])
                bindings[name] = value
        sql = f"""
            SELECT coalesce(sum(usage.cost_nano_usd), 0),
                   coalesce(sum(usage.input_tokens + usage.output_tokens), 0),
                   coalesce(sum(usage.unpriced_count), 0)
            FROM {_tables(conditions)} WHERE {" AND ".join(conditions)}
        """  # noqa: S608 - our names; every value is bound
        ((nano_usd, tokens, unpriced_count),) = await self._reads.ask(
            lambda connection: fetch(connection, sql, bindings)
        )
        return Spend(nano_usd=nano_usd, tokens=tokens, unpriced_count=unpriced_count)


def _report_by_key(connection: apsw.Connection, query: UsageFilter) -> UsageReport:
    grouped, bindings = _grouped(query)
    sql = f"""
        WITH sums AS MATERIALIZED ({grouped}),
             page AS (SELECT * FROM sums WHERE key > :after ORDER BY key LIMIT :limit)
        SELECT page.*, coalesce(sessions.label, sessions.key) AS label, 0 AS is_total
        FROM page LEFT JOIN sessions ON :is_session AND sessions.id = page.key AND sessions.owner = :reader
        UNION ALL
        SELECT '', {_SUMS}, NULL, 1 FROM sums HAVING count(*) > 0
        ORDER BY is_total, key
    """  # noqa: S608 - our names; every value is bound
    bindings |= {
        "after": query.after,
        "limit": query.limit,
        "is_session": query.group is UsageGroup.SESSION,
        "reader": query.reader,
    }
    rows = fetch(connection, sql, bindings)
    if not rows:
        return UsageReport(sums=(), total=UsageSum(key=""))
    *sums, total = [_read(key, counts, label) for key, *counts, label, _ in rows]
    return UsageReport(sums=tuple(sums), total=total)


def _report_by_day(connection: apsw.Connection, query: UsageFilter) -> UsageReport:
    """Sums days here: SQLite knows no time zones, and a year has at most 35 000 quarters of an hour."""
    grouped, bindings = _grouped(query)
    days: dict[str, list[int]] = {}
    for quarter, *counts in fetch(connection, f"{grouped} ORDER BY key", bindings):
        _add(days.setdefault(_day(quarter, query.zone), [0] * len(_COUNTS)), counts)
    total = [0] * len(_COUNTS)
    for counts in days.values():
        _add(total, counts)
    page = sorted(key for key in days if key > query.after)[: query.limit]
    return UsageReport(sums=tuple(_read(key, days[key]) for key in page), total=_read("", total))


def _grouped(query: UsageFilter) -> tuple[str, dict[str, str | int | None]]:
    conditions, bindings = _span(query)
    key = _KEYS[query.group]
    if query.principal is not None:
        conditions.append("runs.principal = :principal")
        bindings["principal"] = query.principal
    sql = f"""
        SELECT {key} AS key, {_SUMS_OF_USAGE} FROM {_tables((key, *conditions))}
        WHERE {" AND ".join(conditions)} GROUP BY {key}
    """  # noqa: S608 - our names; every value is bound
    return sql, bindings


def _span(query: UsageFilter | SpendFilter) -> tuple[list[str], dict[str, str | int | None]]:
    conditions = ["usage.quarter >= :since"]
    bindings: dict[str, str | int | None] = {"since": _quarter(query.since_ms)}
    if query.until_ms is not None:
        conditions.append("usage.quarter < :until")
        bindings["until"] = _quarter(query.until_ms)
    return conditions, bindings


def _tables(parts: Iterable[str]) -> str:
    """Returns the tables of the query. Runs are joined only if something of theirs is asked for."""
    given = tuple(parts)
    if any("parent." in part for part in given):
        return f"{_WITH_RUNS} {_ABOVE}"
    needs_runs = any(part.startswith("runs.") for part in given)
    return _WITH_RUNS if needs_runs else "usage"


def _quarter(at_ms: int) -> int:
    if at_ms % QUARTER_MS:
        raise Invalid("quarter_expected", f"spend is asked for by whole quarters of an hour; {at_ms} ms is within one")
    return at_ms // QUARTER_MS


def _day(quarter: int, zone: tzinfo) -> str:
    """Returns the date where the quarter begins.

    That is exact: clocks have long been set by whole quarters everywhere.
    """
    return datetime.fromtimestamp(quarter * QUARTER_MS / 1000, zone).date().isoformat()


def _add(sums: list[int], counts: Iterable[int]) -> None:
    for index, count in enumerate(counts):
        sums[index] += count


def _read(key: str, counts: Iterable[Any], label: str | None = None) -> UsageSum:
    return UsageSum(key=key, label=label, **dict(zip(_COUNTS, counts, strict=True)))
