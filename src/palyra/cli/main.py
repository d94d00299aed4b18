"""The entry points `palyra` and `palyrad`: global options and the list of command groups.

Does not own: what a command does (commands).
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from palyra import __version__
from palyra.app import Home
from palyra.cli.commands import (
    approvals,
    backup,
    channels,
    chat,
    compaction,
    config,
    context,
    doctor,
    editor,
    export,
    incidents,
    jobs,
    journal,
    learning,
    mcp,
    memory,
    models,
    pair,
    plugins,
    policy,
    projections,
    routines,
    run,
    run_changes,
    runs,
    secrets,
    serve,
    session_marks,
    sessions,
    skills,
    tokens,
    tools,
    top,
    usage,
    verify,
)
from palyra.cli.options import GlobalOptions, JsonOption, expanded
from palyra.cli.output import PalyraGroup, print_line

app = typer.Typer(
    cls=PalyraGroup, name="palyra", no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_show_locals=False
)
app.add_typer(serve.app)
app.add_typer(chat.app)
app.add_typer(run.app)
sessions.app.add_typer(session_marks.app)
sessions.app.add_typer(compaction.app)
runs.app.add_typer(run_changes.app)
app.add_typer(sessions.app, name="sessions")
app.add_typer(runs.app, name="runs")
app.add_typer(approvals.app, name="approvals")
app.add_typer(jobs.app, name="jobs")
app.add_typer(models.app, name="models")
app.add_typer(tools.app)
app.add_typer(skills.app, name="skills")
app.add_typer(plugins.app, name="plugins")
app.add_typer(mcp.app, name="mcp")
app.add_typer(policy.app, name="policy")
app.add_typer(routines.app, name="routines")
app.add_typer(memory.app, name="memory")
app.add_typer(learning.app, name="learning")
app.add_typer(channels.app, name="channels")
app.add_typer(pair.app, name="pair")
app.add_typer(context.app, name="context")
app.add_typer(usage.app)
app.add_typer(top.app)
app.add_typer(incidents.app, name="incidents")
app.add_typer(verify.app)
app.add_typer(export.app)
app.add_typer(editor.app)
app.add_typer(backup.app)
app.add_typer(projections.app, name="projections")
app.add_typer(journal.app, name="journal")
app.add_typer(doctor.app)
app.add_typer(config.app, name="config")
app.add_typer(secrets.app, name="secrets")
app.add_typer(tokens.app, name="tokens")
app.add_typer(tokens.link_app)
for _group in app.registered_groups:
    _group.cls = PalyraGroup


def main() -> None:
    app()


def daemon() -> None:
    """Runs the command `palyrad`."""
    app(args=serve.daemon_arguments(sys.argv[1:]), prog_name="palyrad")


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        print_line(f"palyra {__version__}")
        raise typer.Exit


@app.callback()
def choose(
    context: typer.Context,
    home: Annotated[
        Path, typer.Option(envvar="PALYRA_HOME", help="The directory with the journal, keys and artifacts.")
    ] = Path("~/.palyra"),
    json: JsonOption = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Run AI agents whose every effect is judged, recorded, provable and resumable.

    Exit codes: 0 success, 1 failure or damage found, 2 wrong usage.

    Examples:

      palyra serve

      palyra chat

      palyra --home /srv/palyra export 01JXQ0Z7N8E4T5Y6W7V8S9R0QP
    """
    context.obj = GlobalOptions(Home(expanded(home)), json)
