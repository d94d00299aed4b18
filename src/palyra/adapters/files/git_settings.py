"""How git is started so that nothing else runs: its settings, its environment, its limits, and where the program is.

Does not own: what git is asked (adapters.references, adapters.drafts), the private folder that it takes for `.git`.
Git gets an environment of our own and no settings of a system, a user or a repository. The settings below turn off
everything that starts a program even so: what one release of git forgets, another layer holds.
"""

import os
import shutil
from functools import cache

from palyra.core.errors import Unavailable

MEMORY_BYTES_MAX = 2 * 1024 * 1024 * 1024
PROGRAM_PATH = "/usr/local/bin:/usr/bin:/bin"

SETTINGS = (
    "core.fsmonitor=false", "core.hooksPath=/dev/null", "core.pager=cat", "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null", "core.untrackedCache=false", "core.preloadIndex=false", "core.quotePath=false",
    "core.bigFileThreshold=1m", "core.sshCommand=false", "core.editor=false", "core.askPass=false",
    "core.commitGraph=false", "core.multiPackIndex=false",
    "diff.external=", "diff.autoRefreshIndex=false", "diff.submodule=short", "diff.ignoreSubmodules=all",
    "submodule.recurse=false", "protocol.allow=never", "gc.auto=0", "maintenance.auto=false",
)  # fmt: skip


def setting_words() -> list[str]:
    """Returns the options that hand the settings to git."""
    return [word for setting in SETTINGS for word in ("-c", setting)]


def environment(private: str, objects: str) -> dict[str, str]:
    """Returns an environment in which the private folder is the repository, and its objects lie in another folder."""
    return {
        "PATH": "/nonexistent",
        "HOME": private,
        "XDG_CONFIG_HOME": private,
        "LC_ALL": "C",
        "GIT_DIR": private,
        "GIT_COMMON_DIR": private,
        "GIT_INDEX_FILE": f"{private}/index",
        "GIT_OBJECT_DIRECTORY": objects,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_PAGER": "cat",
        "GIT_ALLOW_PROTOCOL": "",
        "GIT_EXEC_PATH": "/nonexistent",
    }


@cache
def find_git() -> str:
    """Returns the program. It is searched for in the system's folders alone, never in a workspace."""
    found = shutil.which("git", path=PROGRAM_PATH)
    if found is None:
        raise Unavailable("git_missing", "git is not installed here, so nothing of a repository can be read")
    return found
