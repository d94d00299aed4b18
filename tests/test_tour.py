"""The README's tour works, word for word."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.ports import free_port

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
PORT = "7199"


def test_the_tour_of_the_readme_works(tmp_path: Path) -> None:
    script = "".join(BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8")))
    script = script.replace("$(mktemp -d)", str(tmp_path / "home")).replace(PORT, str(free_port()))
    # The same commands with the interpreter that runs this test, wherever it was installed.
    script = script.replace(".venv-run/bin/palyra", f"{sys.executable} -m palyra").replace("python3", sys.executable)
    (tmp_path / "home").mkdir()
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{script}"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"result\s+whole", done.stdout)
    assert "fs.write" in done.stdout
    assert "run.done" in done.stdout or "done" in done.stdout
