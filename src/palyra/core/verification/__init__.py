"""The offline verifier. Owns: what is checked of a journal, from values. Not: reading files or printing."""

from palyra.core.verification.evidence import (
    FINDINGS_MAX,
    Evidence,
    Finding,
    Report,
    StoredEvent,
    StoredRow,
    StrayEvents,
    Summary,
)
from palyra.core.verification.verify import verify

__all__ = [
    "FINDINGS_MAX",
    "Evidence",
    "Finding",
    "Report",
    "StoredEvent",
    "StoredRow",
    "StrayEvents",
    "Summary",
    "verify",
]
