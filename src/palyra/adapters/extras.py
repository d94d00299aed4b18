"""The command that installs what is missing, for messages of adapters. Does not own: what is missing (each adapter)."""

import shlex
import sys
from pathlib import Path


def install_command(*packages: str) -> str:
    """Returns a command for the daemon's own environment. Another pip would install elsewhere, and maybe other code."""
    return shlex.join([str(Path(sys.executable).parent / "pip"), "install", *packages])
