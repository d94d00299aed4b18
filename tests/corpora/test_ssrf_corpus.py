"""The rule about addresses against the test cases of several projects' guards. Names are judged by their letters alone."""

import gzip
import json
import os
from ipaddress import ip_network
from pathlib import Path

import pytest

from palyra.core.hosts import AddressRefusal, judge_endpoint, judge_url, refuse_address

CORPORA = Path(os.environ.get("PALYRA_CORPORA") or Path(__file__).parents[2].parent / "shared" / "data")
SSRF = CORPORA / "ssrf.jsonl.gz"
RATE_MIN = 0.97
HTTP_PORT = 80

needs_corpus = pytest.mark.skipif(not SSRF.is_file(), reason=f"no corpus at {SSRF}; set PALYRA_CORPORA")


def rows(expect: str) -> list[dict]:
    """What only a server of names or a redirect would show is left to the tests of the guard."""
    with gzip.open(SSRF, "rt", encoding="utf-8") as lines:
        return [row for row in map(json.loads, lines) if row["expect"] == expect and row["tier"] != "needs-network"]


def is_refused(row: dict) -> bool:
    value = row["value"]
    match row["kind"]:
        case "url":
            return isinstance(judge_url(value), AddressRefusal)
        case "host":  # As a person types it, with or without a path.
            return isinstance(judge_url(f"http://{value.lstrip('/')}"), AddressRefusal)
        case "cidr":
            block = ip_network(value)
            return all(refuse_address(str(each)) is not None for each in (block[0], block[1], block[-1]))
        case _:
            written = f"[{value}]" if ":" in value and not value.startswith("[") else value
            return isinstance(judge_endpoint(written, port_default=HTTP_PORT), AddressRefusal)


@needs_corpus
def test_almost_everything_dangerous_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    dangerous = rows("block")
    passed = [row["value"] for row in dangerous if not is_refused(row)]
    with capsys.disabled():
        print(f"\nrefused {len(dangerous) - len(passed)} of {len(dangerous)} dangerous; passed: {passed}")
    assert len(passed) <= (1 - RATE_MIN) * len(dangerous), passed


@needs_corpus
def test_almost_everything_harmless_is_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    harmless = rows("allow")
    lost = [row["value"] for row in harmless if is_refused(row)]
    with capsys.disabled():
        print(f"\nallowed {len(harmless) - len(lost)} of {len(harmless)} harmless; refused: {lost}")
    assert len(lost) <= (1 - RATE_MIN) * len(harmless), lost
