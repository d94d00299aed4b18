"""Applies a new grant or refusal to open questions of other sessions.

Owns: telling the sessions whose open questions it may answer.
Does not own: judging them again (answer_builder).
"""

from asyncio import Future
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import structlog

from palyra.core.ids import GrantId, RunId, SessionId
from palyra.engine.session.commands import Command, ReconsiderApprovals
from palyra.engine.tasks import TaskSupervisor
from palyra.ports.clock import Clock
from palyra.ports.views import ApprovalViews

SESSIONS_MAX = 500  # For one answer. Questions of further sessions stay open until answered or expired.

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class GrantFanout:
    approvals: ApprovalViews
    clock: Clock
    tasks: TaskSupervisor
    post: Callable[[SessionId, Command], "Future[RunId | None]"]

    def spread(self, grant_id: GrantId) -> None:
        """Call it once the grant or refusal is durable."""
        if not self.tasks.is_closing:
            self.tasks.spawn(self.reconsider(grant_id), f"grant {grant_id}")

    async def reconsider(self, grant_id: GrantId | None) -> None:
        """None stands for any answer given just before a restart and not applied yet."""
        now_ms = self.clock.now_ms()
        for session_id in await self.approvals.sessions_awaiting(grant_id, now_ms, SESSIONS_MAX):
            self.post(session_id, ReconsiderApprovals()).add_done_callback(partial(_log_failure, session_id))


def _log_failure(session_id: SessionId, reply: "Future[RunId | None]") -> None:
    error = reply.exception() if not reply.cancelled() else None
    if error is not None:
        log.error("reconsider_failed", session_id=session_id, error=str(error))
