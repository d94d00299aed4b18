"""The projection views: the queries behind lists and look-ups.

Does not own: changing rows, which only commits do.
Every query about people's resources takes the principal it is asked for (L11); None is the offline operator.
"""

from datetime import UTC, tzinfo
from enum import Enum
from typing import Protocol

import msgspec

from palyra.core.events.tool import ApprovalStatus
from palyra.core.ids import ApprovalId, GrantId, Principal, RunId, SessionId
from palyra.core.projections.rows import (
    ApprovalRow,
    FileRow,
    GrantKind,
    GrantRow,
    RunRow,
    SessionRow,
    TaintRow,
    UsageRow,
)
from palyra.core.run.states import RunState


class SessionViews(Protocol):
    async def session(self, session_id: SessionId, principal: Principal | None) -> SessionRow | None: ...

    async def session_by_key(self, key: str, principal: Principal) -> SessionRow | None: ...

    async def session_by_label(self, label: str, principal: Principal) -> SessionRow | None:
        """Returns the newest session of that label: labels are words for people and need not be unique."""
        ...

    async def sessions(
        self, principal: Principal | None, after: str, limit: int, *, has_delegated: bool = False
    ) -> tuple[SessionRow, ...]:
        """Returns sessions in order of id, which is the order of creation; `after` is the last id of the page before.

        Sessions of service runs are left out, and those of delegated runs unless they are wanted.
        """
        ...

    async def dependents(self, session_id: SessionId) -> tuple[SessionRow, ...]:
        """Returns its branches, and the sessions of service runs and delegated runs that are for it.

        They are erased together with it, or nothing is erased.
        """
        ...

    async def inactive_families(self, before_ms: int, limit: int) -> tuple[tuple[SessionId, ...], ...]:
        """Returns sessions with their dependents, none of which was active since `before_ms`.

        They are to be erased together or not at all.
        """
        ...


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Service runs and delegated runs are left out unless they are wanted, or their own session is asked for."""

    session_id: SessionId | None = None
    state: RunState | None = None
    has_services: bool = False
    has_delegated: bool = False
    after: str = ""
    limit: int = 100


class RunViews(Protocol):
    async def run(self, run_id: RunId, principal: Principal | None) -> RunRow | None: ...

    async def run_by_idempotency_key(self, key: str, principal: Principal) -> RunRow | None: ...

    async def runs(self, session_id: SessionId, after: str, limit: int) -> tuple[RunRow, ...]: ...

    async def list_runs(self, principal: Principal | None, query: "RunFilter") -> tuple[RunRow, ...]:
        """Returns the principal's own runs, in order of id."""
        ...

    async def unfinished(self, session_id: SessionId) -> tuple[RunRow, ...]:
        """Returns runs in the order accepted: the active one, if any, and those queued behind it."""
        ...

    async def runs_in(self, states: frozenset[RunState], after: str, limit: int) -> tuple[RunRow, ...]:
        """Returns runs of all principals, for resume and the watchdog."""
        ...

    async def children(self, run_id: RunId, principal: Principal | None) -> tuple[RunRow, ...]:
        """Returns the runs that this run delegated, in the order in which they began."""
        ...

    async def usage(self, run_id: RunId) -> tuple[UsageRow, ...]: ...


class GrantFilter(msgspec.Struct, frozen=True, kw_only=True):
    """`session_ids` begins with the session of the call."""

    kind: GrantKind
    principal: Principal
    tool: str
    session_ids: tuple[SessionId, ...]
    now_ms: int
    limit: int
    after: GrantId | None = None  # The last one of the page before.
    reset_seq: int = 0  # Those of the first session that were given for it before this seq are void.


