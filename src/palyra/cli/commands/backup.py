"""`palyra backup` and `palyra restore`: their options and messages. Does not own: copying (adapters.store)."""

from pathlib import Path
from typing import Annotated

import typer

from palyra import app as wiring
from palyra.cli.options import CommandGroup, YesOption, expanded, home_of, is_json
from palyra.cli.output import print_json, print_line, progress
from palyra.core.plurals import counted

app = CommandGroup()


@app.command(url=False)
def backup(
    context: typer.Context,
    destination: Annotated[Path, typer.Argument(help="A directory that does not exist yet.")],
    with_keys: Annotated[
        bool, typer.Option("--with-keys", help="Copy the private keys and the vault too. Keep such a backup secret.")
    ] = False,
) -> None:
    """Copy the journal, artifacts and public keys into a new directory. A daemon may be running.

    The directory appears only when it is complete.

    Examples:

      palyra backup /mnt/backups/monday

      palyra backup --with-keys /mnt/safe/monday
    """
    home, target = home_of(context), expanded(destination)
    copy = wiring.back_up_with_keys if with_keys else wiring.back_up
    with progress("Copying the journal", None) as advance:
        manifest = copy(home, target, advance)
    if is_json(context):
        print_json(
            {
                "ok": True,
                "path": str(target),
                "files_count": len(manifest.files),
                "last_position": manifest.last_position,
            }
        )
    else:
        print_line(f"{target}: {counted(len(manifest.files), 'file')}, events up to position {manifest.last_position}")


@app.command(url=False)
def restore(
    context: typer.Context,
    source: Annotated[Path, typer.Argument(help="A directory that palyra backup made.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Rename the present journal first (it is never deleted).")
    ] = False,
    yes: YesOption = False,
) -> None:
    """Check a backup, verify its journal, and install it in this home. Stop the daemon first.

    Keys that the home already has are kept. With --replace the old journal is renamed to journal.db.replaced-TIME.

    Examples:

      palyra restore /mnt/backups/monday

      palyra restore --replace --yes /mnt/backups/monday
    """
    home = home_of(context)
    if replace and home.journal.exists() and not yes:
        typer.confirm(f"Rename {home.journal} and restore {source}?", abort=True, err=True)
    put_back = wiring.restore_replacing if replace else wiring.restore
    report = put_back(home, expanded(source))
    if is_json(context):
        print_json({"ok": True, "path": str(home.journal), "summary": report.summary})
    else:
        print_line(f"{home.journal}: {counted(report.summary.events_count, 'event')}, verified")
