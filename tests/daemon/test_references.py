"""A real daemon previews references to its workspace, its repository and its own runs, and tells nothing of its home."""

import os
import subprocess
import sys
from pathlib import Path

from tests.references.repositories import git, make_repository, write
from tests.support.daemons import Daemon

PATH = "/api/v1/context/preview"
SCRIPT = '[[scripts]]\n[[scripts.turns]]\ntext = "It is green."\n'


def codes(daemon: Daemon, text: str) -> list[str | None]:
    status, answer = daemon.call("POST", PATH, {"text": text})
    assert status == 200
    return [each["code"] for each in answer["references"]]


def test_daemon_previews_what_its_workspace_holds(tmp_path: Path) -> None:
    with Daemon(tmp_path / "home", SCRIPT) as daemon:
        workspace = daemon.home / "workspace"
        make_repository(workspace, {"notes.md": "one\n"})
        write(workspace, {"notes.md": "two\n"})
        status, answer = daemon.call("POST", PATH, {"text": "@file:notes.md @folder:. @diff @staged"})
        assert status == 200
        assert [each["ok"] for each in answer["references"]] == [True] * 4
        assert "-one\n+two" in answer["rendered"]
        outside = f"@file:../admin.token @file:{daemon.home}/vault.key @folder:.. @diff:../.. @file:.git/config"
        assert set(codes(daemon, outside)) == {"outside_workspace", "secret_file"}
        assert codes(daemon, "@url:http://169.254.169.254/ @url:file:///etc/passwd @memory:x") == [
            "address_refused", "address_refused", "memory_unknown",
        ]  # fmt: skip
        git(workspace, "config", "diff.external", "/bin/false")
        assert codes(daemon, "@diff") == [None]


def test_command_previews_through_the_daemon(tmp_path: Path) -> None:
    with Daemon(tmp_path / "home", SCRIPT) as daemon:
        write(daemon.home / "workspace", {"notes.md": "hello\n"})
        environment = {
            **os.environ, "PALYRA_HOME": str(daemon.home), "PALYRA_SERVER__HTTP": f"127.0.0.1:{daemon.port}", "NO_COLOR": "1",
        }  # fmt: skip
        command = [sys.executable, "-m", "palyra", "context", "preview", "@file:notes.md and @file:none", "--rendered"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "@file:notes.md  6 characters, local" in done.stdout
    assert "@file:none  not included (not_found)" in done.stdout
    assert "<context_references>" in done.stdout
