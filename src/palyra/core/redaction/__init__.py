"""Redaction (law L5). Owns: finding secrets, putting markers in their place, and the way back. Not: keeping their values."""

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
