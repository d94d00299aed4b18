"""The campaign of hostile texts: each runs for real in a draft, as root and as an ordinary user.

Owns: the texts, and for each of them four questions. Did anything real change before a verdict? Did applying change
anything that the card did not name? Is a process left? Did anything reach the network?
Does not own: running them (text_worker). The short form is in test_shell_tricks and test_shell_planting.

    python -m tests.runtimes.text_campaign [--every 1] [--workers 3] [--timeout-s 3]

Prints a table, and ends with 1 if one of the answers is yes.
"""

import argparse
import gzip
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, Queue

import msgspec

from palyra.adapters.drafts.tree import remove_tree
from tests.runtimes import test_shell_planting as planting
from tests.runtimes import test_shell_tricks as tricks
from tests.runtimes import text_kinds as kinds
from tests.runtimes.shells import NOBODY, SECRET, USERS, House, open_house
from tests.runtimes.text_worker import Ran, Settled

WORKER = Path(__file__).parent / "text_worker.py"
GRACE_S = 2.0  # The kernel ends what a sandbox leaves as soon as its first process is gone.
PROGRESS_EVERY = 200
# Each text begins with these lines. They print the interfaces, and try the listener outside.
PROBE = """while read -r name _; do [[ $name == *: ]] && printf 'net %s\\n' "${{name%:}}"; done < /proc/net/dev
(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo 'net reached'
"""
# What leaves processes, tries the way out, and gives files what no card shows. `PORT` is the listener's.
OWN = [
    "(setsid nohup sleep 1000 >/dev/null 2>&1 &); echo left > proc",
    "sleep 1000 & disown; echo x > y",
    "python3 -c 'import os, time\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0: time.sleep(1000)'",
    "coproc sleep 1000; trap '' TERM HUP INT; (trap '' TERM HUP; exec sleep 1000) &",
    ":(){ :|:& };:",
    "cat; read x; cat < /dev/tty; mkfifo p; cat p",
    "while :; do :; done",
    "yes",
    "kill -9 -1; kill -STOP $PPID; echo x > y",
    'python3 -c \'import socket; socket.create_connection(("127.0.0.1", PORT)).send(b"x")\' && echo net reached',
    'python3 -c \'import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b"x", ("192.0.2.1", 53))\'',
    "python3 -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)' && echo net packets",
    "for a in 127.0.0.2 192.0.2.1 198.51.100.1; do (exec 3<>/dev/tcp/$a/PORT) 2>/dev/null && echo net $a; done",
    "unshare -n true && echo net namespace; ip link add x type dummy && echo net link; nsenter -t 1 -n true && echo net one",
    'python3 -c \'import os; os.setxattr("notes", "user.x", b"1")\'; echo x >> notes',
    'echo x > y; python3 -c \'import os; os.setxattr("y", "user.palyra.effect", b"1")\'',
    'mkdir y; python3 -c \'import os; os.setxattr("y", "user.x", b"1"); os.setxattr(".", "user.x", b"1")\'',
    "echo x > y; chmod 6777 y; setcap cap_net_raw+ep y; setfacl -m u:1000:rwx y; chattr +i y",
    "ln notes y; ln AGENTS.md z; echo x >> y; chmod 777 z",
    "touch -d 2001-01-01 notes; chmod 600 notes; chmod 644 notes; mv notes n; mv n notes",
]
Seen = dict[str, tuple[int, bytes, tuple[tuple[str, bytes], ...]]]
Named = tuple[str, str]  # Where a text comes from, and the text.


