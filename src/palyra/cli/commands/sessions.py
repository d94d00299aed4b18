"""`palyra sessions`: shows and changes sessions through the daemon. Does not own: what a session is (core)."""

import sys
from typing import Annotated

import typer

from palyra.cli.daemon_call import Client, ask_daemon
from palyra.cli.lookup import choose_session
from palyra.cli.options import CommandGroup, YesOption, is_json
from palyra.cli.output import print_json, print_notice, print_result, print_table
from palyra.cli.terminal.style import date_time, in_one_line, style_for
from palyra.cli.terminal.tables import print_rows
from palyra.core.errors import Invalid
from palyra.core.events.base import JsonObject

ROUTINE_KEY = "routine:"
SESSIONS_MAX = 10_000  # As many are searched for a key, or for the most recent ones.
RUNS_MAX = 10_000
TASK_SHOWN_MAX = 40

app = CommandGroup(no_args_is_help=True)
SessionArgument = Annotated[
    str, typer.Argument(metavar="SESSION", help="The session's id, the beginning of it, its key or label, or last.")
]
LimitOption = Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")]


@app.callback()
def group() -> None:
    """Sessions: conversations and their recorded tapes.

    Examples:

      palyra sessions list
    """


@app.command("list")
def show_all(
    context: typer.Context,
    limit: LimitOption = 50,
    delegated: Annotated[bool, typer.Option("--delegated", help="Include sessions of delegated runs.")] = False,
) -> None:
    """List sessions, the most recently used first.

    Examples:

      palyra sessions list

      palyra sessions list --limit 5 --json
    """
    query = {"delegated": "true"} if delegated else {}

    async def read(client: Client) -> tuple[list[JsonObject], dict[str, str], list[JsonObject]]:
        sessions = await client.items("/sessions", SESSIONS_MAX, **query)
        return sessions, await _routine_names(client, sessions), await client.items("/runs", RUNS_MAX, **query)

    found, routines, runs = ask_daemon(context, read)
    items = sorted(found, key=lambda item: str(item.get("updated_at_ms")), reverse=True)[:limit]
    if is_json(context):
        print_json({"items": items})
        return
    tasks = {
        run.get("session_id"): str(run.get("task") or "") for run in sorted(runs, key=lambda run: str(run.get("id")))
    }  # The newest stays.
    rows = [
        (each.get("id"), each.get("key"), each.get("label") or routines.get(str(each.get("key"))), each.get("agent"),
         _used(each), in_one_line(tasks.get(each.get("id"), ""), TASK_SHOWN_MAX))
        for each in items
    ]  # fmt: skip
    columns = ("id", "key", "label", "agent", "last used", "last task")
    print_rows(columns, rows, "no sessions yet; palyra chat starts one")


@app.command()
def show(context: typer.Context, session: SessionArgument) -> None:
    """Show one session.

    Examples:

      palyra sessions show cli
    """
    record = ask_daemon(context, lambda client: find_session(client, session))
    show_record(record, is_json(context))


@app.command()
def tape(
    context: typer.Context,
    session: SessionArgument,
    after: Annotated[int, typer.Option(min=0, help="Begin after this seq.")] = 0,
    limit: LimitOption = 200,
) -> None:
    """Print the events of a session, one line each. Use `palyra export` for complete events that can be verified.

    Examples:

      palyra sessions tape cli

      palyra sessions tape cli --after 120 --json
    """
    from palyra.cli.terminal.timeline import terminal_columns, timeline

    async def read(client: Client) -> list[JsonObject]:
        record = await find_session(client, session)
        return await client.items(f"/sessions/{record['id']}/tape", limit, after=after)

    events = ask_daemon(context, read)
    if is_json(context):
        print_json({"events": events})
        return
    for line in timeline(events, style_for(sys.stdout), terminal_columns(sys.stdout)):
        typer.echo(line)


@app.command()
def reset(context: typer.Context, session: SessionArgument) -> None:
    """Start a session afresh: models no longer see its earlier history, and its grants and taint end.

    Examples:

      palyra sessions reset cli
    """

    async def act(client: Client) -> JsonObject:
        record = await find_session(client, session)
        return await client.post(f"/sessions/{record['id']}/reset")

    show_record(ask_daemon(context, act), is_json(context))


@app.command()
def branch(
    context: typer.Context,
    session: SessionArgument,
    at_seq: Annotated[int, typer.Option(min=1, help="The last event that both share.")],
    label: Annotated[str | None, typer.Option(help="A label for the new session.")] = None,
) -> None:
    """Create a new session that continues from an event of this one.

    Examples:

      palyra sessions branch cli --at-seq 42 --label "another way"
    """
    body: JsonObject = {"at_seq": at_seq} | ({} if label is None else {"label": label})

    async def act(client: Client) -> JsonObject:
        record = await find_session(client, session)
        return await client.post(f"/sessions/{record['id']}/branch", body)

    show_made(ask_daemon(context, act), is_json(context))


