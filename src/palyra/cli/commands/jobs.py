"""`palyra jobs`: shows background jobs, cancels and retries them. Does not own: what a job does (engine.jobs)."""

import time
from enum import Enum
from functools import partial
from typing import Annotated

import msgspec
import typer

from palyra.cli.daemon_call import Client, ask_daemon
from palyra.cli.lookup import LAST, LOOKED_AT_MAX, choose
from palyra.cli.options import CommandGroup, is_json
from palyra.cli.output import print_json, print_result, print_table
from palyra.cli.terminal.style import date_time, in_one_line
from palyra.cli.terminal.tables import print_rows
from palyra.core.errors import NotFound, Unauthorized
from palyra.core.events.base import JsonObject
from palyra.core.ids import ULID_LENGTH

ITEMS_MAX = 1_000
TEXT_LENGTH_MAX = 100
_COLUMNS = ("id", "kind", "state", "for", "attempts", "when", "progress or error")

app = CommandGroup(no_args_is_help=True)

JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="The job's id, the beginning of it, or `last` for the newest.")
]
EveryoneOption = Annotated[bool, typer.Option("--everyone", help="Everyone's jobs, also the daemon's own. Operators.")]


class JobStateOption(Enum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


@app.callback()
def group() -> None:
    """Work that the daemon does in the background, and what became of it.

    Examples:

      palyra jobs list --everyone

      palyra jobs retry last
    """


@app.command("list")
def show_all(
    context: typer.Context,
    state: Annotated[JobStateOption | None, typer.Option(help="Only jobs in this state.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only jobs of this kind.")] = None,
    everyone: EveryoneOption = False,
    limit: Annotated[int, typer.Option(min=1, max=ITEMS_MAX, help="The most to show.")] = 50,
) -> None:
    """List jobs, the newest first.

    Examples:

      palyra jobs list

      palyra jobs list --everyone --state dead
    """
    wanted = {"kind": kind, "state": state.value if state is not None else None}
    query = {name: value for name, value in wanted.items() if value is not None}
    if everyone:
        query["everyone"] = "true"
    found = ask_daemon(context, partial(_list_jobs, query=query, limit=limit + 1))
    is_cut, found = len(found) > limit, found[:limit]
    if is_json(context):
        print_json({"items": found})
        return
    now_ms = int(time.time() * 1000)
    print_rows(_COLUMNS, [_row(job, now_ms) for job in found], "no jobs")
    if is_cut:
        typer.echo(f"these are the newest {limit}; --limit shows more", err=True)


@app.command()
def show(context: typer.Context, job: JobArgument) -> None:
    """Show one job with its payload and its last error.

    Examples:

      palyra jobs show last
    """
    found = ask_daemon(context, partial(_read_job, text=job))
    if is_json(context):
        print_json(found)
        return
    print_table([(name.removesuffix("_ms"), _value(name, value)) for name, value in found.items() if value])


@app.command()
def cancel(context: typer.Context, job: JobArgument) -> None:
    """Cancel a job, whether it waits or runs.

    Examples:

      palyra jobs cancel 01JZ
    """
    _change(context, job, "cancel")


@app.command()
def retry(context: typer.Context, job: JobArgument) -> None:
    """Try a dead, expired or cancelled job again, or begin a waiting one now. `last` is the newest dead one.

    Examples:

      palyra jobs retry last
    """
    _change(context, job, "retry")


def _value(name: str, value: object) -> object:
    if name.endswith("_ms"):
        return date_time(value)
    return msgspec.json.encode(value).decode() if isinstance(value, dict | list) else value


def _change(context: typer.Context, job: str, verb: str) -> None:
    found = ask_daemon(context, partial(_change_job, text=job, verb=verb))
    print_result(context, found, f"{found.get('kind')} {found.get('id')} is {found.get('state')} now")


async def _list_jobs(client: Client, query: dict[str, str], limit: int) -> list[JsonObject]:
    return await client.items("/jobs", limit, **query)


async def _read_job(client: Client, text: str) -> JsonObject:
    return await client.get(f"/jobs/{await _find(client, text)}")


async def _change_job(client: Client, text: str, verb: str) -> JsonObject:
    wanted = {"state": "dead"} if verb == "retry" and text == LAST else {}
    return await client.post(f"/jobs/{await _find(client, text, **wanted)}/{verb}", {})


async def _find(client: Client, text: str, **wanted: str) -> str:
    """Returns the id that is meant: of everyone's jobs where that is allowed, else of one's own."""
    if len(text) == ULID_LENGTH:
        return text
    try:
        items = await client.items("/jobs", LOOKED_AT_MAX, everyone="true", **wanted)
    except Unauthorized:
        items = await client.items("/jobs", LOOKED_AT_MAX, **wanted)
    found = choose(items[::-1], text)
    if found is None and wanted:
        raise NotFound("job_unknown", "no job is dead; palyra jobs list --everyone shows those there are")
    if found is None:
        raise NotFound("job_unknown", f"no job's id begins with {text!r}; palyra jobs list --everyone shows them")
    return found


def _row(job: JsonObject, now_ms: int) -> tuple[object, ...]:
    waits = job.get("state") == "queued"
    due_ms, changed_ms = job.get("not_before_ms"), job.get("updated_at_ms")
    is_later = waits and isinstance(due_ms, int) and due_ms > now_ms
    when = f"due {date_time(due_ms)}" if is_later else date_time(changed_ms)
    words = job.get("error") if job.get("error") and job.get("state") != "done" else job.get("progress")
    return (
        job.get("id"),
        job.get("kind"),
        job.get("state"),
        job.get("principal"),
        job.get("attempts"),
        when,
        in_one_line(str(words or ""), TEXT_LENGTH_MAX),
    )
