"""The words of self-healing: domains, modes, findings, remedies.

Does not own: when something is a finding (rules), or what follows from one (reconcile).
"""

from collections.abc import Mapping
from enum import Enum

import msgspec

EVIDENCE_LENGTH_MAX = 2_000


class HealingDomain(Enum):
    """What is watched. Steps of one cycle are taken in this order: a model is left alone before its runs go on."""

    JOURNAL = "journal"
    DISK = "disk"
    ARTIFACT = "artifact"
    CLOCK = "clock"
    LOOP = "loop"
    POLICY = "policy"
    PROVIDER = "provider"
    MCP = "mcp"
    BROWSER = "browser"
    SANDBOX = "sandbox"
    PROCESS = "process"
    CHANNEL = "channel"
    EMBEDDER = "embedder"
    JOB = "job"
    RUN = "run"
    APPROVAL = "approval"


class HealingMode(Enum):
    OBSERVE_ONLY = "observe_only"
    AUTO = "auto"
    DISABLED = "disabled"


class Severity(Enum):
    """NOTICE waits for a person. WARNING works, but not well. CRITICAL does not work, or soon will not."""

    NOTICE = "info"
    WARNING = "warning"
    CRITICAL = "critical"


SEVERITY_ORDER = tuple(Severity)


class Remedy(Enum):
    """What the daemon itself can do about a finding."""

    REDRIVE_RUN = "redrive_run"
    CANCEL_RUN = "cancel_run"
    REQUEUE_JOB = "requeue_job"
    STOP_JOB_ATTEMPT = "stop_job_attempt"
    OPEN_BREAKER = "open_breaker"
    RESTART_SERVICE = "restart_service"
    SWEEP_ARTIFACTS = "sweep_artifacts"
    EMPTY_JOURNAL_LOG = "empty_journal_log"


REMEDY_WORDS: Mapping[Remedy, str] = {
    Remedy.REDRIVE_RUN: "give up what the run waits for, and let the run go on",
    Remedy.CANCEL_RUN: "cancel the run",
    Remedy.REQUEUE_JOB: "put the job back into the queue",
    Remedy.STOP_JOB_ATTEMPT: "stop this attempt, so that the job is tried again",
    Remedy.OPEN_BREAKER: "leave the model alone for a while, so that calls go to the next one of the route",
    Remedy.RESTART_SERVICE: "restart the service",
    Remedy.SWEEP_ARTIFACTS: "remove artifacts that nothing refers to",
    Remedy.EMPTY_JOURNAL_LOG: "copy the write-ahead log into the journal and empty it",
}


class IncidentStatus(Enum):
    OPEN = "open"
    RESOLVED = "resolved"


class Resolution(Enum):
    """Why an incident is over: its finding is gone, a person said so, or its domain is no longer watched."""

    GONE = "gone"
    BY_HAND = "by_hand"
    UNWATCHED = "unwatched"


class ActOutcome(Enum):
    """BEGUN is recorded before an action. The other two are told at the next cycle, unless the incident resolves."""

    BEGUN = "begun"
    PERSISTS = "persists"
    FAILED = "failed"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something stuck or degraded, as one cycle sees it.

    `subject` is the id or the name of what is affected: one incident of a domain is open for each. `remedies` are tried
    in this order. An empty tuple means that only a person can do something, and `remediation` says what.
    """

    domain: HealingDomain
    subject: str
    severity: Severity
    evidence: str
    remediation: str
    remedies: tuple[Remedy, ...] = ()


class HealingModes(msgspec.Struct, frozen=True, kw_only=True):
    """The mode of all domains, and those that have another."""

    mode: HealingMode = HealingMode.OBSERVE_ONLY
    domains: Mapping[HealingDomain, HealingMode] = {}

    def of(self, domain: HealingDomain) -> HealingMode:
        return self.domains.get(domain, self.mode)
