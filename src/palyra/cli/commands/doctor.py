"""`palyra doctor`: how the findings of the checks are shown. Does not own: the checks (doctor_checks)."""

import sys

import typer

from palyra.cli.options import CommandGroup, chosen_url, home_of, is_json
from palyra.cli.output import print_json
from palyra.cli.terminal.style import Style, shown, style_for
from palyra.cli.terminal.timeline import terminal_columns
from palyra.cli.terminal.word_wrap import wrap

app = CommandGroup()


@app.command()
def doctor(context: typer.Context) -> None:
    """Check this installation: Python, packages, home, configuration, vault, policies, journal, disk, and more.

    It changes nothing. Each line says ok, warn or fail, and what to do. The exit code is 1 if a check failed.

    Examples:

      palyra doctor

      palyra doctor --json
    """
    from palyra.cli.doctor_checks import FindingMark, examine

    findings = examine(home_of(context), chosen_url(context))
    is_well = all(finding.mark is not FindingMark.FAIL for finding in findings)
    if is_json(context):
        print_json({"ok": is_well, "checks": findings})
    else:
        style = style_for(sys.stdout)
        columns = terminal_columns(sys.stdout)
        width = max(len(finding.check) for finding in findings)
        for finding in findings:
            tail = f" → {finding.remedy}" if finding.remedy else ""
            label = f"{finding.mark.value.ljust(4)}  {finding.check.ljust(width)}  "
            said = label + shown(finding.what + tail)
            lines = [said] if columns is None else wrap(said, columns, " " * len(label))
            typer.echo("\n".join(lines).replace(finding.mark.value, _painted(finding.mark.value, style), 1))
    if not is_well:
        raise typer.Exit(1)


def _painted(mark: str, style: Style) -> str:
    paint = {"ok": style.green, "warn": style.yellow, "fail": style.red}[mark]
    return paint(mark)
