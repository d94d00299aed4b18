"""`palyra top`: what the daemon does now, drawn again every second.

Owns: gathering runs and metrics, and when the picture is drawn.
Does not own: the picture (terminal.top_view), the numbers (metrics).
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from palyra.cli.daemon_call import Client, ask_daemon
from palyra.cli.metrics import Scrape, read_scrape
from palyra.cli.options import CommandGroup, is_json
from palyra.cli.output import print_json
from palyra.core.errors import Unauthorized, Unavailable
from palyra.core.events.base import JsonObject

if TYPE_CHECKING:
    from palyra.cli.terminal.top_view import TopState

RUNS_MAX = 100
STATES = ("in_progress", "waiting", "accepted")

app = CommandGroup()


@app.command()
def top(
    context: typer.Context,
    every: Annotated[float, typer.Option("--every", min=0.2, max=60, help="Seconds between two pictures.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Draw one picture and end.")] = False,
) -> None:
    """Show what the daemon does now: runs, times, tokens, cost, approvals, jobs. q or Ctrl-C ends.

    With the role operator or admin it shows everyone's runs, else your own.

    Examples:

      palyra top

      palyra top --once --json
    """
    if is_json(context):
        print_json(ask_daemon(context, _snapshot))
        return
    ask_daemon(context, _active_runs)  # A wrong address or token is told before the screen is taken.
    if once or not sys.stdout.isatty():
        ask_daemon(context, _draw_once)
        return
    with suppress(KeyboardInterrupt):
        ask_daemon(context, lambda client: _draw_on(client, every))


async def _snapshot(client: Client) -> JsonObject:
    state = await _state(client, None)
    numbers = {_spelled(name, labels): value for (name, labels), value in state.now.samples.items()}
    return {"runs": state.runs, "metrics": numbers}


async def _draw_once(client: Client) -> None:
    from rich.console import Console

    from palyra.cli.terminal.top_view import draw

    console = Console()
    console.print(draw(await _state(client, None), rows_max=1000))


async def _draw_on(client: Client, every_s: float) -> None:
    """The screen is given back at the end, however that comes. A daemon that is restarted is shown again."""
    import asyncio

    from rich.console import Console
    from rich.live import Live

    from palyra.cli.terminal.top_view import draw, draw_absence

    console, before, is_over = Console(), None, asyncio.Event()
    with _keys_read(is_over.set), Live(console=console, screen=True, auto_refresh=False) as live:
        while not is_over.is_set():
            try:
                state = await _state(client, before)
            except Unavailable as error:
                live.update(draw_absence(client.address, error.message), refresh=True)
            else:
                live.update(draw(state, console.size.height), refresh=True)
                before = state.now
            with suppress(TimeoutError):
                await asyncio.wait_for(is_over.wait(), every_s)


@contextmanager
def _keys_read(end: Callable[[], object]) -> Iterator[None]:
    """Calls `end` when q is pressed. Keys are not echoed meanwhile; Ctrl-C stays what it is."""
    if not sys.stdin.isatty():
        yield
        return
    import asyncio
    import termios
    import tty

    number, loop = sys.stdin.fileno(), asyncio.get_running_loop()

    def take() -> None:
        if b"q" in os.read(number, 64).lower():
            end()

    mode = termios.tcgetattr(number)
    tty.setcbreak(number)
    loop.add_reader(number, take)
    try:
        yield
    finally:
        loop.remove_reader(number)
        termios.tcsetattr(number, termios.TCSADRAIN, mode)


async def _state(client: Client, before: Scrape | None) -> "TopState":
    from palyra.cli.terminal.top_view import TopState

    now = read_scrape(await client.metrics(), time.monotonic())
    runs, is_everyone = await _active_runs(client)
    return TopState(
        address=client.address,
        now=now,
        before=before,
        runs=runs,
        at_ms=int(time.time() * 1000),
        is_everyone=is_everyone,
    )


async def _active_runs(client: Client) -> tuple[list[JsonObject], bool]:
    try:
        return await _runs(client, everyone="true"), True
    except Unauthorized:
        return await _runs(client), False


async def _runs(client: Client, **query: str) -> list[JsonObject]:
    found = [await client.items("/runs", RUNS_MAX, state=state, **query) for state in STATES]
    return [run for part in found for run in part]


def _spelled(name: str, labels: tuple[tuple[str, str], ...]) -> str:
    inner = ",".join(f'{key}="{value}"' for key, value in labels)
    return f"{name}{{{inner}}}" if inner else name
