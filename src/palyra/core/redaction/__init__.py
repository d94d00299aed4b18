"""Redaction (law L5): finds secrets, puts markers in their place, and restores the secrets from the markers.

Does not own: storing the secrets' values.
"""

from palyra.core.redaction.known import KnownSecrets
from palyra.core.redaction.markers import Json, Secret, find_markers, restore
from palyra.core.redaction.redactor import Redacted, RedactedValue, RedactionStream, Redactor

__all__ = [
    "Json",
    "KnownSecrets",
    "Redacted",
    "RedactedValue",
    "RedactionStream",
    "Redactor",
    "Secret",
    "find_markers",
    "restore",
]