class ApprovalViews(Protocol):
    async def approval(self, approval_id: ApprovalId, principal: Principal | None) -> ApprovalRow | None: ...

    async def list_approvals(
        self,
        principal: Principal | None,
        status: ApprovalStatus | None,
        after: str,
        limit: int,
        *,
        has_system: bool = False,
    ) -> tuple[ApprovalRow, ...]:
        """Returns approvals of the principal's sessions, oldest first; `after` is the last id of the page before.

        With `has_system` also the questions on system tapes, which are for operators.
        """
        ...

    async def pending_of(self, session_id: SessionId) -> tuple[ApprovalRow, ...]:
        """Returns the open questions of one session."""
        ...

    async def is_doubted(self, principal: Principal, digest: str) -> bool:
        """Tells whether an uncertain call with this digest, in any session of the principal, awaits a person's word."""
        ...

    async def grants_for(self, query: "GrantFilter") -> tuple[GrantRow, ...]:
        """Returns what is in force and could cover a call of this tool in these sessions, the newest first."""
        ...

    async def grant(self, grant_id: GrantId, principal: Principal | None) -> GrantRow | None: ...

    async def grants(self, principal: Principal | None, after: str, limit: int) -> tuple[GrantRow, ...]:
        """Returns grants and refusals that are not revoked, the oldest first; `after` is the last id of the page before."""
        ...

    async def sessions_awaiting(self, grant_id: GrantId | None, now_ms: int, limit: int) -> tuple[SessionId, ...]:
        """Returns sessions with open questions that this grant or refusal in force could cover, by tool and owner.

        None means any that was given after those questions.
        """
        ...


class UsageGroup(Enum):
    """What spend is summed by. A channel is the origin of a run."""

    DAY = "day"
    MODEL = "model"
    SESSION = "session"
    AGENT = "agent"
    PRINCIPAL = "principal"
    CHANNEL = "channel"


class UsageFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Spend of runs accepted for `principal`, from `since_ms` up to but not including `until_ms`.

    Both are whole quarters of an hour since 1970, because settled spend is summed by them. `zone` says where a day
    begins. `reader` is who asks: only its owner sees the label of a session.
    """

    group: UsageGroup
    since_ms: int
    until_ms: int | None = None
    principal: Principal | None = None
    reader: Principal | None = None
    zone: tzinfo = UTC
    after: str = ""
    limit: int = 100


class UsageSum(msgspec.Struct, frozen=True, kw_only=True):
    """`cost_nano_usd` sums the priced calls; `unpriced_count` counts those without a known price."""

    key: str
    label: str | None = None
    calls_count: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost_nano_usd: int = 0
    unpriced_count: int = 0


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """One page of sums in order of key, and the total over all pages at the same moment. The total's key is empty."""

    sums: tuple[UsageSum, ...]
    total: UsageSum


class SpendFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Every condition given must hold. Both times are whole quarters of an hour since 1970."""

    since_ms: int
    until_ms: int | None = None
    principal: Principal | None = None
    agent: str | None = None
    channel: str | None = None
    session_id: SessionId | None = None
    run_id: RunId | None = None


class Spend(msgspec.Struct, frozen=True, kw_only=True):
    """`nano_usd` counts the priced calls alone; `tokens` counts input and output of all calls."""

    nano_usd: int
    tokens: int
    unpriced_count: int


class UsageViews(Protocol):
    """Settled spend. The spend of an erased session is erased with it."""

    async def report(self, query: "UsageFilter") -> UsageReport: ...

    async def spent(self, query: "SpendFilter") -> Spend: ...


class ProvenanceViews(Protocol):
    """Where content came from. The daemon asks for itself; the result is shown to nobody but a session's owner."""

    async def taint(self, session_id: SessionId) -> TaintRow | None: ...

    async def tainted_file(self, path: str, sha256: str) -> FileRow | None:
        """Returns a row if any session wrote these bytes at this absolute path under taint."""
        ...

    async def tainted_paths(self, paths: tuple[str, ...]) -> tuple[FileRow, ...]:
        """Returns one row for each of these absolute paths at which anything was written under taint.

        The bytes at the path do not matter. A path that ends with a slash is a folder. Any file below it counts,
        because the folder's name may have come with it.
        """
        ...

    async def taints_workspace(self, root: str) -> bool:
        """Tells whether any file below this folder was written under taint."""
        ...
