"""Kills a process that writes a vault with SIGKILL, at every step or at any moment, and reports what is left.

Run it as its own process (`python -m tests.support.vault_kills ACT DIRECTORY`), because it forks: a fork of the test
process would inherit its threads' locks. It prints one JSON line for each child.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

# Loaded beforehand, so that only the steps of the act are counted, and none of the import system.
import argon2.low_level  # noqa: F401
from cryptography.hazmat.bindings import _rust  # noqa: F401

from palyra.adapters.vault.header import Costs
from palyra.adapters.vault.keyring import Keyring, Origins
from palyra.adapters.vault.vault import Vault
from palyra.core.errors import PalyraError
from tests.support.kill_steps import die_at

POINTS_MAX = 300
KILLS = 25
WRITERS = 4
WRITES_EACH = 10
PASSPHRASE = "correct horse"
CHEAP = Costs(passes=1, memory_kib=8, lanes=1)
KEY = bytes(range(32))


def vault_at(path: Path) -> Vault:
    return Vault(path, Keyring(Origins(lambda: KEY, lambda: KEY, lambda: PASSPHRASE), CHEAP))


ACTS: dict[str, Callable[[Vault], object]] = {
    "first": lambda vault: vault.set("new", "value", 1),
    "replace": lambda vault: vault.set("old", "other", 2),
    "remove": lambda vault: vault.remove("old"),
    "passphrase": lambda vault: vault.lock_with_passphrase(PASSPHRASE),
}


def main() -> None:
    act, directory = sys.argv[1], Path(sys.argv[2])
    lines = {"anywhen": kill_at_any_moment, "together": write_together}.get(act)
    for line in lines(directory) if lines is not None else kill_at_each_step(act, directory):
        sys.stdout.write(json.dumps(line) + "\n")


def kill_at_each_step(act: str, directory: Path) -> Iterator[dict[str, object]]:
    for point in range(1, POINTS_MAX):
        path = directory / str(point) / "vault"
        if act != "first":
            vault_at(path).set("old", "value", 1)
        was_killed = die_at(point, lambda path=path: ACTS[act](vault_at(path)))  # type: ignore[misc]
        left: dict[str, object] = {"was_killed": was_killed, "holds": holdings(path)}
        vault_at(path).set("afterwards", "value", 3)
        left["files"] = sorted(each.name for each in path.parent.iterdir())
        left["afterwards"] = holdings(path)
        yield left
        if not was_killed:
            return


def kill_at_any_moment(directory: Path) -> Iterator[dict[str, object]]:
    """Starts writers that count upwards and print each number once it is stored, and kills them after some numbers."""
    chance = random.Random(7)
    for _ in range(KILLS):
        told = count_until_killed(directory / "vault", chance.randrange(1, 6), chance.random() * 0.003)
        yield {"told": told, "holds": holdings(directory / "vault")}


def write_together(directory: Path) -> Iterator[dict[str, object]]:
    children = [in_child(lambda writer=writer: _write_some(directory / "vault", writer)) for writer in range(WRITERS)]  # type: ignore[misc]
    yield {"codes": [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]}
    yield {"holds": holdings(directory / "vault")}


def holdings(path: Path) -> dict[str, str] | str:
    vault = vault_at(path)
    try:
        return {row.name: vault.get(row.name) or "" for row in vault.rows()}
    except PalyraError as error:
        return str(error)


def in_child(act: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        act()
        os._exit(0)
    return child


def count_until_killed(path: Path, lines_count: int, delay_s: float) -> int:
    """Returns the last number that the writer printed."""
    reading, writing = os.pipe()
    child = in_child(lambda: _count(path, writing))
    os.close(writing)
    with open(reading) as lines:
        told = [int(lines.readline()) for _ in range(lines_count)]
        time.sleep(delay_s)  # The kill comes during the next write. Any moment will do: no claim depends on it.
        os.kill(child, signal.SIGKILL)
        told += [int(line) for line in lines if line.endswith("\n")]
    os.waitpid(child, 0)
    return told[-1]


def _count(path: Path, writing: int) -> None:
    vault = vault_at(path)
    number = int(vault.get("count") or 0)
    while True:
        number += 1
        vault.set("count", str(number), number)
        os.write(writing, f"{number}\n".encode())


def _write_some(path: Path, writer: int) -> None:
    vault = vault_at(path)
    for number in range(WRITES_EACH):
        vault.set(f"writer{writer}-{number}", "value", number)


if __name__ == "__main__":
    main()
