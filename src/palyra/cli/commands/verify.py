"""`palyra verify`: how a verifier's report is shown. Does not own: checking (core.verification)."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from palyra.app import Home, known_heads, open_archive, open_public_keys
from palyra.app import accept_loss as accept_older
from palyra.cli.options import CommandGroup, YesOption, expanded, home_of, is_json
from palyra.cli.output import print_json, print_line, print_table, progress
from palyra.core.checkpoint import Anchor, read_anchors
from palyra.core.errors import NotFound
from palyra.core.plurals import counted
from palyra.core.verification import FINDINGS_MAX, Summary, VerifyReport

app = CommandGroup()


@app.command(url=False)
def verify(
    context: typer.Context,
    keys: Annotated[
        Path | None, typer.Option(help="Trust only the public keys in this directory, not those beside the journal.")
    ] = None,
    anchor: Annotated[
        Path | None, typer.Option(help="Compare with the anchors in this file, written by [journal] anchors.")
    ] = None,
    accept_loss: Annotated[
        bool,
        typer.Option(
            help="Go on from this journal though its key, or this machine's clock, knows a newer one. Asks first."
        ),
    ] = False,
    yes: YesOption = False,
) -> None:
    """Check the whole journal offline: chains, signatures, tables and attestations.

    Without --accept-loss it changes nothing, and a daemon may be running. Each line names one thing that differs from
    what was written: `session ID seq N: WHAT`. The exit code is 1 if there is any.

    Examples:

      palyra verify

      palyra verify --json

      palyra verify --keys /mnt/safe/palyra-keys

      palyra verify --anchor /mnt/safe/palyra-anchors.jsonl

      palyra verify --accept-loss
    """
    from palyra.core.verification import verify as check

    home = home_of(context)
    if accept_loss:
        _accept(home, yes)
    directory = home.public_keys if keys is None else _directory(expanded(keys))
    public_keys = open_public_keys(directory)
    heads = known_heads(directory)  # Before the snapshot: a daemon may sign a newer one meanwhile.
    with open_archive(home) as archive:
        archive.require_structure()
        with progress("Checking events", archive.totals().events_count) as advance:
            evidence = dataclasses.replace(
                archive.evidence(public_keys, directory), anchors=_anchors(anchor), heads=heads
            )
            report = check(evidence, advance)
    show_report(report, is_json(context))


def _accept(home: Home, yes: bool) -> None:
    import asyncio

    question = (
        "Go on from this journal and from this machine's time, as they are? "
        "If this node has recorded anything that is not in this journal, that is lost for good."
    )
    if not yes:
        typer.confirm(question, abort=True, err=True)
    asyncio.run(accept_older(home))


def _anchors(path: Path | None) -> tuple[Anchor, ...]:
    if path is None:
        return ()
    source = expanded(path)
    if source.is_char_device():
        raise NotFound("anchor_missing", f"{path} is a device, which may never end; name a file of anchors")
    try:
        found = read_anchors(source.read_bytes())
    except OSError as cause:
        raise NotFound("anchor_missing", f"{path} cannot be read ({cause.strerror}); name a file of anchors") from cause
    if not found:
        raise NotFound("anchor_empty", f"{path} holds no anchor; name a file that [journal] anchors writes")
    return found


def _directory(keys: Path) -> Path:
    """Refuses a path that is no directory, so that a typing error does not look like a forged journal."""
    if not keys.is_dir():
        raise NotFound("keys_missing", f"{keys} is not a directory; name the one that holds your .pub files")
    return keys


def show_report(report: VerifyReport, as_json: bool, *, is_export: bool = False) -> None:
    """Shows the report, and exits with code 1 if anything was found. Of an export the chains alone were checked."""
    if as_json:
        print_json(report.to_wire())
    else:
        _print_report(report, is_export)
    if not report.is_whole:
        raise typer.Exit(1)


def _print_report(report: VerifyReport, is_export: bool) -> None:
    summary = report.summary
    for finding in report.findings:
        print_line(str(finding))
    if summary.findings_count > FINDINGS_MAX:
        print_line(f"… and {summary.findings_count - FINDINGS_MAX} more")
    print_table(
        [
            ("result", _result(report)),
            ("tapes", summary.tapes_count),
            ("events", summary.events_count),
            ("erased", summary.erased_count),
            *([("signatures", "not checked here: palyra verify checks them, in the journal")] if is_export else []),
            *([] if is_export else _signed_rows(summary)),
        ]
    )


def _result(report: VerifyReport) -> str:
    if not report.is_whole:
        return f"{report.summary.findings_count} found, first: {report.findings[0]}"
    count = report.summary.unsigned_erased_count
    doubt = f"; {count} signed {'text was' if count == 1 else 'texts were'} erased by a record that nobody has signed"
    return f"whole{doubt if count else ''}"


def _signed_rows(summary: Summary) -> list[tuple[str, object]]:
    return [
        ("checkpoints", summary.checkpoints_count),
        ("attestations", f"{summary.attestations_count} ({summary.unchecked_attestations_count} erased)"),
        ("not yet signed", f"{counted(summary.unsigned_events_count, 'event')} after the last checkpoint"),
        ("signed by", ", ".join(summary.key_ids) or "nobody"),
    ]
