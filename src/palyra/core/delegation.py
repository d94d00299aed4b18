"""Delegation: the rules of runs that another run started with a tool call.

Owns: how deep and how many, what a child inherits, how its tools are narrowed, and where its answer comes from.
Does not own: starting a child and waiting for it (engine.delegation).
Invariants: a child never has a tool that a run above it has not, by agent or by open skill. It begins with the whole
taint of its parent's context, and its answer brings its own taint back (L8).
"""

import hashlib
from collections.abc import Iterable

from msgspec.structs import replace

from palyra.core.agents import AgentSpec, is_named
from palyra.core.budget import NANO
from palyra.core.events.run import Ancestor, RunAccepted, RunLimits
from palyra.core.events.session import SessionCreated, TaintSource
from palyra.core.ids import ULID_RANDOM_BYTES, JobId, Principal, RunId, SessionId, length_prefixed, make_ulid
from palyra.core.jobs.model import NewJob
from palyra.core.run.loop import active_ms_at
from palyra.core.run.state import Run
from palyra.core.taint import UNNAMED, Taint, label, labels
from palyra.core.tools import ToolSpec
from palyra.core.trust import Trust, is_tainting

ORIGIN = "delegation"
PURPOSE = "delegation"
JOB = "delegation"
DEPTH_MAX = 3  # Deeper trees cost more than they bring, and nobody can follow them.
CHILDREN_MAX = 16  # Of one run, over its whole life.
# Four calls may run at once. With a fifth each, the parent has as much left to make something of the answers.
SHARE_OF_BUDGET = 0.2
SHARE_OF_TIME = 0.9  # Of what the parent's wall clock leaves.


def extend_lineage(run: Run, session_id: SessionId, agent: AgentSpec) -> tuple[Ancestor, ...]:
    """Returns the lineage of a child of this run."""
    parent = Ancestor(
        run_id=run.run_id,
        session_id=session_id,
        agent=run.agent,
        origin=run.origin,
        tools=agent.tools,
        budget_nano_usd=run.budget_nano_usd,
    )
    return (*run.lineage, parent)


def child_limits(limits: RunLimits, run: Run, now_ms: int) -> RunLimits:
    """Returns limits under which a child ends before its parent has to, so that the parent can still answer."""
    left_ms = max(0, run.limits.wall_clock_ms - active_ms_at(run.loop, now_ms))
    return replace(limits, wall_clock_ms=max(1, min(limits.wall_clock_ms, int(left_ms * SHARE_OF_TIME))))


def accept_child(
    run: Run, lineage: tuple[Ancestor, ...], agent: str, limits: RunLimits, doubts: Iterable[str]
) -> RunAccepted:
    """Returns the run.accepted of a child, without its cap. `doubts` are the parent's uncertain calls (L2)."""
    return RunAccepted(
        agent=agent,
        origin=ORIGIN,
        can_ask=run.can_ask,
        limits=limits,
        # A caller that chose a model for the parent's agent did not choose one for another agent.
        model=run.model if agent == run.agent else None,
        lineage=lineage,
        reply=run.reply,
        skills=run.skills,
        doubts=tuple(sorted({*run.doubts, *doubts})),
    )


def open_child(owner: Principal, agent: str, parent: SessionId, taint: Taint) -> SessionCreated:
    return SessionCreated(owner=owner, agent=agent, purpose=PURPOSE, serves=parent, taint=taint)


def inherited_taint(taint: Taint, trust: Trust) -> Taint:
    """Returns the sources that a child begins with: its parent's, also those that a person vouches for."""
    if not taint and is_tainting(trust):
        return (TaintSource(source=UNNAMED, since_seq=1),)
    return taint


def is_born_tainted(lineage: tuple[Ancestor, ...], taint: Taint) -> bool:
    """Tells whether a delegated session began with sources that nobody vouches for. Its first event named them."""
    return bool(lineage) and any(each.since_seq == 1 and not each.is_trusted for each in taint)


def channel_of(run: Run) -> str:
    """Returns where the work came from. A child counts as what its first ancestor came by, for policies and budgets."""
    return run.lineage[0].origin if run.lineage else run.origin


def agents_above(run: Run) -> tuple[str, ...]:
    """Returns the other agents that this run works for, each once."""
    return tuple(dict.fromkeys(each.agent for each in run.lineage if each.agent != run.agent))


def narrowing_ancestor(lineage: Iterable[Ancestor], spec: ToolSpec) -> str | None:
    """Returns the agent of a run above that may not use this tool, if there is one."""
    for ancestor in lineage:
        if not is_named(spec.name, ancestor.tools):
            return ancestor.agent
    return None


def cap_nano_usd(budget_usd: float | None, left_usd: float | None) -> int | None:
    """Returns the most that a child may spend: what was asked for, else a share of what its parent has left.

    A parent without a budget gives none. Nor does one whose budget is used up: that budget decides then.
    """
    if budget_usd is not None:
        return round(budget_usd * NANO)
    if left_usd is None or left_usd <= 0:
        return None
    return round(left_usd * SHARE_OF_BUDGET * NANO)


def end_children_job(run_id: RunId, owner: Principal, session_id: SessionId, now_ms: int) -> NewJob:
    """Returns the job that ends the children of a run that is over. It is queued in the commit that ends the run."""
    mark = hashlib.sha256(length_prefixed(JOB.encode(), run_id.encode())).digest()
    return NewJob(
        id=JobId(make_ulid(now_ms, mark[:ULID_RANDOM_BYTES])),
        kind=JOB,
        principal=owner,
        payload={"run_id": run_id},
        dedupe_key=run_id,
        session_id=session_id,
        created_at_ms=now_ms,
    )


def origin_of_answer(run_id: RunId, taint: Taint, trust: Trust, known: Iterable[str]) -> tuple[Trust, str | None]:
    """Returns the trust of a child's answer and its source.

    `known` are the sources that the child began with. One new source is named itself; for several the run stands.
    """
    sources = labels(taint) if taint else ((UNNAMED,) if is_tainting(trust) else ())
    if not sources:
        return Trust.LOCAL, None
    new = tuple(source for source in sources if source not in frozenset(known))
    if len(new) > 1:
        return Trust.EXTERNAL, label("delegation", run_id)
    return Trust.EXTERNAL, (new or sources)[0]
