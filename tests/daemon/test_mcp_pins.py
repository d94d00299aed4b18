"""A daemon whose file of MCP pins is damaged: `palyra tools` and the API say so, and what to do."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.daemons import Daemon

SERVER = Path(__file__).parents[1] / "support" / "mcp_servers" / "marking.py"


def test_missing_tools_name_the_damaged_file_of_pins(tmp_path: Path) -> None:
    home = tmp_path / "home"
    command = json.dumps([sys.executable, str(SERVER), str(tmp_path / "marks"), str(tmp_path / "hold")])
    with_server = Daemon(home)
    (home / "palyra.toml").write_text(f'[[mcp]]\nname = "marks"\ncommand = {command}\n')
    (home / "mcp.json").write_text("damaged")
    with with_server as daemon:
        tools = {each["name"]: each for each in daemon.call("GET", "/api/v1/tools")[1]["items"]}
        listed = subprocess.run(
            [sys.executable, "-m", "palyra", "--home", str(home), "tools", "--url", f"http://127.0.0.1:{daemon.port}"],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "COLUMNS": "400"},
        )
    assert [name for name in tools if name.startswith("mcp.")] == ["mcp.marks.*"]
    assert tools["mcp.marks.*"]["available"] is False
    for told in (tools["mcp.marks.*"]["reason"], listed.stdout):
        assert str(home / "mcp.json") in told
        assert "restart the daemon" in told
