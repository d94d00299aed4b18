"""The long fault campaign. Owns: its command line, its table, and how a failure is reproduced. Not: any check.

    python -m tests.crash.campaign --points 1000 --kills 100 --seed 1
    python -m tests.crash.campaign --seed 1 --only 917

Exit 1 if anything is wrong. A point is the same in every run of the same seed; a kill is not, since a kernel decides
when it lands, so a journal that failed its audit after a kill is kept.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.audit import Problem, Wrong
from tests.crash.full_disks import meet_file_limit, meet_full_file_system, small_file_system
from tests.crash.kills import KillRounds
from tests.crash.ledger import Outcome
from tests.crash.trial import Campaign

ROUNDS_A_JOURNAL = 25  # Recoveries accumulate that far; then a new journal, or the audits would take most of the time.
FULL_DISKS_COUNT = 3
PROGRESS_EVERY = 100
KILL = "SIGKILL of a process"
FILE_LIMIT = "EFBIG (RLIMIT_FSIZE)"
FULL_MOUNT = "ENOSPC (small tmpfs)"


@dataclass(slots=True)
class Tally:
    """Counts by kind of point."""

    points: Counter[str] = field(default_factory=Counter)
    acknowledged: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    wrong: Counter[tuple[str, Wrong]] = field(default_factory=Counter)

    def add(self, kind: str, acknowledged_count: int, failed_count: int, problems: Iterable[Problem]) -> None:
        self.points[kind] += 1
        self.acknowledged[kind] += acknowledged_count
        self.failed[kind] += failed_count
        self.wrong.update({(kind, problem.wrong) for problem in problems})

    @property
    def is_clean(self) -> bool:
        return not self.wrong

    def table(self) -> str:
        """One row a kind. The columns of faults count points, not events."""
        columns = ("points", "acknowledged", "failed", *(wrong.value for wrong in Wrong))
        rows = {kind: self._numbers((kind,)) for kind in self.points}
        rows["all"] = self._numbers(tuple(self.points))
        width = max(len(kind) for kind in rows)
        lines = [f"{'kind of point':<{width}}  {'  '.join(columns)}"]
        for kind, numbers in rows.items():
            cells = (f"{number:>{len(column)}}" for column, number in zip(columns, numbers, strict=True))
            lines.append(f"{kind:<{width}}  {'  '.join(cells)}")
        return "\n".join(lines)

    def _numbers(self, kinds: tuple[str, ...]) -> tuple[int, ...]:
        counted = tuple(
            sum(counter[kind] for kind in kinds) for counter in (self.points, self.acknowledged, self.failed)
        )
        return (*counted, *(sum(self.wrong[kind, wrong] for kind in kinds) for wrong in Wrong))


def main() -> int:
    parser = argparse.ArgumentParser(description="Faults at every write of a journal, and what they leave.")
    parser.add_argument("--points", type=int, default=1000, help="points on the simulated disk")
    parser.add_argument("--kills", type=int, default=100, help="processes killed on the real disk")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="run this one point of the seed, and tell what is wrong with it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="palyra-campaign-") as directory:
        if options.only is not None:
            return run_one(Campaign(options.seed, Path(directory)), options.only)
        tally = Tally()
        started_at_s = time.monotonic()
        run_points(Campaign(options.seed, Path(directory)), options.points, tally)
        run_kills(options.kills, options.seed, tally)
        run_full_disks(Path(directory), options.seed, tally)
    print(tally.table())
    print(_summary(tally, options.seed, time.monotonic() - started_at_s))
    return 0 if tally.is_clean else 1


def run_one(campaign: Campaign, number: int) -> int:
    trial = campaign.run(campaign.point(number))
    print(f"{trial.point}: {trial.acknowledged_count} acknowledged, {trial.failed_count} failed")
    for problem in trial.problems:
        print(f"  {problem}")
    return 1 if trial.problems else 0


def run_points(campaign: Campaign, points_count: int, tally: Tally) -> None:
    length = campaign.first_length()
    print(f"seed {campaign.seed}: a load is {length.operation_count} writes, syncs, truncations and deletions long")
    for number in range(1, points_count + 1):
        trial = campaign.run(campaign.point(number))
        tally.add(trial.point.kind.value, trial.acknowledged_count, trial.failed_count, trial.problems)
        if trial.problems:
            print(f"{trial.point}: {trial.problems[0]}; again: --seed {campaign.seed} --only {number}")
        if number % PROGRESS_EVERY == 0:
            print(f"{number} of {points_count} points", flush=True)


def run_kills(kills_count: int, seed: int, tally: Tally) -> None:
    for first in range(1, kills_count + 1, ROUNDS_A_JOURNAL):
        home = Path(tempfile.mkdtemp(prefix="palyra-kills-"))
        rounds_count = min(ROUNDS_A_JOURNAL, kills_count - first + 1)
        if not kill_in_a_row(KillRounds(home, seed * 1000 + first), rounds_count, tally):
            print(f"a kill of number {first} to {first + rounds_count - 1}; the journal is kept in {home}")
            return
        shutil.rmtree(home)
        print(f"{first + rounds_count - 1} of {kills_count} kills", flush=True)


def kill_in_a_row(rounds: KillRounds, rounds_count: int, tally: Tally) -> bool:
    """Whether all went well. Each round goes on with the journal of the one before, up to the first fault."""
    for _ in range(rounds_count):
        acknowledged_before = rounds.ledger.count(Outcome.ACKNOWLEDGED)
        problems = rounds.run_round()
        tally.add(KILL, rounds.ledger.count(Outcome.ACKNOWLEDGED) - acknowledged_before, 0, problems)
        if problems:
            print(problems[0])
            return False
    return True


def run_full_disks(directory: Path, seed: int, tally: Tally) -> None:
    for number in range(FULL_DISKS_COUNT):
        limited = directory / f"limited-{number}"
        limited.mkdir()
        outage = meet_file_limit(limited, seed + number)
        tally.add(FILE_LIMIT, outage.acknowledged_count, outage.failed_count, outage.problems)
        mounted = directory / f"mounted-{number}"
        try:
            with small_file_system(mounted):
                outage = meet_full_file_system(mounted, seed + number)
        except PermissionError as reason:
            print(f"left out: {reason}")
            return
        tally.add(FULL_MOUNT, outage.acknowledged_count, outage.failed_count, outage.problems)


def _summary(tally: Tally, seed: int, took_s: float) -> str:
    wrong = Counter(wrong for _, wrong in tally.wrong.elements())
    counts = f"lost {wrong[Wrong.LOST]}, torn {wrong[Wrong.TORN]}, verify failures {wrong[Wrong.VERIFY]}"
    others = sum(wrong.values()) - wrong[Wrong.LOST] - wrong[Wrong.TORN] - wrong[Wrong.VERIFY]
    total = f"{sum(tally.points.values())} points, {sum(tally.acknowledged.values())} acknowledged commits"
    return f"seed {seed}: {total}: {counts}, other faults {others}; {took_s:.0f} s"


if __name__ == "__main__":
    sys.exit(main())
