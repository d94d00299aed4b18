"""The rules of self-healing, as tables: what is a finding, and what never is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.healing.model import Finding, HealingDomain, Remedy, Severity
from palyra.core.healing.rules import (
    DISK_FULL_BYTES,
    DISK_LOW_BYTES,
    LOG_BYTES_MAX,
    ApprovalObservation,
    JobObservation,
    ModelObservation,
    Moment,
    RunObservation,
    approval_findings,
    artifact_findings,
    blocked_service_finding,
    clock_findings,
    disk_findings,
    job_findings,
    log_findings,
    loop_findings,
    model_findings,
    policy_findings,
    run_findings,
    service_finding,
    unanswered_finding,
)
from palyra.core.ids import ApprovalId, JobId, NodeId, Principal, RunId, SessionId, StreamId
from palyra.core.jobs.model import Job, JobState

NOW = 100_000_000
S = 1_000


def run(**fields: object) -> RunObservation:
    defaults = {"run_id": RunId("r"), "session_id": SessionId(StreamId("s")), "at_ms": NOW, "progress_at_ms": NOW}
    return RunObservation(**{**defaults, **fields})  # type: ignore[arg-type]


def job(**fields: object) -> Job:
    defaults: dict[str, object] = {
        "id": JobId("j"),
        "kind": "sum",
        "principal": Principal("user:owner"),
        "payload": {},
        "state": JobState.RUNNING,
        "priority": 0,
        "dedupe_key": None,
        "session_id": None,
        "not_before_ms": 0,
        "expires_at_ms": None,
        "attempts": 1,
        "losses": 0,
        "owner": NodeId("n"),
        "token": 1,
        "leased_until_ms": NOW + 60 * S,
        "progress_at_ms": NOW,
        "progress": "",
        "error": None,
        "created_at_ms": NOW - 500 * S,
        "updated_at_ms": NOW - 500 * S,
    }
    return Job(**{**defaults, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("observed", "is_stuck"),
    [
        (run(), False),
        (run(at_ms=NOW - 120 * S, progress_at_ms=NOW - 120 * S), False),
        (run(at_ms=NOW - 121 * S), True),
        (run(progress_at_ms=NOW - 121 * S), True),
        # A quiet command is within its own time.
        (run(progress_at_ms=NOW - 500 * S, patience_ms=630 * S, tool="shell.run"), False),
        (run(progress_at_ms=NOW - 631 * S, patience_ms=630 * S, tool="shell.run"), True),
        # A dead process renews nothing, whatever the tool may take.
        (run(at_ms=NOW - 121 * S, progress_at_ms=NOW - 121 * S, patience_ms=630 * S), True),
        (run(at_ms=NOW + 9_000 * S, progress_at_ms=NOW + 9_000 * S), False),
    ],
)
def test_a_run_is_stuck_without_a_heartbeat_or_without_progress(observed: RunObservation, is_stuck: bool) -> None:
    found = run_findings([observed], Moment(NOW))
    assert bool(found) is is_stuck
    for finding in found:
        assert finding.remedies == (Remedy.REDRIVE_RUN, Remedy.CANCEL_RUN)
        assert finding.severity is Severity.CRITICAL
        assert finding.subject == "r"


def test_no_age_reaches_back_behind_a_jump_of_the_clock() -> None:
    slept = run(at_ms=NOW, progress_at_ms=NOW - 3_600 * S)
    assert run_findings([slept], Moment(NOW, jumped_at_ms=NOW - 60 * S)) == ()
    assert run_findings([slept], Moment(NOW, jumped_at_ms=NOW - 121 * S)) != ()
    set_back = run(at_ms=NOW, progress_at_ms=NOW + 3_600 * S)
    assert run_findings([set_back], Moment(NOW, jumped_at_ms=NOW - 60 * S)) == ()
    assert run_findings([set_back], Moment(NOW, jumped_at_ms=NOW - 121 * S)) != ()


@pytest.mark.parametrize(
    ("observed", "is_here", "remedies"),
    [
        (job(), True, None),
        (job(leased_until_ms=NOW - 120 * S), False, None),
        (job(leased_until_ms=NOW - 121 * S), False, (Remedy.REQUEUE_JOB,)),
        (job(progress_at_ms=NOW - 360 * S), True, None),
        (job(progress_at_ms=NOW - 361 * S), True, (Remedy.STOP_JOB_ATTEMPT, Remedy.REQUEUE_JOB)),
        (job(progress_at_ms=NOW - 361 * S), False, (Remedy.REQUEUE_JOB,)),
        # It has just begun, and has told of no progress yet.
        (job(progress_at_ms=0, updated_at_ms=NOW - 10 * S), True, None),
        # A long job with progress and heartbeats.
        (job(progress_at_ms=NOW - 10 * S, updated_at_ms=NOW - 36_000 * S), True, None),
        (job(state=JobState.DEAD, updated_at_ms=NOW - 5 * S, leased_until_ms=0), True, ()),
        (job(state=JobState.DEAD, updated_at_ms=NOW - 90_000 * S, leased_until_ms=0), True, None),
    ],
)
def test_a_job_is_stuck_past_its_lease_or_its_time(
    observed: Job, is_here: bool, remedies: tuple[Remedy, ...] | None
) -> None:
    found = job_findings([JobObservation(job=observed, timeout_ms=300 * S, is_here=is_here)], Moment(NOW))
    assert [finding.remedies for finding in found] == ([] if remedies is None else [remedies])


@pytest.mark.parametrize(
    ("waits_s", "expires_at_ms", "is_told"), [(600, None, False), (601, None, True), (86_400, NOW - 1, False)]
)
def test_an_approval_that_waits_is_told_and_never_acted_on(
    waits_s: int, expires_at_ms: int | None, is_told: bool
) -> None:
    observed = ApprovalObservation(
        approval_id=ApprovalId("a"), created_at_ms=NOW - waits_s * S, expires_at_ms=expires_at_ms, tool="shell.run"
    )
    found = approval_findings([observed], NOW)
    assert [(finding.severity, finding.remedies) for finding in found] == ([(Severity.NOTICE, ())] if is_told else [])


@pytest.mark.parametrize(
    ("is_open", "waiting_s", "subject", "remedies"),
    [
        (False, 120, None, ()),
        (False, 121, "m:call", (Remedy.OPEN_BREAKER,)),
        (True, 0, "m", ()),
        (True, 500, "m", ()),
    ],
)
def test_a_model_is_found_when_its_breaker_is_open_or_a_call_hangs(
    is_open: bool, waiting_s: int, subject: str | None, remedies: tuple[Remedy, ...]
) -> None:
    observed = ModelObservation(model="m", provider="p", is_open=is_open, waiting_ms=waiting_s * S)
    found = model_findings([observed])
    assert [(finding.subject, finding.remedies) for finding in found] == ([(subject, remedies)] if subject else [])


@pytest.mark.parametrize(
    ("found", "severities"),
    [
        (policy_findings("ok"), []),
        (policy_findings("broken: a.cedar"), [Severity.CRITICAL]),
        (disk_findings(DISK_LOW_BYTES), []),
        (disk_findings(DISK_LOW_BYTES - 1), [Severity.WARNING]),
        (disk_findings(DISK_FULL_BYTES - 1), [Severity.CRITICAL]),
        (log_findings(LOG_BYTES_MAX), []),
        (log_findings(LOG_BYTES_MAX + 1), [Severity.WARNING]),
        (clock_findings(30 * S), []),
        (clock_findings(-30 * S), []),
        (clock_findings(31 * S), [Severity.WARNING]),
        (clock_findings(-31 * S), [Severity.WARNING]),
        (artifact_findings(""), []),
        (artifact_findings("it is no folder"), [Severity.CRITICAL]),
        (loop_findings(3.0, "at x.py", is_from_before=False), [Severity.WARNING]),
        (loop_findings(90.0, "at x.py", is_from_before=True), [Severity.CRITICAL]),
    ],
)
def test_what_is_measured_has_a_limit(found: tuple[Finding, ...], severities: list[Severity]) -> None:
    assert [finding.severity for finding in found] == severities
    assert all(finding.evidence and finding.remediation.endswith(".") for finding in found)


def test_a_service_that_restarts_itself_is_only_reported() -> None:
    by_itself = service_finding(HealingDomain.MCP, "files", "exited", restarts_itself=True)
    other = service_finding(HealingDomain.BROWSER, "browser", "exited", restarts_itself=False)
    assert (by_itself.remedies, other.remedies) == ((), (Remedy.RESTART_SERVICE,))
    blocked = blocked_service_finding(
        HealingDomain.EMBEDDER, "embedder", "the weights are not installed; run pip install"
    )
    assert (blocked.remedies, "palyra incidents act" in blocked.remediation) == ((), False)
    assert unanswered_finding(HealingDomain.MCP, "did not answer").remedies == ()


@given(st.integers(0, 119 * S), st.integers(0, 119 * S), st.integers(0, 2 * NOW))
def test_a_run_that_gives_signs_is_never_stuck(silent_ms: int, idle_ms: int, jumped_at_ms: int) -> None:
    observed = run(at_ms=NOW - silent_ms, progress_at_ms=NOW - idle_ms)
    assert run_findings([observed], Moment(NOW, jumped_at_ms=jumped_at_ms)) == ()


def test_a_dead_jobs_error_stays_with_the_job() -> None:
    """The error may hold words of a session, and a system tape is never erased."""
    dead = job(state=JobState.DEAD, error="the words of a person", updated_at_ms=NOW)
    (finding,) = job_findings([JobObservation(job=dead, timeout_ms=1)], Moment(NOW))
    assert "words" not in finding.evidence
