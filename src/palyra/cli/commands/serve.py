"""`palyra serve`. Owns: its options and its first words. Not: the daemon (app)."""

import sys
from typing import Annotated

import msgspec
import typer

from palyra.cli.commands.config import load_or_explain, warning_line
from palyra.cli.options import home_of
from palyra.cli.output import printable

app = typer.Typer()


@app.command()
def serve(
    context: typer.Context,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow listening beyond this machine without TLS.")
    ] = False,
) -> None:
    """Run the daemon until it is stopped with Ctrl-C or SIGTERM. `palyrad` is the same.

    The first start makes the home, its keys and admin.token. Work that an earlier process left is taken up.

    Examples:

      palyra serve

      PALYRA_SERVER__HTTP=127.0.0.1:8000 palyra --home /srv/palyra serve
    """
    from palyra.app.daemon import run_daemon
    from palyra.config import require_safe_bind

    home = home_of(context)
    config = load_or_explain(home)
    if insecure:
        config = msgspec.structs.replace(config, server=msgspec.structs.replace(config.server, insecure=True))
    require_safe_bind(config)
    for warning in config.warnings:
        typer.echo(printable(warning_line(warning)), err=True)

    def announce(address: str, link: str) -> None:
        typer.echo(f"palyra listens on {address}; its token is in {home.admin_token}", err=True)
        if sys.stderr.isatty():
            # Elsewhere it would stay in a log that others may read while it is good.
            typer.echo(f"log in with a browser, once, within 10 minutes: {link}", err=True)
        else:
            typer.echo("for a browser: palyra login-link", err=True)

    def tell(words: str) -> None:
        typer.echo(printable(f"models: {words}"), err=True)

    run_daemon(home, config, announce, tell)


def daemon_arguments(arguments: list[str]) -> list[str]:
    """What `palyrad` was given, as `palyra … serve …`: options of the whole command come before the command's name."""
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
