"""The daemon's crash campaign. Owns: killing children at named points and at random, and holding the journal to its word.

    python -m tests.crash.daemon_campaign --kills 25

Every named point once, then SIGKILLs at seeded random moments, several in a row on one home. After each home: every
run is over, no acknowledged event is lost or altered, no `once` effect was executed twice, the verifier finds nothing.
"""

import argparse
import asyncio
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from palyra.adapters.keys.directory import KeyDirectory
from palyra.adapters.store.sqlite.archive import Archive
from palyra.core.verification import verify
from tests.crash.daemon_load import POINTS, RUNS_COUNT, Life, Point
from tests.support.waiting import WAIT_S

LIVES_MAX = 40  # Of one home; a campaign that needs more does not get on.
LIFE_TIMEOUT_S = WAIT_S
KILLS_A_HOME = 5
KILL_AFTER_MS = (2, 120)


class Home:
    """One journal through several lives."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.acks: list[str] = []
        self.kills_count = 0

    def live(self, point: str, kill_after_s: float | None) -> bool:
        """One life of the child; whether it came to its own end."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _run_child(self.root, writing, point)
        os.close(writing)
        status = self._attend(child, reading, kill_after_s)
        os.close(reading)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            self.kills_count += 1
            return False
        if status != 0:
            raise AssertionError(f"the child failed with status {status}; its words are above")
        return True

    def finish(self) -> None:
        for _ in range(LIVES_MAX):
            if self.live("", None):
                return
        raise AssertionError("the work does not come to an end")

    def audit(self) -> list[str]:
        """What is wrong, in words; nothing if nothing is."""
        faults = [*self._audit_events(), *self._audit_marks()]
        with Archive(self.root / "journal.db") as archive:
            report = verify(archive.evidence(KeyDirectory(self.root / "keys")))
        return faults + [str(finding) for finding in report.findings]

    def _attend(self, child: int, reading: int, kill_after_s: float | None) -> int:
        started_s = time.monotonic()
        limit_s = LIFE_TIMEOUT_S if kill_after_s is None else kill_after_s
        buffer = b""
        while True:
            left_s = started_s + limit_s - time.monotonic()
            ready, _, _ = select.select([reading], [], [], max(0.0, left_s))
            if not ready:
                os.kill(child, signal.SIGKILL)
                if kill_after_s is None:
                    raise AssertionError("the child did not finish in time")
                limit_s = LIFE_TIMEOUT_S
                continue
            piece = os.read(reading, 65536)
            if not piece:
                break
            buffer += piece
        # A word cut off in the middle was not said.
        self.acks += buffer.decode().split("\n")[:-1]
        return os.waitpid(child, 0)[1]

    def _audit_events(self) -> list[str]:
        faults: list[str] = []
        stored: dict[tuple[str, int], str] = {}
        run_ids: set[str] = set()
        with Archive(self.root / "journal.db") as archive:
            for stream in archive.streams():
                for event in archive.events(stream):
                    stored[stream, event.seq] = event.hash.hex()
                    run_ids.add(event.run_id or "")
            open_runs = archive.connection.execute("SELECT id FROM runs WHERE ended_seq IS NULL").fetchall()
        for ack in self.acks:
            match ack.split():
                case ["event", tape, seq, event_hash]:
                    if stored.get((tape, int(seq))) != event_hash:
                        faults.append(f"acknowledged event lost or altered: {ack}")
                case ["run", run_id]:
                    if run_id not in run_ids:
                        faults.append(f"acknowledged run lost: {ack}")
                case _:
                    continue
        if open_runs:
            faults.append(f"runs that did not end: {open_runs}")
        if len(run_ids - {""}) != RUNS_COUNT:
            faults.append(f"{len(run_ids - {''})} runs instead of {RUNS_COUNT}")
        return faults

    def _audit_marks(self) -> list[str]:
        marks = (self.root / "marks").read_text().splitlines() if (self.root / "marks").exists() else []
        sends = [mark.split()[0] for mark in marks if " mark.send " in mark]
        return [f"once effect executed twice: {effect}" for effect in set(sends) if sends.count(effect) > 1]


def _run_child(root: Path, acks: int, point: str) -> None:
    """Never returns."""
    code = 1
    try:
        asyncio.run(Life(root, acks, Point(point)).live())
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)


def run_points(base: Path, rows: list[tuple[str, ...]]) -> tuple[list[str], int, int]:
    """Each named point on a home of its own. Gives faults, points that were reached, and acknowledgements."""
    faults: list[str] = []
    reached = acks = 0
    for row in rows:
        home = Home(_fresh(base))
        for name in row:
            if home.live(name, None):
                faults.append(f"{row}: the load never came to {name}")
        reached += home.kills_count
        home.finish()
        faults += [f"{row}: {fault}" for fault in home.audit()]
        acks += len(home.acks)
        shutil.rmtree(home.root)
    return faults, reached, acks


def run_kills(base: Path, kills_count: int, seed: int) -> tuple[list[str], int, int]:
    """Random SIGKILLs, a few in a row on one home, until there were as many as asked for."""
    chance = random.Random(seed)
    faults: list[str] = []
    killed = acks = homes = 0
    while killed < kills_count:
        home = Home(_fresh(base))
        homes += 1
        for _ in range(KILLS_A_HOME):
            if home.live("", chance.randint(*KILL_AFTER_MS) / 1000):
                break
        home.finish()
        faults += [f"seed {seed} home {homes}: {fault}" for fault in home.audit()]
        killed += home.kills_count
        acks += len(home.acks)
        shutil.rmtree(home.root)
        if killed and killed % 100 < KILLS_A_HOME:
            print(f"  {killed} kills, {acks} acknowledgements, {len(faults)} faults", flush=True)
    return faults, killed, acks


def _fresh(base: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=base))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="one row of named points, by commas")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [tuple(arguments.only.split(","))] if arguments.only else list(POINTS)
        faults, reached, acks = run_points(Path(folder), rows)
        print(f"named points: {len(rows)} homes, {reached} crashes; {acks} acknowledgements")
        more, killed, more_acks = run_kills(Path(folder), 0 if arguments.only else arguments.kills, arguments.seed)
    faults += more
    print(f"SIGKILLs: {killed}; {more_acks} acknowledgements")
    print(f"lost or altered events, repeated once effects, open runs, verify findings: {len(faults)}")
    for fault in faults[:20]:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
