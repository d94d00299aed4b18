"""Installs the packages of a lock file with pip, and shows how far it is. Runs with the environment's own Python.

    .venv-run/bin/python requirements/install.py requirements/default.txt [options of pip]

What pip says is printed only if it fails.
"""

import re
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

FAILURE_LINES = 40  # What pip said last tells why it failed.
STEP = 10  # Outside a terminal, one line for so many packages.
PLACE = re.compile(r"\(line (\d+)\)")
CLEAR = "\r\x1b[K"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--progress-bar=off")


def main(lock: Path, options: list[str]) -> int:
    lines = lock.read_text(encoding="utf-8").splitlines()
    packages = {
        number: line.partition("==")[0] for number, line in enumerate(lines, 1) if line[:1] not in ("", "#", "-")
    }
    folder = Path(sys.prefix).name
    print(f"Installing {len(packages)} packages into {folder}; this takes a minute or two.", flush=True)
    began_s = time.monotonic()
    command = [*PIP, *options, "--requirement", str(lock)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        said = show(pip.stdout or (), packages)
    if pip.returncode:
        print(*said[-FAILURE_LINES:], sep="\n", file=sys.stderr)
        return pip.returncode
    print(f"Installed {len(packages)} packages in {time.monotonic() - began_s:.0f} s.", flush=True)
    return 0


def show(lines: Iterable[str], packages: dict[int, str]) -> list[str]:
    """Prints how far pip is, in one line that changes if a terminal shows it. Returns all that pip said."""
    is_terminal = sys.stdout.isatty()
    said: list[str] = []
    seen: set[int] = set()
    for line in lines:
        said.append(line.rstrip())
        # Pip names the line of the lock, whether it downloads a package, has it already, or finds it in a folder.
        place = PLACE.search(line)
        number = int(place.group(1)) if place else 0
        if number in packages and number not in seen:
            seen.add(number)
            if is_terminal:
                print(f"{CLEAR}  {len(seen)} of {len(packages)}  {packages[number]}", end="", flush=True)
            elif len(seen) % STEP == 0:
                print(f"  {len(seen)} of {len(packages)}", flush=True)
        elif is_terminal and line.startswith("Installing collected packages"):
            print(f"{CLEAR}  unpacking", end="", flush=True)
    if is_terminal:
        print(CLEAR, end="", flush=True)
    return said


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
