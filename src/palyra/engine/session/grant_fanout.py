"""Grants beyond their own question. Owns: telling the desks whose open questions a new grant may answer. Not: judging (gate)."""

from asyncio import Future
from functools import partial

import structlog

from palyra.core.ids import GrantId, RunId, SessionId
from palyra.engine.context import EngineContext
from palyra.engine.session.commands import ReconsiderApprovals

SESSIONS_MAX = (
    500  # Told at once of one grant; of any further the questions stay open, until they are answered or expire.
)

log = structlog.get_logger()


def spread_grant(office: EngineContext, grant_id: GrantId) -> None:
    """It was given, and that is durable."""
    if not office.tasks.is_closing:
        office.tasks.spawn(reconsider(office, grant_id), f"grant {grant_id}")


async def reconsider(office: EngineContext, grant_id: GrantId | None) -> None:
    """Without a grant: after a restart, whatever was given just before and could not be spread any more."""
    now_ms = office.clock.now_ms()
    for session_id in await office.views.approvals.sessions_awaiting(grant_id, now_ms, SESSIONS_MAX):
        office.desks.at(session_id).post(ReconsiderApprovals()).add_done_callback(partial(_tell_failure, session_id))


def _tell_failure(session_id: SessionId, reply: "Future[RunId | None]") -> None:
    error = reply.exception() if not reply.cancelled() else None
    if error is not None:
        log.error("reconsider_failed", session_id=session_id, error=str(error))
