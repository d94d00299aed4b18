"""What the clients give and take: the same records over HTTP and gRPC.

Owns: their fields. Members that a newer daemon adds are left out, so that an old client goes on working.
Does not own: the daemon's own records (engine.api.requests).
"""

from typing import Generic, TypeVar

import msgspec

from palyra.core.errors import PalyraError

TERMINAL_TYPES = frozenset({"run.done", "run.failed", "run.cancelled"})

Item = TypeVar("Item")


class RequestFailed(PalyraError):
    """The daemon refused a request, or could not answer it. `code` is its stable code."""


class RunWish(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run is started with. The same `idempotency_key` returns the same run, however often it is sent."""

    text: str
    session_id: str | None = None
    session_key: str | None = None
    agent: str | None = None
    model: str | None = None
    idempotency_key: str | None = None
    answer_schema: dict[str, object] | None = None
    must_call: tuple[str, ...] = ()
    objectives: tuple[str, ...] = ()
    when_busy: str = "queue"


class RemoteSession(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    owner: str
    agent: str
    key: str | None = None
    label: str | None = None
    created_at_ms: int
    updated_at_ms: int


class RemoteUsage(msgspec.Struct, frozen=True, kw_only=True):
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None


class RemoteObjective(msgspec.Struct, frozen=True, kw_only=True):
    """`state` is `open`, `met`, `unmet` or `unchecked`; `note` says what is missing, or why nobody could check it."""

    objective: str
    state: str
    note: str = ""


class RemoteRun(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    session_id: str
    state: str
    reason: str | None = None
    answer: str | None = None
    usage: RemoteUsage = RemoteUsage()
    objectives: tuple[RemoteObjective, ...] = ()
    created_at_ms: int
    updated_at_ms: int


class RemoteCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that an approval is about."""

    call_id: str
    arguments: object = None
    preview: str | None = None


class RemoteApproval(msgspec.Struct, frozen=True, kw_only=True):
    """`arguments` are those of the first call, with markers in place of secrets. A yes allows all of `calls`.

    If it `is_cut`, a yes needs that `read_approval` read all of it before.
    """

    id: str
    kind: str
    run_id: str | None = None
    session_id: str
    call_id: str | None = None
    tool: str | None = None
    arguments: object = None
    status: str
    rule: str
    risk: str
    preview: str | None = None
    created_at_ms: int
    expires_at_ms: int | None = None
    decided_by: str | None = None
    calls: tuple[RemoteCall, ...] = ()
    is_cut: bool = False


class ApprovalText(msgspec.Struct, frozen=True, kw_only=True):
    """A page of all that an approval would allow. `next_offset` is None on the last one."""

    text: str
    next_offset: int | None


class TapeEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded event. Its `seq` is the cursor to go on from."""

    seq: int
    position: int
    session_id: str
    run_id: str | None = None
    type: str
    at_ms: int
    actor: str
    trust: str
    data: dict[str, object]
    hash: str

    @property
    def is_terminal(self) -> bool:
        return self.type in TERMINAL_TYPES


class LiveUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """Text or progress that no tape holds: model.delta, reasoning.delta, tool.delta or progress."""

    session_id: str
    run_id: str
    type: str
    data: dict[str, object]


RunUpdate = TapeEvent | LiveUpdate


class ResultPage(msgspec.Struct, Generic[Item], frozen=True):
    """`next_after` is the cursor of the next page, None on the last one."""

    items: tuple[Item, ...]
    next_after: str | None
