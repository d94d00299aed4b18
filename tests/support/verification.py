"""Verifies a home's journal offline, as `palyra verify` does, and returns the report's members."""

from palyra.app import Home, open_archive, open_public_keys
from palyra.core.verification import verify


def verify_summary(home: Home) -> dict[str, object]:
    with open_archive(home) as archive:
        archive.require_structure()
        return verify(archive.evidence(open_public_keys(home.public_keys))).to_wire()
