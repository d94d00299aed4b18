"""Secrets in bodies of a real daemon: neither the disk nor a backup without keys shows them, and their owner reads them."""

import json
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

from tests.support.daemons import Daemon, plain_environment
from tests.support.waiting import WAIT_S, wait_until

SECRET = "correct9horse7battery"
SCRIPT = """
[[scripts]]
[[scripts.turns]]
calls = [{tool = "fs.write", arguments = {path = "app.env", content = "nothing"}}]
[[scripts.turns]]
text = "Written."
"""


def shows_secret(folder: Path) -> list[str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path.name for path in files if SECRET.encode() in path.read_bytes()]


def test_what_undo_keeps_and_what_is_uploaded_is_sealed(tmp_path: Path) -> None:
    home, body = tmp_path / "home", f"db_password = {SECRET}\n"
    with Daemon(home, SCRIPT) as daemon:
        file = home / "workspace" / "app.env"
        file.write_text(body)
        _, run = daemon.call("POST", "/api/v1/runs", {"text": "work"})
        wait_until(lambda: daemon.call("GET", f"/api/v1/runs/{run['id']}")[1]["state"] == "done")
        assert file.read_text() == "nothing"
        uploaded = upload(daemon, body.encode())
        command = [sys.executable, "-m", "palyra", "--home", str(home), "backup", str(tmp_path / "backup")]
        subprocess.run(command, env=plain_environment(), check=True, capture_output=True, timeout=WAIT_S)
        assert shows_secret(tmp_path / "backup") == []
        assert shows_secret(home) == []
        with daemon.open("GET", f"/api/v1/artifacts/{uploaded}") as answer:
            assert (answer.status, answer.read()) == (200, body.encode())
        assert daemon.call("POST", f"/api/v1/runs/{run['id']}/undo", {})[0] == 200
        assert file.read_text() == body


def upload(daemon: Daemon, body: bytes) -> str:
    connection = HTTPConnection("127.0.0.1", daemon.port, timeout=WAIT_S)
    headers = {"Authorization": f"Bearer {daemon.token}", "Content-Type": "text/plain"}
    connection.request("POST", "/api/v1/artifacts", body, headers)
    answer = connection.getresponse()
    found = json.loads(answer.read())
    connection.close()
    assert answer.status == 201, found
    return str(found["id"])
