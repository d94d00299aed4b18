"""The rival's environment. Owns: making .venv-bench from its lock, and running LangGraph's side in it. Not: what it runs."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".venv-bench"
LOCK = ROOT / "requirements" / "bench.txt"
INSTALL_TIMEOUT_S = 600
RUN_TIMEOUT_S = 600


def ensure_rival() -> str:
    """Makes the environment if it is missing or its lock has changed; gives the version of LangGraph."""
    stamp = FOLDER / ".lock"
    wanted = LOCK.read_text(encoding="utf-8")
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
        print(f"making {FOLDER.name} from {LOCK.relative_to(ROOT)}", flush=True)
        shutil.rmtree(FOLDER, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(FOLDER)], check=True, timeout=INSTALL_TIMEOUT_S)
        pip = [str(FOLDER / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*pip, "install", "--requirement", str(LOCK)], check=True, timeout=INSTALL_TIMEOUT_S)
        stamp.write_text(wanted, encoding="utf-8")
    return next(line.partition("==")[2] for line in wanted.splitlines() if line.startswith("langgraph=="))


def run_rival(**order: Any) -> dict[str, Any]:
    # -P: a module beside the script may have the name of one of the standard library.
    command = [str(FOLDER / "bin" / "python"), "-P", str(ROOT / "bench" / "_langgraph.py"), json.dumps(order)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=RUN_TIMEOUT_S, text=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
