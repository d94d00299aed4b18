"""Trees of delegated runs, as people see them (L11).

Owns: reading a run and everything it delegated. Does not own: starting or ending them (engine.delegation).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from palyra.core.errors import NotFound
from palyra.core.events.tool import ToolStarted
from palyra.core.ids import Principal, RunId, SessionId, derive_child_ids
from palyra.core.projections.rows import RunRow
from palyra.engine.api.requests import RunUsage
from palyra.engine.api.run_records import task_of, usage_of
from palyra.ports.journal import Journal
from palyra.ports.views import RunViews

EVENTS_MAX = 20_000  # A run cannot record more, even with the largest limits.
PAGE_EVENTS = 1_000
RUNS_MAX = 500  # Of one answer. The nearest runs come first, and `is_cut` tells that some are left out.


class RunNode(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a tree. `task` is the beginning of its prompt; `usage` is its own, without that of its children."""

    id: RunId
    session_id: SessionId
    parent_run_id: RunId | None
    depth: int
    state: str
    reason: str | None
    agent: str
    task: str
    usage: RunUsage
    created_at_ms: int
    updated_at_ms: int
    children: tuple["RunNode", ...] = ()


class RunTree(msgspec.Struct, frozen=True, kw_only=True):
    """`total` is the usage of all runs shown; its cost is null if the price of a call is unknown."""

    root: RunNode
    runs_count: int
    total: RunUsage
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class RunTreeService:
    views: RunViews
    journal: Journal

    async def get(self, principal: Principal, run_id: RunId) -> RunTree:
        root = await self.views.run(run_id, principal)
        if root is None:
            raise NotFound("run_unknown", f"there is no run {run_id}")
        rows = [root]
        children: dict[RunId, list[RunRow]] = {}
        is_cut = False
        for row in rows:  # The list grows while it is walked, so nearer runs come first.
            found = await self._in_call_order(row, await self.views.children(row.id, principal))
            room = RUNS_MAX - len(rows)
            is_cut = is_cut or len(found) > room
            children[row.id] = list(found[:room])
            rows += found[:room]
        tasks = {row.id: await task_of(self.journal, row) for row in rows}
        return RunTree(root=_node(root, 0, children, tasks), runs_count=len(rows), total=_total(rows), is_cut=is_cut)

    async def _in_call_order(self, parent: RunRow, found: Sequence[RunRow]) -> list[RunRow]:
        """Sorts children by the calls that delegated them. Their own times are those of slots and restarts."""
        if len(found) < 2:
            return list(found)
        wanted = {child.id for child in found}
        places: dict[RunId, int] = {}
        after_seq, until_seq = parent.accepted_seq, parent.ended_seq or parent.accepted_seq + EVENTS_MAX
        while len(places) < len(found) and after_seq < until_seq:
            events = await self.journal.read(parent.session_id, after_seq, PAGE_EVENTS)
            if not events:
                break
            after_seq = events[-1].seq
            started = [event.data for event in events if isinstance(event.data, ToolStarted)]
            for child_id in (derive_child_ids(parent.id, data.effect_id)[1] for data in started):
                if child_id in wanted:
                    places.setdefault(child_id, len(places))
        return sorted(found, key=lambda child: places.get(child.id, len(found)))


def _node(row: RunRow, depth: int, children: dict[RunId, list[RunRow]], tasks: dict[RunId, str]) -> RunNode:
    return RunNode(
        id=row.id,
        session_id=row.session_id,
        parent_run_id=row.parent_run_id,
        depth=depth,
        state=row.state.value,
        reason=row.reason.value if row.reason is not None else None,
        agent=row.agent,
        task=tasks[row.id],
        usage=usage_of(row),
        created_at_ms=row.created_at_ms,
        updated_at_ms=row.updated_at_ms,
        children=tuple(_node(child, depth + 1, children, tasks) for child in children[row.id]),
    )


def _total(rows: list[RunRow]) -> RunUsage:
    used = [usage_of(row) for row in rows]
    costs = [each.cost_usd for each in used if each.cost_usd is not None]
    return RunUsage(
        input_tokens=sum(each.input_tokens for each in used),
        output_tokens=sum(each.output_tokens for each in used),
        cost_usd=sum(costs) if len(costs) == len(used) else None,
    )
