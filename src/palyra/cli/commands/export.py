"""`palyra export`: writes tapes as JSON lines, and checks such a file.

Does not own: the form of a line (core.export).
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from palyra.app import Home, open_archive, open_public_keys
from palyra.cli.lookup import choose_stored_session
from palyra.cli.options import CommandGroup, expanded, home_of, is_json, open_input
from palyra.core.errors import Invalid, NotFound, Unavailable
from palyra.core.ids import StreamId, is_system_stream
from palyra.core.verification.evidence import Evidence

app = CommandGroup()


@app.command(url=False)
def export(
    context: typer.Context,
    session: Annotated[
        str | None, typer.Argument(help="A session, as `palyra sessions` takes it, or system:NODE.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every tape, system tapes first.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file, whole or not at all.")
    ] = None,
    check: Annotated[
        str | None, typer.Option("--check", metavar="FILE", help="Check an exported file instead; - is standard input.")
    ] = None,
) -> None:
    """Print a tape as JSON lines, with the salt and digest that a verifier needs.

    Lines are JSON with and without --json. `--check` needs no journal: it checks the hash chain of each tape in the file.

    Examples:

      palyra export 01JXQ0Z7N8E4T5Y6W7V8S9R0QP > session.jsonl

      palyra export --all --output journal.jsonl

      palyra export --check journal.jsonl
    """
    if [session is not None, every, check is not None].count(True) != 1:
        raise typer.BadParameter("name a session, or give --all or --check FILE")
    if check is not None:
        _check(check, is_json(context))
    else:
        _write(_lines(home_of(context), session), output)


def _check(name: str, as_json: bool) -> None:
    from palyra.cli.commands.verify import show_report
    from palyra.core.export import check_export

    with ExitStack() as opened:
        file = sys.stdin.buffer if name == "-" else opened.enter_context(open_input(expanded(Path(name))))
        report = check_export(_bounded_lines(file))
    if report.summary.events_count == 0:
        raise Invalid("export_empty", f"{name} holds no events, so there is nothing to check; export again")
    show_report(report, as_json, is_export=True)


def _bounded_lines(file: BinaryIO) -> Iterator[bytes]:
    from palyra.core.export import LINE_BYTES_MAX

    while line := file.readline(LINE_BYTES_MAX + 1):
        if len(line) > LINE_BYTES_MAX:
            raise Invalid(
                "export_line_invalid",
                f"a line has more than {LINE_BYTES_MAX} bytes; this file is not an export of Palyra",
            )
        yield line


def _lines(home: Home, session: str | None) -> Iterator[bytes]:
    """Yields the lines of one tape or of all. System tapes come first, because they say what was erased."""
    from palyra.core.export import export_line

    with open_archive(home) as archive:
        in_order = sorted(archive.streams(), key=lambda each: (not is_system_stream(each), each))
        evidence = archive.evidence(open_public_keys(home.public_keys))
        chosen = in_order if session is None else [_find_tape(evidence, session)]
        for each in chosen:
            for stored in archive.events(each):
                yield export_line(each, stored)


def _find_tape(evidence: Evidence, name: str) -> StreamId:
    """Finds a tape by its id, or a session's as the daemon finds it: by key, label, `last` or the id's beginning."""
    known = tuple(evidence.streams())
    if name in known:
        return StreamId(name)
    if is_system_stream(StreamId(name)):
        raise NotFound("session_unknown", f"the journal has no tape {name}; palyra export --all prints every tape")
    return choose_stored_session((row for stream in known for row in evidence.rows(stream)), name)


def _write(lines: Iterator[bytes], output: Path | None) -> None:
    if output is None:
        for line in lines:
            sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()
        return
    target = expanded(output)
    partial = target.with_name(f".{target.name}.partial")
    try:
        with partial.open("wb") as file:
            file.writelines(line + b"\n" for line in lines)
        partial.replace(target)
    except OSError as cause:
        raise Unavailable("file_unwritable", f"{target} cannot be written: {cause.strerror}") from cause
    finally:
        partial.unlink(missing_ok=True)
