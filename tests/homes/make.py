"""Makes a home as an earlier version left it, for `tests/daemon/test_earlier_homes.py`. Run it in that version.

    python -m tests.homes.make tests/homes/2026-11-19.tar.gz

The home holds a token, a linked account, memory, grants, a routine, a branch, and a run that waits for an answer when
the daemon is killed.
"""

import json
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.daemon.test_channels import CHANNEL, SECRET, palyra, send
from tests.support.daemons import Daemon
from tests.support.waiting import wait_until

SCRIPT = """
[[scripts]]
when = "release"
turns = [
    { calls = [{ tool = "memory.retain", arguments = { content = "The release leaves on Thursday.", kind = "fact" } }] },
    { text = "kept" },
]

[[scripts]]
when = "hook"
turns = [
    { calls = [{ tool = "fs.write", arguments = { path = ".githooks/pre-commit", content = "#!/bin/sh\\n" } }] },
    { text = "written" },
]

[[scripts]]
turns = [{ text = "hello" }]
"""


def fill(home: Path) -> None:
    daemon = Daemon(home, SCRIPT, HOOK_SECRET=SECRET)
    with (home / "palyra.toml").open("a") as file:
        file.write(CHANNEL)
    daemon.start()
    told = {"token": json.loads(palyra(daemon, "tokens", "new", "--for", "user:alice", "--role", "user", "--json"))}
    code = json.loads(palyra(daemon, "pair", "--as", "user:alice", "--json"))["code"]
    send(daemon, "e1", code)
    palyra(daemon, "approvals", "allow", "last", "--role", "user")
    call(daemon, "POST", "/api/v1/memory", {"items": [{"content": "The printer is called Hektor."}]})
    routine = {"name": "weekly", "prompt": "hello", "cron": "0 9 * * 1"}
    call(daemon, "POST", "/api/v1/routines", routine)
    granted = call(daemon, "POST", "/api/v1/runs", {"text": "keep the release day", "session_key": "granted"})
    call(daemon, "POST", f"/api/v1/approvals/{question(daemon)['id']}", {"decision": "allow", "scope": "session"})
    wait_until(lambda: call(daemon, "GET", f"/api/v1/runs/{granted['id']}")["state"] == "done", "the granted run")
    call(daemon, "POST", f"/api/v1/sessions/{granted['session_id']}/branch", {"at_seq": 5, "label": "branched"})
    waiting = call(daemon, "POST", "/api/v1/runs", {"text": "write the hook", "session_key": "waiting"})
    told |= {"question": question(daemon), "granted": granted, "waiting": waiting}
    (home / "told.json").write_text(json.dumps(told))
    daemon.kill()


def question(daemon: Daemon) -> Any:
    return wait_until_some(lambda: call(daemon, "GET", "/api/v1/approvals?status=pending")["items"])[0]


def wait_until_some(find: Callable[[], Any]) -> Any:
    wait_until(lambda: bool(find()), "a question")
    return find()


def call(daemon: Daemon, method: str, path: str, body: object = None) -> Any:
    status, answer = daemon.call(method, path, body)
    assert status < 300, (method, path, status, answer)
    return answer


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        fill(home)
        with tarfile.open(sys.argv[1], "w:gz") as archive:
            archive.add(home, "home", filter=lambda each: None if each.name.endswith(".log") else each)


if __name__ == "__main__":
    main()
