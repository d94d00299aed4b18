"""`palyra projections`: shows what a rebuild of the projections changes. Does not own: the rebuild (adapters.store)."""

import typer

from palyra.app import Home, open_archive, open_public_keys, rebuild_projections
from palyra.cli.options import CommandGroup, home_of, is_json
from palyra.cli.output import print_json, print_line
from palyra.core.errors import Corrupt
from palyra.core.plurals import counted
from palyra.core.verification import VerifyReport, verify

app = CommandGroup()


@app.callback()
def group() -> None:
    """Projections: tables computed from tapes.

    Examples:

      palyra projections rebuild
    """


@app.command(url=False)
def rebuild(context: typer.Context) -> None:
    """Compute every table from the tapes again, and print what differed. Stop the daemon first.

    A damaged tape stops the rebuild, because tables computed from it would be no better than the present ones.

    Examples:

      palyra projections rebuild
    """
    home = home_of(context)
    report = _verified(home)
    if report.tape_damage is not None:
        raise Corrupt("tape_damaged", f"{report.tape_damage}; restore the journal from a backup first")
    rebuilt_count = rebuild_projections(home)
    if is_json(context):
        differences = [finding.to_wire() for finding in report.findings]
        print_json({"ok": True, "rebuilt_count": rebuilt_count, "differences": differences})
        return
    for finding in report.findings:
        print_line(str(finding))
    print_line(f"{counted(rebuilt_count, 'row')} differed and {'was' if rebuilt_count == 1 else 'were'} computed again")


def _verified(home: Home) -> VerifyReport:
    with open_archive(home) as archive:
        archive.require_structure()
        return verify(archive.evidence(open_public_keys(home.public_keys)))
