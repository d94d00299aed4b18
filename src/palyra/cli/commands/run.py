"""`palyra run`: its options and exit code. Does not own: following the run (terminal.run_view)."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from palyra.cli.daemon_call import Client, ask_daemon
from palyra.cli.options import CommandGroup, expanded, is_json
from palyra.cli.output import print_json, print_line
from palyra.core.errors import Invalid, NotFound
from palyra.core.events.base import JsonObject

SCHEMA_BYTES_MAX = 256 * 1024
TEXT_BYTES_MAX = 1024 * 1024  # The daemon refuses more; longer text belongs in an attachment.

app = CommandGroup()


@app.command()
def run(
    context: typer.Context,
    text: Annotated[
        str, typer.Argument(help="What to do; - reads it from standard input, as text that you did not type.")
    ],
    session: Annotated[
        str | None, typer.Option(metavar="KEY|ID", help="The session to use; by default a new one.")
    ] = None,
    agent: Annotated[str | None, typer.Option(help="The agent, instead of the default one.")] = None,
    model: Annotated[str | None, typer.Option(help="The model; by default the agent's route chooses.")] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Print the run's id and leave it running.")] = False,
    answer_schema: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A JSON Schema that the answer must satisfy.")
    ] = None,
    must_call: Annotated[
        list[str] | None, typer.Option(metavar="TOOL", help="A tool the run must call; may be repeated.")
    ] = None,
    objective: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="What the answer must achieve: 'file:PATH exists', 'tool:NAME succeeded', or text that a model reviews;"
            " may be repeated.",
        ),
    ] = None,
    attach: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="An image, text, code, CSV or PDF to attach; may be repeated."),
    ] = None,
) -> None:
    """Run one request and print the answer.

    The answer goes to standard output, everything else to standard error. On a terminal you are asked for approvals, and
    Ctrl-C cancels the run. The exit code is 0 if the run is done, and 1 if it failed or was cancelled.

    Examples:

      palyra run "Which files changed this week?"

      git diff | palyra run - --session review

      palyra run "List the services" --answer-schema services.json --json

      palyra run "Write the report" --objective "file:report.md exists" --objective "It names every source"

      palyra run "What does this error mean?" --attach screenshot.png

      palyra run "Compare these" --attach report.pdf --attach numbers.csv
    """
    body = _body(text, session)
    optional = {"agent": agent, "model": model, "must_call": must_call or None, "objectives": objective or None}
    body |= {name: value for name, value in optional.items() if value is not None}
    if answer_schema is not None:
        body["answer_schema"] = _read_schema(expanded(answer_schema))
    _attach(context, body, attach or [])
    if no_wait:
        _show_started(ask_daemon(context, lambda client: client.start_run(body)), is_json(context))
    else:
        _run_to_end(context, body, is_json(context))


def _run_to_end(context: typer.Context, body: JsonObject, as_json: bool) -> None:
    from palyra.cli.terminal.run_view import RunViewOptions, run_to_end

    is_terminal = sys.stdout.isatty()
    options = RunViewOptions(
        is_streamed=is_terminal and not as_json,
        is_answer_printed=not is_terminal and not as_json,
        can_ask=sys.stdin.isatty() and sys.stderr.isatty(),
    )
    record = ask_daemon(context, lambda client: run_to_end(client, body, options))
    if as_json:
        print_json(record)
    if record.get("state") != "done":
        raise typer.Exit(1)


def _body(text: str, session: str | None) -> JsonObject:
    import secrets

    from palyra.core.ids import parse_session_id

    body: JsonObject = {"text": _read_text(text), "idempotency_key": f"cli-{secrets.token_hex(16)}"}
    if text == "-":
        body["typed"] = ""  # What came through a pipe was typed by nobody.
    if session is not None:
        try:
            body["session_id"] = parse_session_id(session)
        except Invalid:
            body["session_key"] = session
    return body


def _attach(context: typer.Context, body: JsonObject, paths: list[Path]) -> None:
    """Uploads files and adds them to the body. All files are read before the first one is sent."""
    if not paths:
        return
    from palyra.cli.terminal.attachments import read_file, upload

    files = [read_file(path) for path in paths]

    async def upload_all(client: Client) -> list[JsonObject]:
        return [await upload(client, file) for file in files]

    body["attachments"] = ask_daemon(context, upload_all)


def _read_text(text: str) -> str:
    if text == "-":
        read = sys.stdin.buffer.read(TEXT_BYTES_MAX + 1)
        if len(read) > TEXT_BYTES_MAX:
            raise Invalid(
                "text_too_long",
                f"standard input has more than {TEXT_BYTES_MAX} bytes; write it to a file and use --attach",
            )
        text = read.decode("utf-8", "replace")
    if not text.strip():
        raise typer.BadParameter("the text is empty; say what to do")
    return text


def _read_schema(path: Path) -> JsonObject:
    import msgspec

    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(SCHEMA_BYTES_MAX), type=JsonObject)
    except OSError as cause:
        raise NotFound("file_unreadable", f"{path} cannot be read: {cause.strerror}") from cause
    except (msgspec.DecodeError, UnicodeDecodeError) as cause:
        raise Invalid("schema_invalid", f"{path} is not a JSON object of at most {SCHEMA_BYTES_MAX} bytes") from cause


def _show_started(record: JsonObject, as_json: bool) -> None:
    if as_json:
        print_json(record)
    else:
        print_line(str(record.get("id")))
