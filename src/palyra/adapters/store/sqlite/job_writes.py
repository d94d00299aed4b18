"""Writes to the table of jobs: the SQL of each member of core.writes.JobWrite.

Does not own: whether a write may happen. core.commit.plan has compared the token before any of these runs.
"""

from typing import assert_never

import apsw
import msgspec

from palyra.core.jobs.model import NewJob
from palyra.core.writes import ClaimJob, DropJobs, EndJob, EnqueueJob, JobWrite, RenewJob, RequeueJob

DROPPED_AT_ONCE_MAX = 10_000  # What one transaction forgets, so that no commit waits long behind it.


def apply_job_write(connection: apsw.Connection, write: JobWrite) -> None:
    match write:
        case EnqueueJob(job=job):
            _enqueue(connection, job)
        case ClaimJob():
            _claim(connection, write)
        case RenewJob():
            sql = "UPDATE jobs SET leased_until_ms = ?, progress_at_ms = ?, progress = ? WHERE id = ?"
            connection.execute(sql, (write.leased_until_ms, write.progress_at_ms, write.progress, write.job_id))
        case RequeueJob():
            _requeue(connection, write)
        case EndJob():
            sql = """
                UPDATE jobs
                SET state = ?, token = ?, error = ?, updated_at_ms = ?, leased_until_ms = 0,
                    progress = coalesce(?, progress)
                WHERE id = ?
            """
            cells = (write.state.value, write.token + 1, write.error, write.at_ms, write.progress, write.job_id)
            connection.execute(sql, cells)
        case DropJobs(before_ms=before_ms, kind=kind):
            sql = """
                DELETE FROM jobs WHERE id IN (
                    SELECT id FROM jobs WHERE state NOT IN ('queued', 'running') AND updated_at_ms < :before
                        AND (:kind IS NULL OR kind = :kind)
                    ORDER BY updated_at_ms LIMIT :most
                )
            """
            connection.execute(sql, {"before": before_ms, "kind": kind, "most": DROPPED_AT_ONCE_MAX})
        case _:
            assert_never(write)


def _enqueue(connection: apsw.Connection, job: NewJob) -> None:
    sql = """
        INSERT INTO jobs (
            id, kind, principal, payload, state, priority, dedupe_key, session_id, not_before_ms, expires_at_ms,
            attempts, losses, owner, token, leased_until_ms, progress_at_ms, progress, error, created_at_ms, updated_at_ms
        ) VALUES (?, ?, ?, ?, 'queued', ?, ?, ?, ?, ?, 0, 0, NULL, 1, 0, 0, '', NULL, ?, ?)
        ON CONFLICT (kind, dedupe_key) WHERE dedupe_key IS NOT NULL AND state IN ('queued', 'running') DO NOTHING
    """
    payload = msgspec.json.encode(job.payload).decode()
    named = (job.id, job.kind, job.principal, payload, job.priority, job.dedupe_key, job.session_id)
    times = (job.not_before_ms, job.expires_at_ms, job.created_at_ms, job.created_at_ms)
    connection.execute(sql, (*named, *times))


def _claim(connection: apsw.Connection, write: ClaimJob) -> None:
    sql = """
        UPDATE jobs
        SET state = 'running', owner = ?, token = ?, leased_until_ms = ?, attempts = attempts + 1,
            progress_at_ms = ?, progress = '', updated_at_ms = ?
        WHERE id = ?
    """
    cells = (write.owner, write.expected_token + 1, write.leased_until_ms, write.at_ms, write.at_ms, write.job_id)
    connection.execute(sql, cells)


def _requeue(connection: apsw.Connection, write: RequeueJob) -> None:
    sql = """
        UPDATE jobs
        SET state = 'queued', owner = NULL, token = :token, leased_until_ms = 0, not_before_ms = :not_before_ms,
            error = :error, updated_at_ms = :at_ms,
            attempts = CASE :cause WHEN 'failed' THEN attempts WHEN 'asked' THEN 0 ELSE attempts - 1 END,
            losses = CASE :cause WHEN 'lost' THEN losses + 1 WHEN 'asked' THEN 0 ELSE losses END,
            expires_at_ms = CASE :cause WHEN 'asked' THEN NULL ELSE expires_at_ms END
        WHERE id = :id
    """
    cells = {
        "id": write.job_id,
        "token": write.token + 1,
        "not_before_ms": write.not_before_ms,
        "error": write.error,
        "at_ms": write.at_ms,
        "cause": write.cause.value,
    }
    connection.execute(sql, cells)