@app.command()
def label(
    context: typer.Context,
    session: SessionArgument,
    text: Annotated[
        str | None, typer.Argument(metavar="LABEL", help="The new label; without one, the label is removed.")
    ] = None,
) -> None:
    """Set the label of a session, or remove it.

    Examples:

      palyra sessions label cli "the garden"
    """

    async def act(client: Client) -> JsonObject:
        record = await find_session(client, session)
        return await client.patch(f"/sessions/{record['id']}", {"label": text})

    show_record(ask_daemon(context, act), is_json(context))


@app.command()
def delete(context: typer.Context, session: SessionArgument, yes: YesOption = False) -> None:
    """Erase the texts of a session and of all its branches for good. The hash chain stays.

    Examples:

      palyra sessions delete cli --yes
    """
    found = ask_daemon(context, lambda client: find_session(client, session))
    erased = str(found["id"])
    if not yes:
        typer.confirm(f"Erase session {erased} and its branches, for good?", abort=True, err=True)
    ask_daemon(context, lambda client: client.delete(f"/sessions/{erased}"))
    print_result(context, {"ok": True, "id": erased}, f"{erased} is erased")


@app.command()
def taint(context: typer.Context, session: SessionArgument) -> None:
    """Show which outside sources a session has seen, since when, and through which tool.

    Examples:

      palyra sessions taint cli
    """

    async def ask(client: Client) -> JsonObject:
        record = await find_session(client, session)
        return await client.get(f"/sessions/{record['id']}/taint")

    _show_taint(ask_daemon(context, ask), is_json(context))


@app.command()
def trust(
    context: typer.Context,
    session: SessionArgument,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="As `palyra sessions taint` names it.")],
    undo: Annotated[bool, typer.Option("--undo", help="No longer trust it.")] = False,
    reason: Annotated[str, typer.Option(help="The reason, for the record.")] = "",
) -> None:
    """Trust a source of a session's taint. Its content no longer causes questions, until the session is reset.

    Examples:

      palyra sessions trust cli http:docs.python.org --reason "our own mirror"

      palyra sessions trust cli http:docs.python.org --undo
    """
    from urllib.parse import quote

    body: JsonObject = {"source": source, "reason": reason} if reason else {"source": source}

    async def act(client: Client) -> JsonObject:
        record = await find_session(client, session)
        place = f"/sessions/{record['id']}/trust"
        return await (client.delete(f"{place}?source={quote(source, safe='')}") if undo else client.post(place, body))

    _show_taint(ask_daemon(context, act), is_json(context))


async def _routine_names(client: Client, sessions: list[JsonObject]) -> dict[str, str]:
    """Returns the names of routines by the keys of the sessions they have of their own."""
    if not any(str(each.get("key")).startswith(ROUTINE_KEY) for each in sessions):
        return {}
    routines = await client.items("/routines", SESSIONS_MAX)
    return {f"{ROUTINE_KEY}{each.get('id')}": f"routine {each.get('name')}" for each in routines}


async def find_session(client: Client, name: str) -> JsonObject:
    """Finds a session by id, by key, by label (the newest), as the `last` used, or by the beginning of its id.

    It never creates one.
    """
    from palyra.core.ids import parse_session_id

    try:
        return await client.get(f"/sessions/{parse_session_id(name)}")
    except Invalid:
        return choose_session(await client.items("/sessions", SESSIONS_MAX), name)


def show_made(record: JsonObject, as_json: bool) -> None:
    """Shows a new session, and how to talk in it: it has no key, and a label names no session to talk in."""
    show_record(record, as_json)
    if not as_json:
        print_notice(f"talk in it: palyra chat --session {record.get('id')}")


def show_record(record: JsonObject, as_json: bool) -> None:
    if as_json:
        print_json(record)
        return
    print_table(
        [
            ("id", record.get("id")),
            ("key", record.get("key") or "–"),
            ("label", record.get("label") or "–"),
            ("owner", record.get("owner")),
            ("agent", record.get("agent")),
            ("active run", record.get("active_run_id") or "–"),
            ("parent", f"{record['parent_id']} at {record.get('parent_seq')}" if record.get("parent_id") else "–"),
            ("created", date_time(record.get("created_at_ms"))),
            ("last used", _used(record)),
        ]
    )


def _show_taint(page: JsonObject, as_json: bool) -> None:
    if as_json:
        print_json(page)
        return
    items = page.get("items")
    rows = [
        (
            each.get("source"),
            "trusted" if each.get("is_trusted") else "taints",
            each.get("since_seq"),
            each.get("tool"),
            each.get("call_id"),
        )
        for each in (items if isinstance(items, list) else [])
    ]
    print_rows(("source", "standing", "since event", "tool", "call"), rows, "nothing from outside")


def _used(record: JsonObject) -> str:
    return date_time(record.get("updated_at_ms"))