def texts(every: int) -> list[Named]:
    found = [("tricks", text) for text in tricks.TEXTS]
    found += [("own", text) for text in OWN]
    found += [("tricks of git", text) for _, text in tricks.GIT_TRICKS]
    found += [("planting", text) for text in (*planting.PLANTED, *planting.RUN_NEXT, *planting.LEFT_OUT)]
    found += [("shells", text) for text in kinds.SHELL] + [("folders", text) for text in kinds.FOLDERS]
    found += [("repositories", text) for text in kinds.GIT] + [("obeyed", text) for text in (*kinds.OBEYED, *kinds.RUN)]
    if tricks.COMMANDS.is_file():
        with gzip.open(tricks.COMMANDS, "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        found += [("corpus", row["command"]) for row in rows if row.get("auto_approve") is False]
    return found[::every]


class Listener:
    """A listener outside the sandbox. Whoever gets through is counted."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.count = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            taken, _ = self._socket.accept()
            taken.close()
            self.count += 1

    def works(self) -> bool:
        """Tells whether it counts somebody who may come. That one is not counted any more."""
        socket.create_connection(("127.0.0.1", self.port)).close()
        until_s = time.monotonic() + GRACE_S
        while not self.count and time.monotonic() < until_s:
            time.sleep(0.01)
        was_counted, self.count = self.count == 1, 0
        return was_counted


class Figures:
    """Counts what the texts came to, by user and by where they come from."""

    def __init__(self, total: int) -> None:
        self._lock = threading.Lock()
        self._total = total
        self._began_s = time.monotonic()
        self.counts: dict[Named, Counter[str]] = {}
        self.faults: list[str] = []
        self.done_count = 0

    def add(self, user: str, named: Named, ran: Ran, faults: list[str]) -> None:
        with self._lock:
            counted = self.counts.setdefault((user, named[0]), Counter())
            counted["texts"] += 1
            counted["changed"] += bool(ran.changes)
            counted["asked"] += bool(ran.attempt.asking)
            counted["ended"] += ran.attempt.outcome == "timeout" or (
                ran.attempt.code is not None and "limit" in ran.attempt.code
            )
            counted["faults"] += bool(faults)
            self.faults += [f"{user}: {named[1]!r}: {fault}" for fault in faults]
            self.done_count += 1
            if self.done_count % PROGRESS_EVERY == 0:
                took_s = time.monotonic() - self._began_s
                print(f"{self.done_count} of {self._total} after {took_s:.0f} s", flush=True)

    def print_table(self) -> None:
        columns = ("texts", "changed", "asked", "ended", "faults")
        print(f"{'user':8} {'from':14}" + "".join(f"{name:>9}" for name in columns))
        for (user, source), counted in sorted(self.counts.items()):
            print(f"{user:8} {source:14}" + "".join(f"{counted[name]:9}" for name in columns))
        print(f"{self.done_count} texts in {time.monotonic() - self._began_s:.0f} s")
        for fault in self.faults[:50]:
            print(f"FAULT {fault}")


class Bench:
    """One worker, and the house in which it runs text after text."""

    def __init__(self, user: str, house: House, listener: Listener, timeout_s: float) -> None:
        self._user, self._house, self._listener, self._timeout_s = user, house, listener, timeout_s
        planting.lay(house, user)
        tricks.lay_all(house.workspace, user)
        kinds.lay(house, user)
        self._laid = house.base.with_name(f"{house.base.name}-laid")
        _copy(house.workspace, self._laid)
        package = Path(__file__).parents[2]
        environment = {**os.environ, "PYTHONPATH": f"{package}:{package / 'src'}", "PALYRA_TEST_SECRET": SECRET}
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER), user], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd="/"
        )

    def close(self) -> None:
        self._process.communicate()
        remove_tree(str(self._laid))

    def serve(self, pending: "Queue[Named]", figures: Figures) -> None:
        """Runs what is pending. No text runs at all where the walls do not stand: some of them call far away."""
        ran, faults = self._try("true")
        if faults:
            figures.add(self._user, ("walls", "true"), ran, faults)
            return
        with suppress(Empty):
            while True:
                named = pending.get_nowait()
                ran, faults = self._try(named[1])
                figures.add(self._user, named, ran, faults)

    def _try(self, text: str) -> tuple[Ran, list[str]]:
        before, guarded = seen(self._house.workspace), self._guarded()
        command = PROBE.format(port=self._listener.port) + text.replace("PORT", str(self._listener.port))
        ran = msgspec.json.decode(
            self._ask({"base": str(self._house.base), "command": command, "timeout_s": self._timeout_s}), type=Ran
        )
        faults = [f"{each} before a verdict" for each in differences(before, seen(self._house.workspace))]
        faults += [f"a process is left: {each}" for each in self._left()]
        faults += self._net_faults(ran)
        settled = msgspec.json.decode(self._ask({}), type=Settled)
        if settled.fault:
            faults.append(f"not applied: {settled.fault}")
        after = seen(self._house.workspace)
        faults += [f"{each}, and no card named it" for each in differences(before, after, dict(ran.changes))]
        faults += [f"{each} outside" for each in differences(guarded, self._guarded())]
        if SECRET in ran.attempt.output and f"workspace: {SECRET}" not in ran.attempt.output:
            faults.append("it printed a secret of the daemon")
        if after != before:
            remove_tree(str(self._house.workspace))
            _copy(self._laid, self._house.workspace)
        return ran, faults

    def _ask(self, order: object) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def _guarded(self) -> Seen:
        return seen(self._house.outside) | seen(self._house.home, without="drafts")

    def _net_faults(self, ran: Ran) -> list[str]:
        found = {line for line in ran.attempt.output.splitlines() if line.startswith("net ")}
        faults = [f"the sandbox has {line}" for line in found - {"net lo"}]
        if self._listener.count:
            faults.append("somebody reached the listener")
        if "net lo" not in found and ran.attempt.outcome != "timeout" and ran.attempt.code not in ("output_limit",):
            faults.append(f"the text did not run: {ran.attempt.code}: {ran.attempt.output[:200]}")
        return faults

    def _left(self) -> list[str]:
        """Returns processes in a sandbox over this house. None may be there once the result is."""
        until_s = time.monotonic() + GRACE_S
        while (found := _sandboxed(str(self._house.base))) and time.monotonic() < until_s:
            time.sleep(0.02)
        return found


def seen(root: Path, without: str = "") -> Seen:
    """Returns what lies there: kinds and permissions, content, attributes."""
    found: Seen = {}
    for where, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != without or where != str(root)]
        for path in (where, *(f"{where}/{name}" for name in (*names, *folders))):
            mode = os.lstat(path).st_mode
            body = b""
            if stat.S_ISLNK(mode):
                body = os.fsencode(os.readlink(path))
            elif stat.S_ISREG(mode):
                body = Path(path).read_bytes()
            attributes = tuple((name, os.getxattr(path, name, follow_symlinks=False)) for name in _attributes(path))
            found[os.path.relpath(path, root)] = (mode, body, attributes)
    return found


def _attributes(path: str) -> list[str]:
    with suppress(OSError):
        return sorted(os.listxattr(path, follow_symlinks=False))
    return []


def differences(before: Seen, after: Seen, changes: dict[str, str] | None = None) -> list[str]:
    """Returns what differs and is not among the changes of a card."""
    named = {path.rstrip("/"): kind for path, kind in (changes or {}).items()}
    found = []
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        kind = named.get(path)
        if old == new:
            continue
        is_only_mode = old is not None and new is not None and old[1:] == new[1:]
        if kind is None or (kind == "mode" and not is_only_mode):
            found.append(f"{path} changed")
        elif old is not None and new is not None and old[2] != new[2]:
            found.append(f"the attributes of {path} changed")
        elif old is None and new is not None and new[2]:
            found.append(f"{path} came with attributes")
    return found


def _sandboxed(base: str) -> list[str]:
    own = os.readlink("/proc/self/ns/mnt")
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if os.readlink(f"/proc/{pid}/ns/mnt") != own and base in Path(f"/proc/{pid}/mountinfo").read_text():
                found.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")[:100])
    return found


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True)
    owner = source.stat().st_uid
    if owner == NOBODY and os.geteuid() == 0:
        for path in [target, *target.rglob("*")]:
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


@contextmanager
def _bench(user: str, listener: Listener, timeout_s: float) -> Iterator[Bench]:
    """In memory where that is: at the end of each draft the kernel syncs the disk."""
    with open_house(user, "/dev/shm" if os.path.isdir("/dev/shm") else "/var/tmp") as house:
        bench = Bench(user, house, listener, timeout_s)
        try:
            yield bench
        finally:
            bench.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--workers", type=int, default=3, help="side by side, for each user")
    parser.add_argument("--timeout-s", type=float, default=3.0)
    options = parser.parse_args()
    chosen, listener = texts(options.every), Listener()
    assert listener.works()
    figures = Figures(len(chosen) * len(USERS))

    def work(user: str, pending: "Queue[Named]") -> None:
        with _bench(user, listener, options.timeout_s) as bench:
            bench.serve(pending, figures)

    threads = []
    for user in USERS:
        pending: Queue[Named] = Queue()
        for named in chosen:
            pending.put(named)
        threads += [threading.Thread(target=work, args=(user, pending)) for _ in range(options.workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    figures.print_table()
    is_whole = figures.done_count == len(chosen) * len(USERS)
    sys.exit(0 if is_whole and not figures.faults else 1)


if __name__ == "__main__":
    main()
