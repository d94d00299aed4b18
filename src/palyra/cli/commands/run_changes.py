"""`palyra runs diff`, `keep` and `undo`: what a run changed in the workspace or left beside it, and putting it back.

Does not own: other commands about runs (commands.runs).
"""

from typing import Annotated

import typer

from palyra.cli.daemon_call import Client, ask_daemon
from palyra.cli.lookup import find_run
from palyra.cli.options import CommandGroup, YesOption, is_json
from palyra.cli.output import print_json, print_line
from palyra.cli.terminal.style import shown
from palyra.core.events.base import JsonObject
from palyra.core.plurals import counted

app = CommandGroup()
NONE_KEPT = "The session keeps nothing apart from the workspace."
NOTHING = "The run changed nothing in the workspace."
BACK = "There was nothing to undo: the files are as they were before the run."
UNDONE_MARK = "[undone: it is as it was before]"  # The daemon shows it in the place of a difference.
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="The run's id, the beginning of it, or `last` for the newest.")
]
PathOption = Annotated[str | None, typer.Option(metavar="PATH", help="Only this file, or what lies below this folder.")]


@app.command()
def diff(context: typer.Context, run: RunArgument, path: PathOption = None) -> None:
    """Show what a run changed in the workspace, as one difference.

    Examples:

      palyra runs diff last

      palyra runs diff last --path src/app.py
    """

    record = _read(context, run, path)
    if is_json(context):
        print_json(record)
    else:
        typer.echo(shown(str(record.get("diff") or NOTHING)))


@app.command()
def undo(context: typer.Context, run: RunArgument, path: PathOption = None, yes: YesOption = False) -> None:
    """Put files back as they were before a run. Nothing is put back if one of them has changed since.

    Examples:

      palyra runs undo last

      palyra runs undo last --path src --yes
    """

    async def act(client: Client) -> JsonObject:
        return await client.post(f"/runs/{await find_run(client, run)}/undo", {} if path is None else {"path": path})

    if not yes:
        found = _read(context, run, path)
        difference = str(found.get("diff") or "")
        if _is_back(found):
            print_line(BACK)
            return
        typer.echo(shown(difference or NOTHING))
        if not difference:
            return
        typer.confirm("Put these files back as they were before?", abort=True)
    record = ask_daemon(context, act)
    if is_json(context):
        print_json(record)
        return
    changes = record.get("changes")
    count = len(changes) if isinstance(changes, list) else 0
    words = f"Undone: {counted(count, 'change')} of run {record.get('run_id')}."
    print_line(words if count else BACK)


@app.command()
def keep(
    context: typer.Context,
    run: RunArgument = "last",
    path: Annotated[
        list[str] | None, typer.Option(metavar="PATH", help="Only this file or folder; may be given again.")
    ] = None,
    yes: YesOption = False,
) -> None:
    """Apply what commands left in the layer of a run's session: caches, builds and whatever else no review shows.

    Examples:

      palyra runs keep

      palyra runs keep last --path build/app --yes
    """

    async def read(client: Client) -> tuple[str, JsonObject]:
        run_id = await find_run(client, run)
        return run_id, await client.get(f"/runs/{run_id}/kept")

    async def act(client: Client) -> JsonObject:
        return await client.post(f"/runs/{run_id}/keep", {"paths": path or [], "digest": found.get("digest")})

    run_id, found = ask_daemon(context, read)
    difference = str(found.get("diff") or "")
    if not yes:
        typer.echo(shown(difference or NONE_KEPT))
        if not difference:
            return
        what = ", ".join(path) if path else "all of this"
        typer.confirm(f"Apply {what} to the workspace? Your own programs may then run it.", abort=True)
    record = ask_daemon(context, act)
    if is_json(context):
        print_json(record)
        return
    changes = record.get("changes")
    count = len(changes) if isinstance(changes, list) else 0
    print_line(f"Applied: {counted(count, 'change')}." if count else NONE_KEPT)


def _is_back(record: JsonObject) -> bool:
    """Tells whether every changed file is as it was. No line of a file looks like the mark: a sign stands before it."""
    changes, lines = record.get("changes"), str(record.get("diff") or "").splitlines()
    return isinstance(changes, list) and 0 < len(changes) == lines.count(UNDONE_MARK)


def _read(context: typer.Context, run: str, path: str | None) -> JsonObject:
    async def read(client: Client) -> JsonObject:
        query: dict[str, str | int] = {} if path is None else {"path": path}
        return await client.get(f"/runs/{await find_run(client, run)}/changes", **query)

    return ask_daemon(context, read)
