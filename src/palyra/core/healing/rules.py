"""The rules that turn observations into findings.

Owns: every limit of self-healing, with its reason. Does not own: observing (engine.healing.probes).
Invariants: evidence holds ids, names and numbers, never words of a session: it is stored where nothing is erased.
A run that waits for a person has no heartbeat, so no rule can take it for stuck. What makes progress, or is
within the time that it declared, is no finding.
"""

from collections.abc import Iterable

import msgspec

from palyra.core.healing.model import Finding, HealingDomain, Remedy, Severity
from palyra.core.ids import ApprovalId, RunId, SessionId
from palyra.core.jobs.model import Job, JobState

STUCK_MS = 120_000  # Eight heartbeats, and as long as a model may take for its first token by default.
MARGIN_MS = 60_000  # What its own time limit should have ended is given this long to end.
APPROVAL_MS = 600_000
DEAD_JOB_MS = 86_400_000  # A job that failed for good is told of for a day.
DISK_LOW_BYTES = 1024**3  # Room for a day of a busy journal.
DISK_FULL_BYTES = 200 * 1024**2  # With less, a write may fail at any moment.
LOG_BYTES_MAX = 256 * 1024**2  # The log is emptied at about 16 MiB, unless a reader holds it.
# A call that hangs is another subject than the model itself, whose breaker may be open because of it.
CALL_SUFFIX = ":call"
CLOCK_JUMP_MS = 30_000  # Less is a correction that nothing notices.


class Moment(msgspec.Struct, frozen=True):
    """Now, and when the wall clock last jumped (0: never). No age reaches back behind a jump.

    `jump_ms` is how far the clock jumped since the cycle before.
    """

    now_ms: int
    jumped_at_ms: int = 0
    jump_ms: int = 0

    def age_ms(self, at_ms: int) -> int:
        if at_ms > self.now_ms:  # The clock was set back since.
            at_ms = self.jumped_at_ms or self.now_ms
        return self.now_ms - max(at_ms, self.jumped_at_ms)


class RunObservation(msgspec.Struct, frozen=True, kw_only=True):
    """A run in progress. `patience_ms` is how long what it waits for may take without a sign of progress.

    `model` is set while the run waits for a model, `tool` while it waits for a tool. `is_here` tells whether this
    process drives the run.
    """

    run_id: RunId
    session_id: SessionId | None
    at_ms: int
    progress_at_ms: int
    patience_ms: int = STUCK_MS
    model: str | None = None
    tool: str | None = None
    is_here: bool = True


class JobObservation(msgspec.Struct, frozen=True, kw_only=True):
    """A running or dead job. `timeout_ms` is what its kind allows for one attempt."""

    job: Job
    timeout_ms: int
    is_here: bool = True


class ApprovalObservation(msgspec.Struct, frozen=True, kw_only=True):
    approval_id: ApprovalId
    created_at_ms: int
    expires_at_ms: int | None
    tool: str | None


class ModelObservation(msgspec.Struct, frozen=True, kw_only=True):
    """`waiting_ms` is the longest time for which a call to this model has given no sign."""

    model: str
    provider: str
    is_open: bool
    waiting_ms: int = 0
    patience_ms: int = STUCK_MS


def run_findings(observed: Iterable[RunObservation], moment: Moment) -> tuple[Finding, ...]:
    return tuple(found for one in observed if (found := _run_finding(one, moment)) is not None)


def _run_finding(run: RunObservation, moment: Moment) -> Finding | None:
    silent_ms, idle_ms = moment.age_ms(run.at_ms), moment.age_ms(run.progress_at_ms)
    if silent_ms > STUCK_MS:
        evidence = f"no heartbeat for {_seconds(silent_ms)}"
    elif idle_ms > run.patience_ms:
        evidence = f"alive, but no event and no text for {_seconds(idle_ms)}"
    else:
        return None
    waits = f"the model {run.model}" if run.model else f"the tool {run.tool}" if run.tool else "nothing that is known"
    session = f" (session {run.session_id})" if run.session_id is not None else ""
    return Finding(
        domain=HealingDomain.RUN,
        subject=run.run_id,
        severity=Severity.CRITICAL,
        evidence=f"run {run.run_id}{session}: {evidence}; it waits for {waits}",
        remediation=f"Look at it with palyra runs show {run.run_id}, or end it with palyra runs cancel {run.run_id}.",
        remedies=(Remedy.REDRIVE_RUN, Remedy.CANCEL_RUN),
    )


