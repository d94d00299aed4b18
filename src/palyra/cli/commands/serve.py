"""`palyra serve`: its options, and what it prints at the start. Does not own: the daemon (app)."""

import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from palyra.cli import supervisor
from palyra.cli.commands.config import load_or_explain, look_further, warning_line
from palyra.cli.options import home_of
from palyra.cli.output import print_notice
from palyra.core.errors import PalyraError

if TYPE_CHECKING:
    from palyra.config import Config

app = typer.Typer()


@app.command()
def serve(
    context: typer.Context,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow listening beyond this machine without TLS.")
    ] = False,
    no_supervisor: Annotated[
        bool, typer.Option("--no-supervisor", help="Run the daemon in this process; nothing starts it again.")
    ] = False,
) -> None:
    """Run the daemon until Ctrl-C or SIGTERM stops it. `palyrad` is the same command.

    The first start creates the home, its keys and admin.token. Unfinished runs of an earlier process are resumed. A
    small supervisor starts the daemon again if it is killed or stuck. systemd does that itself, so there is none there.

    A stop waits up to run.drain_s for active runs. A second Ctrl-C stops at once; the next start resumes those runs.

    Examples:

      palyra serve

      PALYRA_SERVER__HTTP=127.0.0.1:8000 palyra --home /srv/palyra serve
    """
    reason = "" if no_supervisor else _supervised()

    from palyra.app.daemon import run_daemon

    home = home_of(context)
    config = load_or_explain(home)
    if insecure:
        config = msgspec.structs.replace(config, server=msgspec.structs.replace(config.server, insecure=True))
    problems, warnings = look_further(home, config)
    for problem in problems:
        print_notice(f"error: {problem}")
    if problems:
        raise typer.Exit(1)
    if not reason:
        for warning in warnings:
            print_notice(warning_line(warning))

    def announce(address: str, link: str, models: str) -> None:
        if reason:
            return print_notice(f"palyra listens on {address} again, restarted after {reason}")
        is_terminal = sys.stderr.isatty()
        # A terminal shows one link, the one that logs in.
        place = address.partition("://")[2] if is_terminal else address
        print_notice(f"palyra listens on {place}; its token is in {home.admin_token}")
        if models:
            print_notice(f"models: {models}")
        palyra = command_of(home.root)
        if is_terminal:
            # Outside a terminal the link would stay in a log that others may read while it is valid.
            _print_copyable("log in with a browser, once, within 10 minutes:", link)
        else:
            _print_copyable("to log in with a browser:", f"{palyra} login-link")
        _print_copyable("talk to it in another terminal:", f"{palyra} chat{_url_option(config, address)}")

    with _asking_for_another_try(reason):
        run_daemon(home, config, announce, _tell)


@contextmanager
def _asking_for_another_try(reason: str) -> Iterator[None]:
    """A restart that fails may work later, when the disk is back or the port is free. The supervisor tries again."""
    try:
        yield
    except PalyraError as error:
        if not reason:
            raise
        _tell(f"error: {error}")
        raise typer.Exit(supervisor.RESTART_EXIT_CODE) from error


def _tell(words: str) -> None:
    typer.echo(words, err=True)


def _print_copyable(label: str, words: str) -> None:
    """Prints words to copy: in a line of their own if they do not fit, and never with a line break in them."""
    is_long = sys.stderr.isatty() and len(f"{label} {words}") > shutil.get_terminal_size().columns
    typer.echo(f"{label}\n{words}" if is_long else f"{label} {words}", err=True)


def command_of(home: Path) -> str:
    """Returns how the command is called from another terminal in this folder: the exact words to copy."""
    program = Path(sys.argv[0])
    if program.name == "__main__.py" or not program.is_file():
        words = [sys.executable, "-m", "palyra"]
    elif (found := shutil.which("palyra")) is not None and Path(found).samefile(program):
        words = ["palyra"]
    else:
        there = program.absolute().parent / "palyra"  # palyrad lies beside it.
        words = [str(there.relative_to(Path.cwd()) if there.is_relative_to(Path.cwd()) else there)]
    if home != Path.home() / ".palyra":
        words += ["--home", str(home)]
    return shlex.join(words)


def _url_option(config: "Config", address: str) -> str:
    """Another terminal reads palyra.toml, and knows nothing of a variable or of a port that the system chose."""
    from palyra.cli.target import url_of

    url = url_of(config) if config.server.http.port else address
    is_known = config.server.http.port and "PALYRA_SERVER__HTTP" not in os.environ
    return "" if is_known else f" --url {url.removeprefix('http://')}"


def _supervised() -> str:
    """Returns in the process that becomes the daemon: why it was started again, or nothing at the first start."""
    if supervisor.is_under_systemd(os.environ, os.getpid()) or not supervisor.can_supervise():
        return ""
    return supervisor.supervise()


def daemon_arguments(arguments: list[str]) -> list[str]:
    """Turns arguments of `palyrad` into those of `palyra … serve …`. Global options come before the command's name."""
    ours: list[str] = []
    rest: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        if argument == "--home":
            ours += [argument, *([following] if (following := next(waiting, None)) is not None else [])]
        elif argument.startswith("--home=") or argument in ("--version", "--json"):
            ours.append(argument)
        else:
            rest.append(argument)
    return [*ours, "serve", *rest]
