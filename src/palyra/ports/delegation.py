"""The Delegation port: starts a child run for a tool call, and waits for its end.

Does not own: who starts runs (the engine), nor the tool (adapters.tools.agent_delegate).
The engine is made after the tools, so tools get a DelegationSlot, into which the engine puts itself.
"""

from typing import Protocol

import msgspec

from palyra.core.ids import RunId, SessionId
from palyra.core.trust import Trust
from palyra.ports.tools import ToolCallContext


class DelegationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`agent` None is the caller's own. `budget_usd` caps what the child and its own children may spend."""

    prompt: str
    agent: str | None = None
    budget_usd: float | None = None


class DelegationRefused(msgspec.Struct, frozen=True):
    """No child was started, or it is gone. The message says why and what to do."""

    code: str
    message: str


class DelegationOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a child ended. `answer` is None unless it is done; then `reason` and `message` say why.

    `trust` and `source` are those of everything it says (L8).
    """

    run_id: RunId
    session_id: SessionId
    answer: str | None
    reason: str
    message: str
    trust: Trust
    source: str | None


class Delegation(Protocol):
    async def perform(
        self, request: DelegationRequest, context: ToolCallContext
    ) -> DelegationOutcome | DelegationRefused:
        """Starts the child of this effect, or finds the one that an earlier attempt started, and waits for its end.

        Cancelling this cancels the child.
        """
        ...


class DelegationSlot:
    """A place for the engine's delegation. Until it is filled, nothing can be delegated."""

    def __init__(self) -> None:
        self._delegation: Delegation | None = None

    def fill(self, delegation: Delegation) -> None:
        self._delegation = delegation

    async def perform(
        self, request: DelegationRequest, context: ToolCallContext
    ) -> DelegationOutcome | DelegationRefused:
        if self._delegation is None:
            return DelegationRefused("delegation_unavailable", "Runs cannot be delegated here.")
        return await self._delegation.perform(request, context)
