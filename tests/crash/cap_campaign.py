"""The campaign against a cap. Owns: many runs against one budget, a daemon killed among them, and the account of all spend.

    python -m tests.crash.cap_campaign --kills 5

Every call costs the same by what the provider counts, which has nothing to do with what was sent. Fifty runs ask for
twice the cap at once; the daemon is killed while some of their calls are out, once or twice, at seeded moments. Afterwards
the tapes must account for every request: the cap is reached, overshot by one request at most, and what was cut off
counts its reservation.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

from palyra.adapters.keys.directory import KeyDirectory
from palyra.adapters.store.sqlite.archive import Archive
from palyra.core.ids import is_system_stream
from palyra.core.verification import verify
from tests.support.bad_providers import Providers, section
from tests.support.daemons import Daemon
from tests.support.provider_answers import chat
from tests.support.stand_in_provider import Played, StandInProvider

LIMIT_USD = 1.0
CALL_USD = 0.04
DUST_USD = 1e-6  # Sums of binary fractions.
RESERVED_SHARE_MAX = 1.1  # What is cut off counts its reservation, which is near what such a call has cost before.
RUNS_COUNT = 50
SESSIONS_COUNT = 25
STARTERS = 8
ANSWER = "Counted."
# 1,000 tokens in and out, at $20 for a million each, whatever was sent: four cents.
SAYS = Played(
    body=chat({"content": ANSWER}, usage={"prompt_tokens": 1_000, "completion_tokens": 1_000, "total_tokens": 2_000})
)
CONFIG = "\n".join(
    (
        section("provider", name="meter", kind="openai-chat", base_url="URL"),
        section(
            "model",
            name="metered",
            provider="meter",
            max_output_tokens=1_500,  # Makes a reservation of about three cents: too low, but near.
            input_usd_per_mtok=20.0,
            output_usd_per_mtok=20.0,
        ),
        section("agent", name="main", tools=[]),
        section("budget", scope="global", limit_usd=LIMIT_USD),
    )
)
KILLS_A_HOME = 2
KILL_AFTER_CALLS = (1, 12)
KILL_AFTER_MS = (0, 250)  # From that call on.
CALLS_TIMEOUT_S = 3.0  # A daemon that has nothing more to ask is killed all the same.
ANSWER_AFTER_MS = (5, 300)

Json = dict[str, Any]


class Meter(StandInProvider):
    """Takes its time over each answer, so that calls are out at any moment. One that is set to answers never hurries."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(SAYS)
        self._chance = chance

    async def _play(self, answer: Played, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(self._chance.randint(*ANSWER_AFTER_MS) / 1000)
        await super()._play(answer, writer)


class Cap:
    """One home with the cap, and the provider behind it, through several lives of the daemon."""

    def __init__(self, home: Path, meter: StandInProvider) -> None:
        self.meter = meter
        self.daemon = Daemon(home)
        self.run_ids: set[str] = set()
        (home / "palyra.toml").write_text(CONFIG.replace("URL", meter.url))

    def begin(self) -> None:
        """Asks for all runs at once. Asked for again after a kill they are the same ones."""
        with ThreadPoolExecutor(STARTERS) as pool:
            self.run_ids |= {run_id for run_id in pool.map(self._begin, range(RUNS_COUNT)) if run_id}

    def wait_for_calls(self, count: int) -> None:
        """Until the provider was asked that often in all, or for long enough."""
        due_s = time.monotonic() + CALLS_TIMEOUT_S
        while len(self.meter.asked) < count and time.monotonic() < due_s:
            time.sleep(0.002)

    def finish(self) -> None:
        for run_id in sorted(self.run_ids):
            for _frame in self.daemon.follow(run_id):
                pass

    def account(self) -> "Account":
        return Account(self.daemon.home, len(self.meter.asked))

    def _begin(self, number: int) -> str | None:
        body = {"text": f"Run {number}.", "session_key": f"s{number % SESSIONS_COUNT}", "idempotency_key": f"r{number}"}
        with suppress(OSError, HTTPException, ValueError):
            status, record = self.daemon.call("POST", "/api/v1/runs", body)
            return str(record["id"]) if status == 202 else None
        return None


class Account:
    """What the tapes say of all spend."""

    def __init__(self, home: Path, asked_count: int) -> None:
        self._home = home
        self._asked_count = asked_count
        self.requested: list[tuple[str, int]] = []
        self.answered: list[tuple[str, int]] = []
        self.usages: list[tuple[tuple[str, int], Json]] = []
        self.endings: list[Json] = []
        for type_name, run_id, data in _events(home):
            self._read(type_name, run_id, data)

    @property
    def total_usd(self) -> float:
        return sum(usage["cost_usd"] for _, usage in self.usages)

    @property
    def estimates(self) -> list[Json]:
        return [usage for _, usage in self.usages if usage.get("is_estimate")]

    @property
    def denials(self) -> list[Json]:
        return [ending for ending in self.endings if ending["reason"] == "budget"]

    def faults(self) -> list[str]:
        """What is wrong, in words; nothing if nothing is."""
        return [*self._faults_of_sums(), *self._faults_of_calls(), *self._faults_of_runs(), *self._faults_of_journal()]

    def _read(self, type_name: str, run_id: str, data: Json) -> None:
        match type_name:
            case "model.requested":
                self.requested.append((run_id, data["turn"]))
            case "model.output" | "model.failed":
                self.answered.append((run_id, data["turn"]))
            case "usage.recorded":
                self.usages.append(((run_id, data["turn"]), data))
            case "run.done" | "run.failed" | "run.cancelled":
                self.endings.append(data)
            case _:
                return

    def _faults_of_sums(self) -> Iterator[str]:
        dearest = max((usage["cost_usd"] for _, usage in self.usages), default=0.0)
        if not LIMIT_USD - DUST_USD <= self.total_usd <= LIMIT_USD + dearest + DUST_USD:
            yield f"${self.total_usd:.6f} were spent of ${LIMIT_USD}, with ${dearest:.6f} for the dearest request"
        if dearest > CALL_USD * RESERVED_SHARE_MAX:
            yield f"a request that costs ${CALL_USD} was counted with ${dearest:.6f}"
        if self._asked_count > len(self.usages):
            yield f"the provider was asked {self._asked_count} times and {len(self.usages)} calls are accounted for"

    def _faults_of_calls(self) -> Iterator[str]:
        settled = Counter(turn for turn, _ in self.usages)
        for turn in set(self.requested) | set(settled):
            if settled[turn] != self.requested.count(turn):
                yield f"{turn} was requested {self.requested.count(turn)} and settled {settled[turn]} times"
        for turn, usage in self.usages:
            is_cut_off = turn not in self.answered
            if bool(usage.get("is_estimate")) is not is_cut_off:
                yield f"{turn} was {'cut off' if is_cut_off else 'answered'} and is settled by {usage}"
            if usage["cost_usd"] <= 0:
                yield f"{turn} cost nothing: {usage}"

    def _faults_of_runs(self) -> Iterator[str]:
        reasons = Counter(ending["reason"] for ending in self.endings)
        if len(self.endings) != RUNS_COUNT or set(reasons) - {"final_answer", "budget"}:
            yield f"runs ended with {dict(reasons)}"
        for ending in self.denials:
            if not all(
                words in ending["message"] for words in ("global ($1.00) is used up", "palyra.toml", "`palyra usage`")
            ):
                yield f"nobody can act on: {ending['message']}"

    def _faults_of_journal(self) -> Iterator[str]:
        with Archive(self._home / "journal.db") as archive:
            report = verify(archive.evidence(KeyDirectory(self._home / "keys")))
        yield from map(str, report.findings)


def _events(home: Path) -> Iterator[tuple[str, str, Json]]:
    with Archive(home / "journal.db") as archive:
        for stream in archive.streams():
            if is_system_stream(stream):
                continue
            for event in archive.events(stream):
                yield event.type, event.run_id or "", json.loads(event.data)


def live_through_kills(cap: Cap, chance: random.Random, kills_count: int) -> int:
    """The same work until it is done, with that many kills at most; gives how many runs had not ended at each, together."""
    open_count = 0
    for _ in range(kills_count):
        cap.daemon.start()
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(cap.begin)
            cap.wait_for_calls(len(cap.meter.asked) + chance.randint(*KILL_AFTER_CALLS))
            time.sleep(chance.randint(*KILL_AFTER_MS) / 1000)
            cap.daemon.kill()
            asking.result()
        open_count += RUNS_COUNT - len(cap.account().endings)
    with cap.daemon:
        cap.begin()
        cap.finish()
    return open_count


def run_home(folder: Path, seed: int, kills_count: int) -> tuple[list[str], int, int]:
    """Faults, calls that a kill cut off, and runs that were open at the kills."""
    chance = random.Random(seed)
    with Providers() as providers:
        cap = Cap(folder / str(seed), providers.open(Meter(random.Random(seed))))
        open_count = live_through_kills(cap, chance, kills_count)
        account = cap.account()
    return [f"seed {seed}: {fault}" for fault in account.faults()], len(account.estimates), open_count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    faults: list[str] = []
    killed = cut_off = open_count = 0
    seed = arguments.seed
    while killed < arguments.kills:
        kills_count = min(KILLS_A_HOME, arguments.kills - killed)
        with tempfile.TemporaryDirectory() as folder:
            found, cut_off_here, open_here = run_home(Path(folder), seed, kills_count)
        faults += found
        killed, cut_off, open_count, seed = (
            killed + kills_count,
            cut_off + cut_off_here,
            open_count + open_here,
            seed + 1,
        )
        print(
            f"  {killed} kills, {open_count} runs open at them, {cut_off} calls cut off, {len(faults)} faults",
            flush=True,
        )
    print(f"a cap of ${LIMIT_USD:.2f}, {RUNS_COUNT} runs at once, {killed} SIGKILLs: {len(faults)} faults")
    for fault in faults[:20]:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
