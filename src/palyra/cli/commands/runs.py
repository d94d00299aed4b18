"""`palyra runs`: lists, shows, cancels and replays runs, and shows their trees and processes.

Does not own: starting runs (commands.run).
"""

import sys
import time
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from palyra.cli.commands.run_changes import RunArgument
from palyra.cli.daemon_call import Client, ask_daemon
from palyra.cli.lookup import find_run
from palyra.cli.options import CommandGroup, home_of, is_json
from palyra.cli.output import print_json, print_line, print_result, print_styled, print_table
from palyra.cli.terminal.context_bar import context_lines
from palyra.cli.terminal.run_tree import children_of, tree_lines, usage_text
from palyra.cli.terminal.style import date_time, duration, in_one_line, prose, style_for
from palyra.cli.terminal.tables import print_rows
from palyra.cli.terminal.word_wrap import fit
from palyra.core.errors import NotFound
from palyra.core.events.base import JsonObject
from palyra.core.run.states import RunState

if TYPE_CHECKING:
    from palyra.core.run.replay import Replayed

RUNS_MAX = 10_000
EVENTS_MAX = 20_000  # A run cannot record more, even with the largest limits.

TASK_SHOWN_MAX = 40
_COLUMNS = ("id", "state", "reason", "began", "took", "usage", "from", "task")

app = CommandGroup(no_args_is_help=True)


@app.callback()
def group() -> None:
    """Runs: what agents did in sessions.

    Examples:

      palyra runs list
    """


