"""The Tool port: what a tool must be able to say and do. Does not own: whether a call may run (engine.session.gate)."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from palyra.core.events.base import JsonObject
from palyra.core.ids import EffectId, Principal, RunId, SessionId
from palyra.core.tools import CallNature, MissingTool, ToolResult, ToolSpec


class ToolCallContext(msgspec.Struct, frozen=True, kw_only=True):
    """Who calls and where. `effect_id` is the idempotency key: the same for every attempt at one effect.

    `emit` sends live output of a stream, `stdout` or `stderr`. `has_network` says that a policy lets this call's
    sandbox reach the network. `taint` are the sources that the call was judged with. `is_delegated` says that another
    run started this one. `origin` says where the run came from, such as `http` or `channel:discord`. `is_alone` says that
    this is the last attempt at a draft, which has its roots alone.
    """

    session_id: SessionId
    run_id: RunId
    effect_id: EffectId
    principal: Principal
    agent: str
    workspace: tuple[str, ...]
    now_ms: int
    emit: Callable[[str, str], None]
    has_network: bool = False
    taint: tuple[str, ...] = ()
    is_delegated: bool = False
    origin: str = ""
    is_alone: bool = False


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        """Returns what this call would touch. It has no effects, but may look at the file system."""
        ...

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        """Runs the call. Cancelling the coroutine stops it and everything it started."""
        ...


class Catalog(Protocol):
    """All tools. This is a snapshot: a tool that was found stays the same for as long as the caller holds it."""

    def specs(self) -> tuple[ToolSpec, ...]:
        """Returns the same object until something changes, so that values computed from it can be cached."""
        ...

    def find(self, name: str) -> Tool | None: ...

    def missing(self) -> tuple[MissingTool, ...]:
        """Returns tools that this machine or a server cannot offer now, each with the reason and what to do."""
        ...


class ToolSource(Protocol):
    """Tools that come and go while the daemon runs, such as those of MCP servers and plugins.

    `tools` returns the same tuple until something changes.
    """

    def tools(self) -> tuple[Tool, ...]: ...

    def missing(self) -> tuple[MissingTool, ...]: ...