def job_findings(observed: Iterable[JobObservation], moment: Moment) -> tuple[Finding, ...]:
    return tuple(found for one in observed if (found := _job_finding(one, moment)) is not None)


def _job_finding(observed: JobObservation, moment: Moment) -> Finding | None:
    job = observed.job
    if job.state is JobState.DEAD:
        return _dead_job(job) if moment.now_ms - job.updated_at_ms <= DEAD_JOB_MS else None
    late_ms = moment.now_ms - max(job.leased_until_ms, moment.jumped_at_ms)
    idle_ms = moment.age_ms(max(job.progress_at_ms, job.updated_at_ms))
    if late_ms > STUCK_MS:
        remedy, what = Remedy.REQUEUE_JOB, f"its worker's lease ended {_seconds(late_ms)} ago"
    elif idle_ms > observed.timeout_ms + MARGIN_MS:
        remedy = Remedy.STOP_JOB_ATTEMPT if observed.is_here else Remedy.REQUEUE_JOB
        what = f"no progress for {_seconds(idle_ms)}, and an attempt may take {_seconds(observed.timeout_ms)}"
    else:
        return None
    # A handler that ignores its end keeps its place. Its job is then taken from it.
    remedies = (remedy,) if remedy is Remedy.REQUEUE_JOB else (remedy, Remedy.REQUEUE_JOB)
    return Finding(
        domain=HealingDomain.JOB,
        subject=job.id,
        severity=Severity.CRITICAL,
        evidence=f"job {job.id} of kind {job.kind}: {what} (attempt {job.attempts})",
        remediation="Put it back into the queue with palyra incidents act, or restart the daemon.",
        remedies=remedies,
    )


def _dead_job(job: Job) -> Finding:
    return Finding(
        domain=HealingDomain.JOB,
        subject=job.id,
        severity=Severity.WARNING,
        # The error may hold words of a session. A system tape is never erased, so they stay with the job.
        evidence=f"job {job.id} of kind {job.kind} failed {job.attempts} times and is not tried again",
        remediation="Mend what the job's error names, then try the job again.",
    )


def approval_findings(observed: Iterable[ApprovalObservation], now_ms: int) -> tuple[Finding, ...]:
    """Questions that wait long. Waiting is what they are for, so nothing is ever done about them."""
    return tuple(
        Finding(
            domain=HealingDomain.APPROVAL,
            subject=one.approval_id,
            severity=Severity.NOTICE,
            evidence=f"approval {one.approval_id} for {one.tool or 'a question'} has waited for a person for "
            f"{_seconds(now_ms - one.created_at_ms)}",
            remediation=f"Answer it: palyra approvals show {one.approval_id}.",
        )
        for one in observed
        if now_ms - one.created_at_ms > APPROVAL_MS and (one.expires_at_ms is None or one.expires_at_ms > now_ms)
    )


def model_findings(observed: Iterable[ModelObservation]) -> tuple[Finding, ...]:
    return tuple(found for one in observed if (found := _model_finding(one)) is not None)


def _model_finding(model: ModelObservation) -> Finding | None:
    if model.is_open:
        subject, evidence = model.model, f"{model.model} failed several times in a row and is left alone for a while"
        remedies: tuple[Remedy, ...] = ()
    elif model.waiting_ms > model.patience_ms:
        subject = model.model + CALL_SUFFIX
        evidence = f"a call to {model.model} has given no sign for {_seconds(model.waiting_ms)}"
        remedies = (Remedy.OPEN_BREAKER,)
    else:
        return None
    return Finding(
        domain=HealingDomain.PROVIDER,
        subject=subject,
        severity=Severity.WARNING,
        evidence=f"{evidence} (provider {model.provider})",
        remediation=f"Try it with palyra models check {model.model}; check its key, its quota and the network.",
        remedies=remedies,
    )


