"""The offline verifier. Owns: what is checked of a journal, from values. Not: reading files or printing."""

from palyra.core.verification.evidence import (
    FINDINGS_MAX,
    Evidence,
    StoredEvent,
    StoredRow,
    StrayEvents,
    Summary,
    VerifyFinding,
    VerifyReport,
)
from palyra.core.verification.verify import verify

__all__ = [
    "FINDINGS_MAX",
    "Evidence",
    "StoredEvent",
    "StoredRow",
    "StrayEvents",
    "Summary",
    "VerifyFinding",
    "VerifyReport",
    "verify",
]
