"""Homes that earlier versions left open as if nothing had happened: tokens, links, memory, grants and waiting runs.

`tests/homes/make.py` makes one, in the version that it stands for.
"""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.test_channels import SECRET, palyra, send
from tests.homes.make import call
from tests.support.daemons import Daemon
from tests.support.waiting import wait_until

HOMES = sorted(Path(__file__).parent.parent.joinpath("homes").glob("*.tar.gz"))


@pytest.fixture(params=HOMES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    # Only the owner may read what holds keys; the filter of the archive has kept less than that.
    for path in (tmp_path / "home").rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return tmp_path / "home"


def test_home_of_an_earlier_version_keeps_all_it_held(home: Path) -> None:
    told = json.loads((home / "told.json").read_text())
    daemon = Daemon(home, HOOK_SECRET=SECRET)
    with daemon:
        check_what_is_kept(daemon, told)
        check_what_waited(daemon, told)
        check_what_was_granted(daemon, told)
    assert "whole" in palyra(daemon, "verify")


def check_what_is_kept(daemon: Daemon, told: dict[str, Any]) -> None:
    with daemon.open("GET", "/api/v1/sessions", Authorization=f"Bearer {told['token']['token']}") as answer:
        assert answer.status == 200
    assert [each["principal"] for each in call(daemon, "GET", "/api/v1/pairing/links")["items"]] == ["user:alice"]
    status, taken = send(daemon, "e9", "hello")
    assert (status, taken["accepted"]) == (202, True)
    found = call(daemon, "GET", "/api/v1/memory/search?q=printer&k=1")["items"]
    assert [each["content"] for each in found] == ["The printer is called Hektor."]
    assert [each["name"] for each in call(daemon, "GET", "/api/v1/routines")["items"]] == ["weekly"]
    labels = {each["label"] for each in call(daemon, "GET", "/api/v1/sessions")["items"]}
    assert "branched" in labels


def check_what_waited(daemon: Daemon, told: dict[str, Any]) -> None:
    """The question is older than a question may get, so it counts as refused, and its run has gone on."""
    run = told["waiting"]["id"]
    wait_until(lambda: call(daemon, "GET", f"/api/v1/runs/{run}")["state"] == "done", "the run that waited")
    assert call(daemon, "GET", f"/api/v1/runs/{run}")["answer"] == "written"
    status = call(daemon, "GET", f"/api/v1/approvals/{told['question']['id']}")["status"]
    assert status == "expired"


def check_what_was_granted(daemon: Daemon, told: dict[str, Any]) -> None:
    again = call(
        daemon, "POST", "/api/v1/runs", {"text": "keep the release day", "session_id": told["granted"]["session_id"]}
    )
    wait_until(lambda: call(daemon, "GET", f"/api/v1/runs/{again['id']}")["state"] == "done", "the granted run")
    assert call(daemon, "GET", f"/api/v1/runs/{again['id']}")["answer"] == "kept"
