"""Finds Chromium, and says why the browser tools are missing.

Does not own: starting Chromium (chromium).
Nothing heavy is imported here, so that a daemon that never opens a page does not pay for it.
"""

import importlib.util
import os
import shutil
from pathlib import Path

from palyra.adapters.extras import install_command
from palyra.core.tools import MissingTool

NAMES = ("browser.open", "browser.read", "browser.click", "browser.type", "browser.screenshot")
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium(executable: str | None = None) -> str | None:
    """Returns the configured program or None; without a configured one, the first on the PATH."""
    if executable is not None:
        path = Path(executable).expanduser()
        is_fit = path.is_absolute() and path.is_file() and os.access(path, os.X_OK)
        return str(path) if is_fit else None
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


def missing_tools(executable: str | None = None) -> tuple[MissingTool, ...]:
    """Returns every browser tool with the reason why it cannot be offered here; empty if nothing is missing."""
    reason = _reason(executable)
    return () if reason is None else tuple(MissingTool(name, reason) for name in NAMES)


def _reason(executable: str | None) -> str | None:
    if importlib.util.find_spec("playwright") is None:
        return f"playwright is not installed; install the extra: {install_command('palyra[browser]')}"
    if find_chromium(executable) is not None:
        return None
    if executable is not None:
        return "`browser.executable` in palyra.toml is no program that can be started; write its whole path"
    return "no Chromium was found on the PATH; install it (apt install chromium) or set `browser.executable`"
