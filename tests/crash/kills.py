"""Real processes and real deaths. Owns: starting a child on a real directory, killing it at a seeded moment, auditing.

Rounds go on with the same journal, so that each recovery builds on the one before it.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from tests.crash.audit import Problem, Wrong
from tests.crash.child import OPENING_LINE, Order
from tests.crash.ledger import Ledger, read_line
from tests.crash.scene import examine
from tests.crash.story import resume
from tests.support.waiting import WAIT_S

ROOT = Path(__file__).parents[2]
LINES_BEFORE_KILL_MAX = 120
DELAY_MAX_S = 0.004  # Of the order of a commit, so that kills fall into all its parts.
START_DELAY_MAX_S = 0.02  # Of the order of opening a journal.
WAVES_UNENDING = 1_000_000
NUMBERS_A_ROUND = 10_000
CHILD_TIMEOUT_S = WAIT_S


class KillRounds:
    def __init__(self, directory: Path, seed: int) -> None:
        self.ledger = Ledger()
        self._directory = directory
        self._seed = seed
        self._rounds_count = 0

    def run_round(self) -> list[Problem]:
        """One child lives, is killed, and what it left is examined."""
        self._rounds_count += 1
        chance = random.Random(f"{self._seed}/{self._rounds_count}")
        order = self._order(chance)
        with started_child(order) as child:
            _kill_sometime(child, self.ledger, chance)
            if child.wait(CHILD_TIMEOUT_S) != -signal.SIGKILL:
                return [Problem(Wrong.LIVE, f"the child ended before it was killed: {_pipe(child.stderr).read()}")]
        extra_number = order.first_number + NUMBERS_A_ROUND - 1
        return asyncio.run(examine(self._directory, self.ledger, extra_number, has_died=True))

    def _order(self, chance: random.Random) -> Order:
        first_number = self._rounds_count * NUMBERS_A_ROUND
        tapes = resume(self.ledger, chance, first_number).tapes
        return Order(
            str(self._directory),
            chance.getrandbits(32),
            first_number,
            {tape.stream: tape.seq for tape in tapes.values()},
            WAVES_UNENDING,
        )


@contextmanager
def started_child(order: Order) -> Iterator[subprocess.Popen[str]]:
    """The child at work; when the block ends it is dead and gone."""
    command = [sys.executable, "-m", "tests.crash.child"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipe = subprocess.PIPE
    child = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
        errors="surrogateescape",  # A kill may cut a character in two.
    )
    with child:
        try:
            stdin = _pipe(child.stdin)
            stdin.write(msgspec.json.encode(order).decode() + "\n")
            stdin.flush()
            yield child
        finally:
            child.kill()
            child.wait(CHILD_TIMEOUT_S)


def read_told(child: subprocess.Popen[str], ledger: Ledger) -> Iterator[None]:
    """Enters each line the child told, until it ends. A line cut off by its death says nothing."""
    for line in _pipe(child.stdout):
        if line.endswith("\n") and line.strip() != OPENING_LINE:
            read_line(line, ledger)
        yield


def _kill_sometime(child: subprocess.Popen[str], ledger: Ledger, chance: random.Random) -> None:
    is_early = chance.random() < 0.2
    lines_before_kill = 1 if is_early else chance.randint(2, LINES_BEFORE_KILL_MAX)
    delay_s = chance.uniform(0, START_DELAY_MAX_S if is_early else DELAY_MAX_S)
    for lines_count, _ in enumerate(read_told(child, ledger), start=1):
        if lines_count == lines_before_kill:
            time.sleep(delay_s)
            child.kill()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
