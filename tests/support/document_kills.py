"""Kills a process that replaces a workspace document, or fills its disk, at every step, and reports what is left.

Run it as its own process (`python -m tests.support.document_kills HOW ACT DIRECTORY`), because it forks. It prints one
JSON line for each child.
"""

import hashlib
import json
import sys
from functools import partial
from pathlib import Path

from palyra.adapters.documents.files import replace_document
from palyra.adapters.files.workspace import locate
from tests.support.kill_steps import die_at, fill_disk_at

POINTS_MAX = 300
OLD, NEW = b"old" * 1000, b"new" * 2000
HOW = {"kill": die_at, "full": fill_disk_at}


def main() -> None:
    how, act, directory = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    for point in range(1, POINTS_MAX):
        folder = directory / str(point)
        (folder / "memory").mkdir(parents=True)
        file = folder / "memory" / "day.md"
        if act == "replace":
            file.write_bytes(OLD)
        place = locate("memory/day.md", (str(folder),))
        was_stopped = HOW[how](point, partial(replace_document, place, NEW, _digest(file)))
        left: dict[str, object] = {"was_stopped": was_stopped, "holds": _holds(file)}
        replace_document(place, NEW, _digest(file))
        left |= {"then_holds": _holds(file), "then_files": sorted(each.name for each in file.parent.iterdir())}
        sys.stdout.write(json.dumps(left) + "\n")
        if not was_stopped:
            return


def _digest(file: Path) -> str | None:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else None


def _holds(file: Path) -> str:
    return "none" if not file.exists() else {OLD: "old", NEW: "new"}.get(file.read_bytes(), "torn")


if __name__ == "__main__":
    main()
