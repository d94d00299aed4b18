"""The offline verifier: what is checked of a journal, from values.

Does not own: reading files (adapters.store), printing (cli).
"""

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
