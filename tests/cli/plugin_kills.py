"""Killing an install of a plugin. Owns: a child that dies by SIGKILL at every step, and what is left on the disk.

Run as a process of its own (`python -m tests.cli.plugin_kills ACT DIRECTORY`), since it forks. Prints one JSON line a child.
"""

import json
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from palyra.adapters.runtimes.wasm.install import PluginCandidate, put_in_place, read_candidate, take_away
from palyra.adapters.runtimes.wasm.source import PluginTools
from tests.support.kill_steps import die_at

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugins" / "textstats"
POINTS_MAX = 500

ACTS: dict[str, Callable[[PluginCandidate, Path], None]] = {
    "first": lambda candidate, plugins: put_in_place(candidate, plugins, is_replacing=False),
    "replace": lambda candidate, plugins: put_in_place(candidate, plugins, is_replacing=True),
    "remove": lambda _, plugins: take_away("textstats", plugins),
}


def main() -> None:
    act, root = sys.argv[1], Path(sys.argv[2])
    candidate = read_candidate(EXAMPLE, _no_errors)
    plugins = root / "plugins"
    for point in range(1, POINTS_MAX):
        shutil.rmtree(plugins, ignore_errors=True)
        if act != "first":
            put_in_place(candidate, plugins, is_replacing=False)
        was_killed = die_at(point, partial(ACTS[act], candidate, plugins))
        left = {"was_killed": was_killed, **state_of(plugins)}
        put_in_place(candidate, plugins, is_replacing=True)
        left["afterwards"] = sorted(path.name for path in plugins.iterdir())
        sys.stdout.write(json.dumps(left) + "\n")
        if not was_killed:
            return


def state_of(plugins: Path) -> dict[str, object]:
    source = PluginTools(plugins, _no_errors)
    return {
        "tools": [tool.spec.name for tool in source.tools()],
        "broken": [each.reason for each in source.missing()],
    }


def _no_errors(_schema: object) -> tuple[str, ...]:
    return ()


if __name__ == "__main__":
    main()
