"""Kills a child with SIGKILL at its n-th access to the file system, for every n, during a backup or a restore.

Run it as its own process (`python -m tests.support.kill_points backup HOME BACKUP WORK`), because it forks: a fork of
the test process would inherit its threads' locks. It prints one JSON line a point: what was left after the kill.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

# Loaded beforehand, so that only the steps of the act are counted, and none of the import system.
import palyra.adapters.clock
import palyra.adapters.keys.directory
import palyra.adapters.store.sqlite.backup
import palyra.adapters.store.sqlite.restore  # noqa: F401
from palyra.app import Home, back_up_with_keys, open_archive, open_public_keys, restore, restore_replacing
from palyra.core.errors import PalyraError
from palyra.core.verification import verify

TOUCHES = frozenset({"open", "os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir", "shutil.rmtree", "os.chmod"})
POINTS_MAX = 500
AGAIN_EVERY = 6  # After every such point the restore is repeated, which costs as much as the rest.


def main() -> None:
    act, home, backup, work = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
    for point in range(1, POINTS_MAX):
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        left = backup_point(point, Home(home), work) if act == "backup" else restore_point(point, home, backup, work)
        sys.stdout.write(json.dumps(left) + "\n")
        if not left["was_killed"]:
            return


def backup_point(point: int, home: Home, work: Path) -> dict[str, object]:
    destination = work / "backup"
    was_killed = die_at(point, lambda: back_up_with_keys(home, destination, lambda done, total: None))
    left: dict[str, object] = {"was_killed": was_killed, "exists": destination.exists()}
    if destination.exists():
        left["restored"] = restore(Home(work / "other"), destination).summary.events_count
    return left


def restore_point(point: int, home: Path, backup: Path, work: Path) -> dict[str, object]:
    target = Home(work / "home")
    shutil.copytree(home, target.root)
    was_killed = die_at(point, lambda: restore_replacing(target, backup))
    left: dict[str, object] = {"was_killed": was_killed, "events_count": state_of(target)}
    replaced = [path for path in target.root.glob("journal.db.replaced-*") if path.suffix != ".lock"]
    left["aside_events_count"] = [state_of(Home(_alone(path, work))) for path in replaced]
    if point % AGAIN_EVERY == 0 or not was_killed:
        left["again"] = restore_replacing(target, backup).summary.events_count
        left["staging"] = [path.name for path in target.root.glob(".restore-*")]
    return left


def state_of(home: Home) -> int | str:
    """Returns how many events a home's journal holds, or what is wrong with it."""
    try:
        with open_archive(home) as archive:
            report = verify(archive.evidence(open_public_keys(home.public_keys)))
    except PalyraError as error:
        return str(error)
    return report.summary.events_count if report.is_whole else str(report.findings[0])


def die_at(point: int, act: Callable[[], object]) -> bool:
    """Tells whether the act was killed before it ended."""
    child = os.fork()
    if child == 0:
        touches = iter(range(1, point))
        sys.addaudithook(lambda event, arguments: _touched(event, touches))
        act()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status) and os.waitstatus_to_exitcode(status) != 0:
        raise RuntimeError("the act failed by itself")
    return os.WIFSIGNALED(status)


def _touched(event: str, touches: Iterator[int]) -> None:
    if event in TOUCHES and next(touches, None) is None:
        os.kill(os.getpid(), signal.SIGKILL)


def _alone(journal: Path, work: Path) -> Path:
    """Returns a home that holds this journal under its usual name, with the keys of the home it came from."""
    home = work / f"alone-{journal.name}"
    shutil.copytree(journal.parent / "keys", home / "keys")
    shutil.copy(journal, home / "journal.db")
    return home


if __name__ == "__main__":
    main()
