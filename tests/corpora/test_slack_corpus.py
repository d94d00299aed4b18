"""Slack's signing vectors: each is judged as Slack's own library judges it."""

import gzip
import json
import os
from pathlib import Path

import pytest

from palyra.core.channels.signatures import SLACK_SIGNATURE_HEADER, SLACK_TIMESTAMP_HEADER, check_slack
from palyra.core.errors import Unauthorized

CORPORA = Path(os.environ.get("PALYRA_CORPORA") or Path(__file__).parents[2].parent / "shared" / "data")
VECTORS = CORPORA / "slack_signature_vectors.json.gz"
WALL_CLOCK_S = 1_800_000_000

pytestmark = pytest.mark.skipif(not VECTORS.exists(), reason=f"no corpus at {VECTORS}; set PALYRA_CORPORA")


def test_every_signing_vector_is_judged_as_slack_does() -> None:
    vectors = json.loads(gzip.decompress(VECTORS.read_bytes()))
    assert len(vectors) >= 3
    for vector in vectors:
        told = {SLACK_TIMESTAMP_HEADER: vector["timestamp"] or "", SLACK_SIGNATURE_HEADER: vector["signature"] or ""}
        try:
            check_slack(told, vector["body"].encode(), vector["signing_secret"], vector["now"] or WALL_CLOCK_S)
            is_valid = True
        except Unauthorized:
            is_valid = False
        assert is_valid is vector["valid"], vector["note"]
