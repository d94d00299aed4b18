"""Finds the principal whose permissions apply to a named thing.

Owns: the answer for each kind of thing. It is the asking principal if they may see the thing anyway (L11), else the
owner of its session. It is None if there is no such thing.
Does not own: who may use another's permissions (gateway.access).
"""

from palyra.core.ids import (
    ApprovalId,
    CandidateId,
    GrantId,
    JobId,
    Principal,
    RoutineId,
    RunId,
    SessionId,
    is_system_stream,
)
from palyra.engine.setup import Views


class OwnerLookup:
    def __init__(self, views: Views) -> None:
        self._views = views

    async def of_session(self, principal: Principal, session_id: SessionId) -> Principal | None:
        row = await self._views.sessions.session(session_id, None)
        return row.owner if row is not None else None

    async def of_run(self, principal: Principal, run_id: RunId) -> Principal | None:
        if await self._views.runs.run(run_id, principal) is not None:
            return principal
        row = await self._views.runs.run(run_id, None)
        return await self.of_session(principal, row.session_id) if row is not None else None

    async def of_approval(self, principal: Principal, approval_id: ApprovalId) -> Principal | None:
        if await self._views.approvals.approval(approval_id, principal) is not None:
            return principal
        row = await self._views.approvals.approval(approval_id, None)
        if row is not None and is_system_stream(row.session_id):
            return Principal(row.session_id)
        return await self.of_session(principal, row.session_id) if row is not None else None

    async def of_grant(self, principal: Principal, grant_id: GrantId) -> Principal | None:
        row = await self._views.approvals.grant(grant_id, None)
        return row.principal if row is not None else None

    async def of_routine(self, principal: Principal, routine_id: RoutineId) -> Principal | None:
        row = await self._views.routines.routine(routine_id)
        return row.principal if row is not None else None

    async def of_job(self, principal: Principal, job_id: JobId) -> Principal | None:
        job = await self._views.jobs.job(job_id)
        return job.principal if job is not None else None

    async def of_candidate(self, principal: Principal, candidate_id: CandidateId) -> Principal | None:
        candidate = await self._views.learning.candidate(candidate_id, None)
        return candidate.owner if candidate is not None else None
