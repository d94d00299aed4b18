"""What a tool call costs beyond the tool. Owns: gate, intent, outcome and attestation per call, the shell's start, reads at once.

A run of scripted turns drives the real engine with its journal on disk; between the end of one turn and the start of the next
lies everything a call costs. The tool's own time is measured in the same calls and taken off. The shell is held against
bubblewrap alone, started in the same way with the same walls.
Usage: python -m bench.tools [--quick]
"""

import argparse
import asyncio
import gc
import os
import statistics
import subprocess
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
from palyra.app.daemon import GC_THRESHOLDS, build_engine, prepare_home
from palyra.config import load
from palyra.core.events import Event
from palyra.core.ids import Principal
from palyra.core.redaction import KnownSecrets
from palyra.engine.engine import Engine
from palyra.engine.requests import RunRequest
from palyra.ports.provider import Completed

WANTED_CALL_MS = 3.0
WANTED_SHELL_MS = 15.0
SLOW_S = 0.05
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


async def run_turns(engine: Engine, name: str) -> list[Event]:
    request = RunRequest(text=name, origin="bench", can_ask=False)
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
        lines.append('[[scripts.turns]]\ntext = "Done."')
    return "\n".join(lines)


def report(name: str, values_ms: list[float], wanted_ms: float | None = None) -> None:
    wanted = f"   (wanted p50 <= {wanted_ms:g})" if wanted_ms is not None else ""
    ordered = sorted(values_ms)
    p99_ms = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    print(f"  {name:52} p50 {statistics.median(ordered):7.2f} ms   p99 {p99_ms:7.2f} ms{wanted}", flush=True)


async def measure_calls(engine: Engine, name: str, tool: type, calls_count: int) -> list[float]:
    """What each turn's calls cost beyond the slowest tool of the turn."""
    clock = Clock()
    with watching(clock, tool):
        await run_turns(engine, name)
    gaps_ms = clock.gaps_ms()
    own_ms = [
        max(clock.tool_s[start : start + calls_count]) * 1000 for start in range(0, len(clock.tool_s), calls_count)
    ]
    return [gap - own for gap, own in zip(gaps_ms, own_ms, strict=False)]


async def measure_whole(engine: Engine, name: str) -> list[float]:
    clock = Clock()
    with watching(clock):
        await run_turns(engine, name)
    return clock.gaps_ms()


async def measure_slow(engine: Engine, count: int) -> None:
    """Reads that take a while, each turn in a session of its own: a page from outside would make the next visit ask."""
    times_ms: dict[str, list[float]] = {}
    for name in ("slowly", "abreast"):
        gaps = [await measure_whole(engine, name) for _ in range(count)]
        times_ms[name] = [gap for each in gaps for gap in each]
    report(f"a turn with one fetch that takes {SLOW_S * 1000:g} ms, whole", times_ms["slowly"])
    report("a turn with four of them at once, whole", times_ms["abreast"])
    ratio = statistics.median(times_ms["abreast"]) / statistics.median(times_ms["slowly"])
    print(f"  {'four slow reads to one':52} ratio {ratio:.2f}")


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


async def measure_shell(engine: Engine, bare_ms: list[float]) -> None:
    clock = Clock()
    with watching(clock, ShellRun):
        await run_turns(engine, "shell")
    tool_ms = [took_s * 1000 for took_s in clock.tool_s]
    over_ms = statistics.median(tool_ms) - statistics.median(bare_ms)
    report("bubblewrap alone, `true`", bare_ms)
    report("shell.run, `echo`", tool_ms)
    print(f"  {'shell.run over bubblewrap alone':52} p50 {over_ms:7.2f} ms   (wanted <= {WANTED_SHELL_MS:g})")
    overhead_ms = [gap - own for gap, own in zip(clock.gaps_ms(), tool_ms, strict=False)]
    report("shell.run, gate to outcome beyond the process", overhead_ms, WANTED_CALL_MS)


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
    count = 10 if parser.parse_args().quick else 60
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
        engine = build_engine(home, load(home.root, {}), client, KnownSecrets(), CedarPolicy())
        try:
            await engine.start()
            await run_turns(engine, "time")
            gc.collect()
            gc.freeze()
            await measure_all(engine, home, count)
        finally:
            await engine.close()
            await client.close()
            site.close()


async def measure_all(engine: Engine, home: Home, count: int) -> None:
    print(f"per call, {count} calls each, SQLite with synchronous=FULL:")
    report("the disk alone: a block written and synced", disk_ms())
    report("time.now beyond the function", await measure_calls(engine, "time", TimeNow, 1), WANTED_CALL_MS)
    report("fs.read beyond the function", await measure_calls(engine, "one", FsRead, 1), WANTED_CALL_MS)
    one_ms, four_ms = await measure_whole(engine, "one"), await measure_whole(engine, "four")
    report("a turn with one read, whole", one_ms)
    report("a turn with four reads at once, whole", four_ms)
    print(f"  {'four reads to one':52} ratio {statistics.median(four_ms) / statistics.median(one_ms):.2f}")
    await measure_slow(engine, max(3, count // 4))
    sandbox = find_sandbox()
    if isinstance(sandbox, NoSandbox):
        print(f"  no shell here: {sandbox.reason}")
        return
    await measure_shell(engine, bare_bwrap_ms(bare_command(sandbox, home.workspace), count))


def bare_command(sandbox: Sandbox, workspace: Path) -> list[str]:
    """The same namespaces and the same system inside, without filter, limits, private folders or bash."""
    return [sandbox.program, *sandbox.options, "--bind", str(workspace), str(workspace), "--", "/usr/bin/true"]


if __name__ == "__main__":
    # As the daemon runs.
    gc.set_threshold(*GC_THRESHOLDS)
    uvloop.run(main())
