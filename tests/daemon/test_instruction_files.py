"""A real daemon shows its model the instruction files of its workspace, and records them once."""

from pathlib import Path

from tests.references.repositories import write
from tests.support.daemons import Daemon

SCRIPT = '[[scripts]]\n[[scripts.turns]]\ntext = "It is green."\n'


def read_in(daemon: Daemon) -> list[str]:
    status, run = daemon.call("POST", "/api/v1/runs", {"text": "Go", "session_key": "s"})
    assert status in (201, 202), run
    return [each["data"]["path"] for each in daemon.follow(run["id"]) if each["type"] == "document.read"]


def test_daemon_reads_the_instruction_files_of_its_workspace(tmp_path: Path) -> None:
    with Daemon(tmp_path / "home", SCRIPT) as daemon:
        write(daemon.home / "workspace", {"AGENTS.md": "Use tabs.\n"})
        assert read_in(daemon) == ["AGENTS.md"]
        assert read_in(daemon) == []
        daemon.stop()
        daemon.start()
        assert read_in(daemon) == []
        write(daemon.home / "workspace", {"MEMORY.md": "Ada.\n"})
        assert read_in(daemon) == ["MEMORY.md"]
