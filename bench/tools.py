"""What a tool call costs beyond the tool. Owns: gate, intent, outcome and attestation per call, the shell's start, reads at once.

A run of scripted turns drives the real engine with its journal on disk; between the end of one turn and the start of the next
lies everything a call costs, and what any turn does: recording the answer, planning the next. The tool's own time is measured in
the same calls and taken off, and so is a turn without a call. The shell is held against
bubblewrap alone, started in the same way with the same walls.
Usage: python -m bench.tools [--quick]
"""

import argparse
import asyncio
import gc
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zoneinfo import available_timezones

import uvloop

from palyra.adapters.net.client import HttpClient
from palyra.adapters.policy.cedar import CedarPolicy
from palyra.adapters.providers.scripted import ScriptedProvider
from palyra.adapters.runtimes.shell.run import ShellRun
from palyra.adapters.runtimes.shell.sandbox import NoSandbox, Sandbox, find_sandbox
from palyra.adapters.tools.fs_read import FsRead
from palyra.adapters.tools.time_now import TimeNow
from palyra.app import Home
from palyra.app.daemon import GC_THRESHOLDS, SWITCH_INTERVAL_S, prepare_home
from palyra.app.engine_builder import DaemonParts, build_engine
from palyra.config import load
from palyra.core.events import Event
from palyra.core.events.base import JsonObject
from palyra.core.ids import Principal
from palyra.core.redaction import KnownSecrets
from palyra.core.trust import Trust
from palyra.engine.api.requests import RunRequest
from palyra.engine.engine import Engine
from palyra.ports.provider import Completed

TURNS = 20  # Of each run: a long conversation would cost by itself.
SLOW_S = 0.05
BARE = "from turn to turn with no call between"
BETWEEN = "the same with {} between, less the tool"
OWNER = Principal("user:owner")
ZONES = sorted(
    zone for zone in available_timezones() if "/" in zone
)  # Equal reads would end the run: it went in circles.
CONFIG = """
[[provider]]
name = "script"
kind = "scripted"
file = "script.toml"
[[agent]]
name = "default"
[run]
max_tool_calls = 2000
[http]
allow = ["127.0.0.1:{port}"]
"""


class Clock:
    """When turns ended and began, and how long tools themselves took."""

    def __init__(self) -> None:
        self.ended_s: list[float] = []
        self.began_s: list[float] = []
        self.tool_s: list[float] = []

    def gaps_ms(self) -> list[float]:
        """From the end of each turn to the start of the next."""
        return [(later - earlier) * 1000 for earlier, later in zip(self.ended_s, self.began_s[1:], strict=False)]


@contextmanager
def watching(clock: Clock, *tools: type) -> Iterator[None]:
    """The provider and the tools with a stopwatch on them."""
    stream = ScriptedProvider.stream

    async def watched(self: ScriptedProvider, request: Any) -> AsyncGenerator[Any, None]:
        clock.began_s.append(time.perf_counter())
        async for delta in stream(self, request):
            if isinstance(delta, Completed):
                clock.ended_s.append(time.perf_counter())
            yield delta

    kept = [(tool, tool.execute) for tool in tools]  # type: ignore[attr-defined]
    ScriptedProvider.stream = watched  # type: ignore[method-assign]
    for tool, execute in kept:
        tool.execute = timed(clock, execute)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        ScriptedProvider.stream = stream  # type: ignore[method-assign]
        for tool, execute in kept:
            tool.execute = execute  # type: ignore[attr-defined]