def policy_findings(state: str) -> tuple[Finding, ...]:
    if state == "ok":
        return ()
    return (
        Finding(
            domain=HealingDomain.POLICY,
            subject="policies",
            severity=Severity.CRITICAL,
            evidence=f"the policies on disk are not in force: {state}",
            remediation="Mend the file that palyra policy check names. Put a file back that is gone; if you removed it on "
            "purpose, restart the daemon.",
        ),
    )


def disk_findings(free_bytes: int) -> tuple[Finding, ...]:
    if free_bytes >= DISK_LOW_BYTES:
        return ()
    severity = Severity.CRITICAL if free_bytes < DISK_FULL_BYTES else Severity.WARNING
    return (
        Finding(
            domain=HealingDomain.DISK,
            subject="home",
            severity=severity,
            evidence=f"{free_bytes // 1024**2} MiB are free on the disk of the home",
            remediation="Free some space. palyra journal retain erases old sessions.",
            remedies=(Remedy.SWEEP_ARTIFACTS,),
        ),
    )


def log_findings(log_bytes: int) -> tuple[Finding, ...]:
    if log_bytes <= LOG_BYTES_MAX:
        return ()
    return (
        Finding(
            domain=HealingDomain.JOURNAL,
            subject="log",
            severity=Severity.WARNING,
            evidence=f"the journal's write-ahead log has grown to {log_bytes // 1024**2} MiB",
            remediation="Something reads the journal for a long time, such as a backup. End it, then the log can be emptied.",
            remedies=(Remedy.EMPTY_JOURNAL_LOG,),
        ),
    )


def clock_findings(jump_ms: int) -> tuple[Finding, ...]:
    if abs(jump_ms) <= CLOCK_JUMP_MS:
        return ()
    way = "forward" if jump_ms > 0 else "back"
    return (
        Finding(
            domain=HealingDomain.CLOCK,
            subject="clock",
            severity=Severity.WARNING,
            evidence=f"the wall clock went {way} by {_seconds(abs(jump_ms))} at once",
            remediation="The machine slept, or its clock was set. Check its time service if this repeats.",
        ),
    )


def artifact_findings(problem: str) -> tuple[Finding, ...]:
    if not problem:
        return ()
    return (
        Finding(
            domain=HealingDomain.ARTIFACT,
            subject="folder",
            severity=Severity.CRITICAL,
            evidence=problem,
            remediation="Restore the folder and its permissions. Large results cannot be stored or read until then.",
        ),
    )


def loop_findings(blocked_s: float, stack: str, is_from_before: bool) -> tuple[Finding, ...]:
    when = "an earlier process was ended because its event loop stood" if is_from_before else "the event loop stood"
    return (
        Finding(
            domain=HealingDomain.LOOP,
            subject="event loop",
            severity=Severity.CRITICAL if is_from_before else Severity.WARNING,
            evidence=f"{when} for {blocked_s:.1f} s at:\n{stack}",
            remediation="Nothing else runs while the loop stands. Report the place that the evidence names.",
        ),
    )


def blocked_service_finding(domain: HealingDomain, name: str, reason: str) -> Finding:
    """A service that a person has to mend. A restart would fail in the same way."""
    return Finding(
        domain=domain,
        subject=name,
        severity=Severity.WARNING,
        evidence=f"{name} does not work: {reason}",
        remediation="Do what the evidence says, then restart the daemon.",
    )


def service_finding(domain: HealingDomain, name: str, reason: str, *, restarts_itself: bool) -> Finding:
    words = "It restarts itself." if restarts_itself else "Restart it with palyra incidents act."
    return Finding(
        domain=domain,
        subject=name,
        severity=Severity.WARNING,
        evidence=f"{name} does not work: {reason}",
        remediation=f"{words} If that does not help, the daemon's log says more.",
        remedies=() if restarts_itself else (Remedy.RESTART_SERVICE,),
    )


def unanswered_finding(domain: HealingDomain, what: str) -> Finding:
    """A look that failed or did not end says something about its domain, too."""
    return Finding(
        domain=domain,
        subject="check",
        severity=Severity.WARNING,
        evidence=f"the check of {domain.value} {what}",
        remediation="The daemon's log says more. Restart the daemon if this stays.",
    )


def _seconds(duration_ms: int) -> str:
    return f"{duration_ms // 1000} s"
