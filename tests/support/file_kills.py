"""Kills a process that writes a private file, or fills its disk, at every step, and reports what is left.

Run it as its own process (`python -m tests.support.file_kills HOW ACT DIRECTORY`), because it forks. It prints one
JSON line for each child.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

from palyra.adapters.files.private import FileKind, PrivateFile
from tests.support.kill_steps import die_at, fill_disk_at

POINTS_MAX = 300
KIND = FileKind(noun="thing", remedy="mend it", bytes_max=1 << 20)
OLD, NEW = b"old" * 1000, b"new" * 2000


def replace(file: PrivateFile) -> None:
    with file.locked() as put:
        put(NEW)


ACTS: dict[str, Callable[[PrivateFile], object]] = {
    "create": lambda file: file.create(NEW),
    "first": replace,
    "replace": replace,
}
HOW = {"kill": die_at, "full": fill_disk_at}


def main() -> None:
    how, act, directory = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    for point in range(1, POINTS_MAX):
        file = PrivateFile(directory / str(point) / "home" / "thing", KIND)
        if act == "replace":
            file.create(OLD)
        was_stopped = HOW[how](point, lambda file=file: ACTS[act](file))  # type: ignore[misc]
        left = {"was_stopped": was_stopped, "holds": holds(file), "files": files(file)}
        replace(file)
        left |= {"then_holds": holds(file), "then_files": files(file)}
        sys.stdout.write(json.dumps(left) + "\n")
        if not was_stopped:
            return


def holds(file: PrivateFile) -> str:
    found = file.read()
    return "none" if found is None else {OLD: "old", NEW: "new"}.get(found.data, "torn")


def files(file: PrivateFile) -> list[str]:
    folder = file.path.parent
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


if __name__ == "__main__":
    main()