def timed(clock: Clock, execute: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def watched(*arguments: Any) -> Any:
        started_s = time.perf_counter()
        try:
            return await execute(*arguments)
        finally:
            clock.tool_s.append(time.perf_counter() - started_s)

    return watched


async def run_turns(engine: Engine, name: str, schema: JsonObject | None = None) -> list[Event]:
    request = RunRequest(text=name, trust=Trust.OPERATOR, origin="bench", can_ask=False, answer_schema=schema)
    _, frames = await engine.runs.start_and_follow(OWNER, request)
    events = [frame async for frame in frames if isinstance(frame, Event)]
    if events[-1].type != "run.done":
        raise RuntimeError(f"the run of {name} ended with {events[-1].type}: {events[-1].data}")
    return events


def script(turns: dict[str, tuple[int, int, str]]) -> str:
    """`name: (turns, calls a turn, a call as TOML)`."""
    lines = []
    for name, (turns_count, calls_count, call) in turns.items():
        lines.append(f'[[scripts]]\nwhen = "{name}"')
        for turn in range(turns_count):
            lines.append("[[scripts.turns]]")
            for number in range(calls_count):
                lines.append(f"[[scripts.turns.calls]]\n{call.format(number=number, turn=turn, zone=ZONES[turn])}")
        if not turns_count:
            lines.append('[[scripts.turns]]\ntext = "No."')
        lines.append("[[scripts.turns]]\ntext = '{}'" if not turns_count else '[[scripts.turns]]\ntext = "Done."')
    return "\n".join(lines)


def report(name: str, values_ms: list[float]) -> None:
    print(f"  {name:56} best {min(values_ms):7.2f} ms   median {statistics.median(values_ms):7.2f} ms", flush=True)


def report_difference(name: str, rounds: list[dict[str, float]], of: str, less: str) -> None:
    """Best less best and median less median: the smallest difference of a round would be that with the slowest baseline."""
    picks = (min, statistics.median)
    best, median = (pick([each[of] for each in rounds]) - pick([each[less] for each in rounds]) for pick in picks)
    print(f"  {name:56} best {best:7.2f} ms   median {median:7.2f} ms", flush=True)


async def measure_calls(engine: Engine, name: str, tool: type) -> list[float]:
    """From turn to turn with a call between, less the tool itself."""
    clock = Clock()
    with watching(clock, tool):
        await run_turns(engine, name)
    return [gap - own * 1000 for gap, own in zip(clock.gaps_ms(), clock.tool_s, strict=False)]


async def measure_bare_turns(engine: Engine, count: int) -> list[float]:
    """From one turn to the next without a call between: the first answer does not meet the caller's schema."""
    gaps: list[float] = []
    for _ in range(count):
        clock = Clock()
        with watching(clock):
            await run_turns(engine, "plain", {"type": "object"})
        gaps += clock.gaps_ms()
    return gaps


async def measure_whole(engine: Engine, name: str) -> list[float]:
    clock = Clock()
    with watching(clock):
        await run_turns(engine, name)
    return clock.gaps_ms()


async def answer_slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    await asyncio.sleep(SLOW_S)
    body = head.split(b" ", 2)[1]
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
    await writer.drain()
    writer.close()


def bare_bwrap_ms(command: list[str], count: int) -> list[float]:
    times_ms = []
    for _ in range(count):
        started_s = time.perf_counter()
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        times_ms.append((time.perf_counter() - started_s) * 1000)
    return times_ms


async def measure_shell(engine: Engine) -> tuple[float, float]:
    """The tool's own time, and from turn to turn beyond it."""
    clock = Clock()
    with watching(clock, ShellRun):
        await run_turns(engine, "shell")
    tool_ms = [took_s * 1000 for took_s in clock.tool_s]
    over_ms = [gap - own for gap, own in zip(clock.gaps_ms(), tool_ms, strict=False)]
    return statistics.median(tool_ms), statistics.median(over_ms)


def disk_ms() -> list[float]:
    times_ms = []
    with tempfile.TemporaryFile(prefix="palyra-bench-") as file:
        for _ in range(100):
            os.pwrite(file.fileno(), b"x" * 4096, 0)
            started_s = time.perf_counter()
            os.fdatasync(file.fileno())
            times_ms.append((time.perf_counter() - started_s) * 1000)
    return times_ms


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few calls, for a check that it still runs")
    rounds_count = 1 if parser.parse_args().quick else 7
    count = TURNS
    with tempfile.TemporaryDirectory(prefix="palyra-bench-") as folder:
        home = Home(Path(folder))
        site = await asyncio.start_server(answer_slowly, "127.0.0.1", 0)
        port = site.sockets[0].getsockname()[1]
        (home.root / "palyra.toml").write_text(CONFIG.format(port=port))
        page = f'tool = "http.fetch"\narguments = {{{{ url = "http://127.0.0.1:{port}/{{number}}" }}}}'
        turns = {
            "time": (count, 1, 'tool = "time.now"\narguments = {{ timezone = "{zone}" }}'),
            "one": (count, 1, 'tool = "fs.read"\narguments = {{ path = "t{turn}-{number}.txt" }}'),
            "four": (count, 4, 'tool = "fs.read"\narguments = {{ path = "t{turn}-{number}.txt" }}'),
            "plain": (0, 0, ""),
            "slowly": (1, 1, page),
            "abreast": (1, 4, page),
            "shell": (count, 1, 'tool = "shell.run"\narguments = {{ command = "echo {turn}" }}'),
        }
        (home.root / "script.toml").write_text(script(turns))
        prepare_home(home)
        for turn in range(count):
            for number in range(4):
                (home.workspace / f"t{turn}-{number}.txt").write_text(f"{turn} {number}\n" * 200)
        client = HttpClient()
        engine = build_engine(home, load(home.root, {}), DaemonParts(client, KnownSecrets(), CedarPolicy()))
        try:
            await engine.start()
            await run_turns(engine, "time")
            gc.collect()
            gc.freeze()
            await measure_all(engine, home, rounds_count)
        finally:
            await engine.close()
            await client.close()
            site.close()


async def measure_all(engine: Engine, home: Home, rounds_count: int) -> None:
    sandbox = find_sandbox()
    command = None if isinstance(sandbox, NoSandbox) else bare_command(sandbox, home.workspace)
    print(
        f"{rounds_count} rounds of {TURNS} calls each, SQLite with synchronous=FULL; the p50 of each round, best and median:"
    )
    rounds = [await measure_round(engine, command) for _ in range(rounds_count)]
    for name in rounds[0]:
        report(name, [each[name] for each in rounds])
    for tool in ("time.now", "fs.read", *(["shell.run"] if command is not None else [])):
        report_difference(f"{tool} adds (wanted <= 3)", rounds, BETWEEN.format(tool), BARE)
    if command is not None:
        report_difference(
            "a draft over bubblewrap (wanted <= 3)", rounds, "shell.run in a draft, `echo`", "bubblewrap alone, `true`"
        )
    if isinstance(sandbox, NoSandbox):
        print(f"  no shell here: {sandbox.reason}")


async def measure_round(engine: Engine, command: list[str] | None) -> dict[str, float]:
    """Everything once, so that a slow moment of the machine hits what is compared alike."""
    p50 = statistics.median
    found = {"the disk alone: a block written and synced": p50(disk_ms())}
    found[BARE] = p50(await measure_bare_turns(engine, TURNS))
    found[BETWEEN.format("time.now")] = p50(await measure_calls(engine, "time", TimeNow))
    found[BETWEEN.format("fs.read")] = p50(await measure_calls(engine, "one", FsRead))
    one, four = p50(await measure_whole(engine, "one")), p50(await measure_whole(engine, "four"))
    found["a turn with one read"], found["a turn with four reads at once"] = one, four
    slow = p50([gap for _ in range(4) for gap in await measure_whole(engine, "slowly")])
    abreast = p50([gap for _ in range(4) for gap in await measure_whole(engine, "abreast")])
    found[f"a turn with one fetch that takes {SLOW_S * 1000:g} ms"] = slow
    found["a turn with four of them at once"] = abreast
    if command is not None:
        bare, own, gap = p50(bare_bwrap_ms(command, TURNS)), *(await measure_shell(engine))
        found["bubblewrap alone, `true`"], found["shell.run in a draft, `echo`"] = bare, own
        found[BETWEEN.format("shell.run")] = gap
    return found


def bare_command(sandbox: Sandbox, workspace: Path) -> list[str]:
    """The same namespaces and the same system inside, without filter, limits, private folders or bash."""
    return [sandbox.program, *sandbox.options, "--bind", str(workspace), str(workspace), "--", "/usr/bin/true"]


if __name__ == "__main__":
    # As the daemon runs.
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    uvloop.run(main())