@app.command("list")
def show_all(
    context: typer.Context,
    session: Annotated[str | None, typer.Option(metavar="KEY|ID", help="Only runs of this session.")] = None,
    state: Annotated[RunState | None, typer.Option(help="Only runs in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=RUNS_MAX, help="How many at most.")] = 50,
    service: Annotated[bool, typer.Option("--service", help="Include runs that the daemon itself started.")] = False,
    delegated: Annotated[bool, typer.Option("--delegated", help="Include runs that other runs delegated.")] = False,
) -> None:
    """List runs, the newest first.

    Examples:

      palyra runs list

      palyra runs list --session cli --state failed --json

      palyra runs list --service
    """
    from palyra.cli.commands.sessions import find_session

    async def read(client: Client) -> list[JsonObject]:
        query: dict[str, str | int] = {} if state is None else {"state": state.value}
        if service:
            query["service"] = "true"
        if delegated:
            query["delegated"] = "true"
        if session is not None:
            query["session_id"] = str((await find_session(client, session))["id"])
        return await client.items("/runs", RUNS_MAX, **query)

    found = ask_daemon(context, read)
    items = sorted(found, key=lambda item: str(item.get("id")), reverse=True)[:limit]
    if is_json(context):
        print_json({"items": items})
        return
    rows = [
        (
            each.get("id"),
            each.get("state"),
            each.get("reason"),
            date_time(each.get("created_at_ms")),
            _took(each),
            usage_text(each),
            f"{each.get('agent')} by {each.get('origin')}",
            in_one_line(str(each.get("task") or ""), TASK_SHOWN_MAX),
        )
        for each in items
    ]
    print_rows(_COLUMNS, rows, "no runs; palyra run TEXT starts one")
    if len(found) > len(items):
        typer.echo(f"these are the newest {len(items)} of {len(found)}; --limit shows more", err=True)


@app.command()
def show(context: typer.Context, run: RunArgument) -> None:
    """Show a run and its timeline: times, verdicts, tool outcomes, usage.

    Examples:

      palyra runs show last

      palyra runs show 01JXQ0Z7N8E4T5Y6W7V8S9R0QP
    """

    async def read(client: Client) -> tuple[JsonObject, list[JsonObject], JsonObject]:
        run_id = await find_run(client, run)
        record = await client.get(f"/runs/{run_id}")
        return record, await _events_of(client, record), await client.get(f"/runs/{run_id}/tree")

    record, events, found = ask_daemon(context, read)
    children = children_of(found.get("root"))
    if is_json(context):
        print_json({"run": record, "events": events, "children": [child.get("id") for child in children]})
    else:
        _print_run(record, events, found)


@app.command("context")
def show_context(
    context: typer.Context,
    run: RunArgument,
    turn: Annotated[int | None, typer.Option(min=1, help="Only this turn; else the last one.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every turn.")] = False,
) -> None:
    """Show what a model call was sent, as a bar of layers with their tokens.

    Examples:

      palyra runs context last

      palyra runs context 01JXQ0Z7N8E4T5Y6W7V8S9R0QP --turn 2
    """

    async def read(client: Client) -> list[JsonObject]:
        events = await _events_of(client, await client.get(f"/runs/{await find_run(client, run)}"))
        return [event for event in events if event.get("type") == "context.assembled"]

    found = ask_daemon(context, read)
    if turn is not None:
        found = [event for event in found if _turn_of(event) == turn]
    elif not every:
        found = found[-1:]
    if turn is not None and not found:
        raise NotFound("turn_unknown", f"the run has no turn {turn}; palyra runs context --all shows those it has")
    if is_json(context):
        print_json({"items": [event.get("data") for event in found]})
        return
    if not found:
        print_line("no context was assembled")
    for event in found:
        for line in context_lines(event, style_for(sys.stdout)):
            print_styled(line)


def _turn_of(event: JsonObject) -> object:
    data = event.get("data")
    return data.get("turn") if isinstance(data, dict) else None


@app.command()
def tree(context: typer.Context, run: RunArgument) -> None:
    """Show a run and the runs it delegated: state, agent, usage and task of each.

    Examples:

      palyra runs tree last
    """

    async def read(client: Client) -> JsonObject:
        return await client.get(f"/runs/{await find_run(client, run)}/tree")

    found = ask_daemon(context, read)
    if is_json(context):
        print_json(found)
        return
    for line in tree_lines(found, style_for(sys.stdout)):
        typer.echo(line)


@app.command()
def cancel(context: typer.Context, run: RunArgument) -> None:
    """Cancel a run. It stops its model call or tool, its wait, or its place in the queue.

    Examples:

      palyra runs cancel 01JXQ0Z7N8E4T5Y6W7V8S9R0QP
    """

    async def act(client: Client) -> JsonObject:
        return await client.post(f"/runs/{await find_run(client, run)}/cancel")

    record = ask_daemon(context, act)
    print_result(context, record, f"{record.get('id')} is {record.get('state')}")


@app.command()
def processes(context: typer.Context, run: RunArgument) -> None:
    """List the background programs that a run left running.

    Examples:

      palyra runs processes 01JXQ0Z7N8E4T5Y6W7V8S9R0QP
    """

    async def read(client: Client) -> JsonObject:
        return await client.get(f"/runs/{await find_run(client, run)}/processes")

    found = ask_daemon(context, read)
    if is_json(context):
        print_json(found)
        return
    items = found.get("items")
    rows = [
        (each.get("id"), _status_text(each), date_time(each.get("started_at_ms")), in_one_line(str(each.get("command")), 120))
        for each in (items if isinstance(items, list) else [])
    ]  # fmt: skip
    print_rows(("id", "state", "began", "command"), rows, "no processes")


@app.command()
def stop(
    context: typer.Context,
    run: RunArgument,
    process: Annotated[str, typer.Argument(metavar="PROCESS", help="The process's id, as `runs processes` shows it.")],
) -> None:
    """Stop a background program of a run, and everything that program started.

    Examples:

      palyra runs stop 01JXQ0Z7N8E4T5Y6W7V8S9R0QP p1
    """

    async def act(client: Client) -> JsonObject:
        return await client.post(f"/runs/{await find_run(client, run)}/processes/{quote(process, safe='')}/stop")

    record = ask_daemon(context, act)
    print_result(context, record, f"{record.get('id')} {_status_text(record)}")


@app.command(url=False)
def replay(context: typer.Context, run: Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")]) -> None:
    """Replay a recorded run offline, and compare every decision with what this release would decide.

    Nothing is executed, and a daemon may be running. The exit code is 1 if a decision differs.

    Examples:

      palyra runs replay 01JXQ0Z7N8E4T5Y6W7V8S9R0QP
    """
    from palyra.cli.replay import replay_run

    stream, replayed = replay_run(home_of(context), run)
    if is_json(context):
        print_json({"ok": replayed.difference is None, "session_id": stream, **_replay_members(replayed)})
    else:
        _print_replay(stream, replayed)
    if replayed.difference is not None:
        raise typer.Exit(1)


async def _events_of(client: Client, record: JsonObject) -> list[JsonObject]:
    """Returns the run's part of its session's tape. The part of an unfinished run extends to the tape's end."""
    first, last = record.get("accepted_seq"), record.get("ended_seq")
    after = first - 1 if isinstance(first, int) else 0
    limit = last - after if isinstance(last, int) else EVENTS_MAX
    events = await client.items(f"/sessions/{record['session_id']}/tape", min(limit, EVENTS_MAX), after=after)
    return [event for event in events if event.get("run_id") == record["id"]]


def _print_run(record: JsonObject, events: list[JsonObject], found: JsonObject) -> None:
    from palyra.cli.terminal.timeline import terminal_columns, timeline

    error, children = record.get("error"), children_of(found.get("root"))
    print_table(
        [
            ("run", record.get("id")),
            ("session", record.get("session_id")),
            ("state", f"{record.get('state')} ({record.get('reason') or 'not ended'})"),
            ("agent", record.get("agent")),
            ("from", f"{record.get('principal')} by {record.get('origin')}"),
            ("began", date_time(record.get("created_at_ms"))),
            ("took", _took(record)),
            ("usage", f"{usage_text(record)}{_estimate_words(events)}"),
            *([("parent", record.get("parent_run_id"))] if record.get("parent_run_id") else []),
            *([("children", ", ".join(str(child.get("id")) for child in children))] if children else []),
            *([("with children", usage_text({"usage": found.get("total")}))] if children else []),
            *_objective_rows(record),
            ("error", in_one_line(str(error.get("message")), 200) if isinstance(error, dict) else "–"),
        ]
    )
    print_line("")
    for line in timeline(events, style_for(sys.stdout), terminal_columns(sys.stdout)):
        typer.echo(line)
    if isinstance(record.get("answer"), str):
        typer.echo("\n" + fit(prose(str(record["answer"])), sys.stdout))


def _objective_rows(record: JsonObject) -> list[tuple[str, object]]:
    """Returns a row for each objective: what its last check found, and what is missing."""
    objectives = record.get("objectives")
    named = [each for each in objectives if isinstance(each, dict)] if isinstance(objectives, list) else []
    return [(f"objective {number}", _objective_words(each)) for number, each in enumerate(named, 1)]


def _objective_words(objective: JsonObject) -> str:
    note = f" ({objective['note']})" if objective.get("note") else ""
    return in_one_line(f"{objective.get('state')}: {objective.get('objective')}{note}", 200)


def _print_replay(stream: str, replayed: "Replayed") -> None:
    difference = replayed.difference
    found = "none" if difference is None else f"seq {difference.seq}: {difference.what}"
    rows: list[tuple[str, object]] = [
        ("session", stream),
        ("events", replayed.events_count),
        ("decisions re-checked", replayed.decisions_count),
        ("state", replayed.run.state.value if replayed.run is not None else "–"),
        ("first difference", found),
    ]
    if difference is not None:
        rows += [("recorded", difference.recorded or "nothing"), ("expected", difference.expected or "another event")]
    print_table(rows)


def _replay_members(replayed: "Replayed") -> JsonObject:
    return {
        "events_count": replayed.events_count,
        "decisions_count": replayed.decisions_count,
        "state": replayed.run.state.value if replayed.run is not None else None,
        "difference": replayed.difference,
    }


def _estimate_words(events: list[JsonObject]) -> str:
    """Says that a part of the usage is an estimate, as that of a call that a crash cut off, which counts in full."""
    found = [event.get("data") for event in events if event.get("type") == "usage.recorded"]
    is_estimate = any(isinstance(data, dict) and data.get("is_estimate") is True for data in found)
    return " (partly estimated)" if is_estimate else ""


def _status_text(record: JsonObject) -> str:
    code = record.get("exit_code")
    return "runs" if code is None else f"ended with {code}"


def _took(record: JsonObject) -> str:
    """Returns how long a run took. One that has not ended took until now."""
    has_ended = record.get("ended_seq") is not None
    began, changed = record.get("created_at_ms"), record.get("updated_at_ms") if has_ended else int(time.time() * 1000)
    return duration(changed - began) if isinstance(began, int) and isinstance(changed, int) else "–"
