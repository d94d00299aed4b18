"""`palyra routines`: adds, shows, pauses, runs and removes routines through the daemon.

Does not own: what a routine is (core.routines).
"""

import re
import sys
from typing import Annotated

import typer

from palyra.cli.daemon_call import Client, ask_daemon
from palyra.cli.options import CommandGroup, is_json
from palyra.cli.output import print_json, print_line, print_result, print_styled
from palyra.cli.terminal.routine_text import (
    came_of,
    last_text,
    misfire_text,
    next_text,
    outcome_text,
    routine_row,
    when_text,
)
from palyra.cli.terminal.style import member_text, prose, shown, style_for, time_text
from palyra.cli.terminal.tables import print_rows
from palyra.core.errors import Invalid, NotFound
from palyra.core.events.base import JsonObject
from palyra.core.routines.model import Misfire, Overlap

ROUTINES_MAX = 10_000

app = CommandGroup(no_args_is_help=True)
RoutineArgument = Annotated[str, typer.Argument(metavar="ROUTINE", help="The routine's name or id.")]
EveryoneOption = Annotated[bool, typer.Option("--everyone", help="Everyone's routines; for operators.")]


@app.callback()
def group() -> None:
    """Routines: prompts that run on a schedule.

    Examples:

      palyra routines add morning "What is on today?" --cron "30 7 * * 1-5" --timezone Europe/Prague
    """


@app.command()
def add(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name that none of your routines has yet.")],
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What is said at each time.")],
    every: Annotated[str | None, typer.Option(metavar="TIME", help="Run this often: 90, 15m, 1h, 2d.")] = None,
    cron: Annotated[str | None, typer.Option(metavar="CRON", help="Five fields, such as '0 9 * * 1'.")] = None,
    at: Annotated[str | None, typer.Option(metavar="TIME", help="Run once, such as 2027-01-31T07:30.")] = None,
    timezone: Annotated[str | None, typer.Option(metavar="ZONE", help="The zone of --cron and --at; UTC.")] = None,
    misfire: Annotated[Misfire | None, typer.Option(help="Times missed while no daemon ran.")] = None,
    misfire_max: Annotated[int | None, typer.Option(help="How many missed times --misfire all makes up for.")] = None,
    overlap: Annotated[Overlap | None, typer.Option(help="Due while its last run goes on.")] = None,
    session: Annotated[str | None, typer.Option(metavar="KEY", help="The key of the session it speaks in.")] = None,
    agent: Annotated[str | None, typer.Option(metavar="AGENT", help="The agent it speaks to.")] = None,
) -> None:
    """Add a routine that runs as you. Give one of --every, --cron and --at.

    Examples:

      palyra routines add sweep "Tidy the download folder." --every 1h

      palyra routines add review "Write a review of the year." --at 2027-01-01T09:00 --timezone Europe/Prague
    """
    if [every, cron, at].count(None) != 2:
        raise Invalid("routine_schedule", "a routine has one schedule; give one of --every, --cron and --at")
    wish = {
        "name": name,
        "prompt": prompt,
        "every_s": None if every is None else _seconds(every),
        "cron": cron,
        "at": at,
        "timezone": timezone,
        "misfire": None if misfire is None else misfire.value,
        "misfire_max": misfire_max,
        "overlap": None if overlap is None else overlap.value,
        "session_key": session,
        "agent": agent,
    }
    body: JsonObject = {member: value for member, value in wish.items() if value is not None}
    added = ask_daemon(context, lambda client: client.post("/routines", body))
    _print_change(added, "added", is_json(context))


@app.command()
def edit(
    context: typer.Context,
    routine: RoutineArgument,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Another name.")] = None,
    prompt: Annotated[str | None, typer.Option(metavar="PROMPT", help="What is said at each time.")] = None,
    every: Annotated[str | None, typer.Option(metavar="TIME", help="Run this often: 90, 15m, 1h, 2d.")] = None,
    cron: Annotated[str | None, typer.Option(metavar="CRON", help="Five fields, such as '0 9 * * 1'.")] = None,
    at: Annotated[str | None, typer.Option(metavar="TIME", help="Run once, such as 2027-01-31T07:30.")] = None,
    timezone: Annotated[str | None, typer.Option(metavar="ZONE", help="The zone of --cron and --at.")] = None,
    misfire: Annotated[Misfire | None, typer.Option(help="Times missed while no daemon ran.")] = None,
    misfire_max: Annotated[int | None, typer.Option(help="How many missed times --misfire all makes up for.")] = None,
    overlap: Annotated[Overlap | None, typer.Option(help="Due while its last run goes on.")] = None,
    session: Annotated[str | None, typer.Option(metavar="KEY", help="The key of the session it speaks in.")] = None,
    agent: Annotated[str | None, typer.Option(metavar="AGENT", help="The agent it speaks to.")] = None,
) -> None:
    """Change a routine. What you do not give stays. One of palyra.toml is changed there.

    Examples:

      palyra routines edit morning --cron "0 8 * * 1-5"

      palyra routines edit morning --prompt "What is on today, and tomorrow?"
    """
    wish = {
        "name": name,
        "prompt": prompt,
        "every_s": None if every is None else _seconds(every),
        "cron": cron,
        "at": at,
        "timezone": timezone,
        "misfire": None if misfire is None else misfire.value,
        "misfire_max": misfire_max,
        "overlap": None if overlap is None else overlap.value,
        "session_key": session,
        "agent": agent,
    }
    body: JsonObject = {member: value for member, value in wish.items() if value is not None}
    if not body:
        raise typer.BadParameter("there is nothing to change; give an option, such as --prompt")

    async def act(client: Client) -> JsonObject:
        return await client.patch(f"/routines/{(await _find(client, routine))['id']}", body)

    _print_change(ask_daemon(context, act), "changed", is_json(context))


@app.command("list")
def show_all(
    context: typer.Context,
    everyone: EveryoneOption = False,
    removed: Annotated[bool, typer.Option("--removed", help="Removed ones, whose history stays for 90 days.")] = False,
) -> None:
    """List routines with their next times.

    Examples:

      palyra routines list

      palyra routines list --everyone --json
    """
    wished = {"everyone": everyone, "removed": removed}
    query: dict[str, str | int] = {name: "true" for name, is_wished in wished.items() if is_wished}
    found = ask_daemon(context, lambda client: client.items("/routines", ROUTINES_MAX, **query))
    if is_json(context):
        print_json({"items": found})
        return
    columns = (
        "name",
        "when",
        "next",
        "state",
        "last",
        "fired",
        "skipped",
        "prompt",
        *(("principal",) if everyone else ()),
    )
    rows = [(*routine_row(each), *((each.get("principal"),) if everyone else ())) for each in found]
    empty = "no routine was removed" if removed else "there are no routines; palyra routines add makes one"
    print_rows(columns, rows, empty)


@app.command()
def show(context: typer.Context, routine: RoutineArgument) -> None:
    """Show one routine.

    Examples:

      palyra routines show morning
    """
    found = ask_daemon(context, lambda client: _find(client, routine))
    if is_json(context):
        print_json(found)
        return
    style = style_for(sys.stdout)
    print_styled(
        f"{style.bold(member_text(found, 'name'))}  {member_text(found, 'state')}  {style.dim(member_text(found, 'id'))}"
    )
    lines = (
        ("when", when_text(found)),
        ("next", next_text(found)),
        ("misfire", misfire_text(found)),
        ("overlap", member_text(found, "overlap")),
        ("session", member_text(found, "session_key") or "its own"),
        ("agent", member_text(found, "agent")),
        ("runs as", member_text(found, "principal")),
        ("from", "palyra.toml" if found.get("source") == "file" else "palyra routines, the API or an agent"),
        ("fired", f"{found.get('fired_count')}, skipped {found.get('skipped_count')}"),
        ("last", last_text(found)),
    )
    for title, value in lines:
        if value:
            print_styled(f"{style.dim(title)}: {value}")
    typer.echo(f"\n{prose(str(found.get('prompt')))}")


@app.command()
def pause(context: typer.Context, routine: RoutineArgument) -> None:
    """Pause a routine. Times that pass meanwhile are not made up for.

    Examples:

      palyra routines pause morning
    """
    _set_paused(context, routine, True)


@app.command()
def resume(context: typer.Context, routine: RoutineArgument) -> None:
    """Resume a paused routine, from its next time on.

    Examples:

      palyra routines resume morning
    """
    _set_paused(context, routine, False)


@app.command()
def run(context: typer.Context, routine: RoutineArgument) -> None:
    """Run a routine now, besides its schedule. Its overlap rule holds.

    Examples:

      palyra routines run morning
    """

    async def act(client: Client) -> JsonObject:
        return await client.post(f"/routines/{(await _find(client, routine))['id']}/run")

    fired = ask_daemon(context, act)
    print_result(context, fired, f"queued; palyra routines history {shown(routine)} shows its run")


@app.command()
def history(
    context: typer.Context,
    routine: RoutineArgument,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many at most.")] = 20,
) -> None:
    """List the times that came, the newest first: fired or skipped and why, and the run. Also of a removed one.

    Examples:

      palyra routines history morning
    """

    async def act(client: Client) -> list[JsonObject]:
        return await client.items(f"/routines/{await _id_of(client, routine)}/history", limit)

    found = ask_daemon(context, act)
    if is_json(context):
        print_json({"items": found})
        return
    rows = [
        (
            time_text(each.get("due_at_ms")),
            outcome_text(each),
            each.get("run_id"),
            "" if each.get("reason") else came_of(each),
        )
        for each in found
    ]
    print_rows(("due", "outcome", "run", "state"), rows, "no time has come yet")


@app.command()
def remove(context: typer.Context, routine: RoutineArgument) -> None:
    """Remove a routine with its prompt. Its history stays for 90 days; a run that goes on is not cancelled.

    Examples:

      palyra routines remove morning
    """

    async def act(client: Client) -> JsonObject:
        found = await _find(client, routine)
        await client.delete(f"/routines/{found['id']}")
        return found

    removed = ask_daemon(context, act)
    if is_json(context):
        print_json({"removed": removed.get("id")})
        return
    print_line(
        f"removed {member_text(removed, 'name')}; its history: palyra routines history {member_text(removed, 'name')}"
    )


def _seconds(text: str) -> int:
    found = re.fullmatch(r"([0-9]{1,9})([smhd]?)", text.strip())
    seconds = int(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}[found[2]] if found else 0
    if not seconds:
        message = f"--every is a number of seconds, or a time such as 15m, 1h or 2d, and not {text!r}"
        raise Invalid("every_invalid", message)
    return seconds


def _set_paused(context: typer.Context, routine: str, is_paused: bool) -> None:
    async def act(client: Client) -> JsonObject:
        return await client.patch(f"/routines/{(await _find(client, routine))['id']}", {"paused": is_paused})

    changed = ask_daemon(context, act)
    _print_change(changed, "paused" if is_paused else "resumed", is_json(context))


async def _find(client: Client, routine: str) -> JsonObject:
    """Finds a routine by its id or its name. An operator names another's by its id."""
    items = await client.items("/routines", ROUTINES_MAX)
    found = [each for each in items if routine in (each.get("id"), each.get("name"))]
    if found:
        return found[0]
    if _is_id(routine):
        return await client.get(f"/routines/{routine}")
    raise NotFound("routine_unknown", f"you have no routine {routine}; palyra routines list shows those there are")


async def _id_of(client: Client, routine: str) -> str:
    """Finds the id of a routine also after its removal. Of several removed ones of a name the newest counts."""
    try:
        return str((await _find(client, routine))["id"])
    except NotFound:
        if _is_id(routine):
            return routine
        gone = await client.items("/routines", ROUTINES_MAX, removed="true")
        named = [each for each in gone if each.get("name") == routine]
        if not named:
            raise
        return str(max(named, key=lambda each: int(str(each.get("updated_at_ms"))))["id"])


def _is_id(text: str) -> bool:
    return len(text) == 26 and text.isalnum() and text.isupper()


def _print_change(routine: JsonObject, verb: str, as_json: bool) -> None:
    if as_json:
        print_json(routine)
        return
    coming = next_text(routine)
    told = f"next: {coming}" if coming else f"state: {member_text(routine, 'state')}"
    print_line(f"{verb} {member_text(routine, 'name')} ({when_text(routine)}); {told}")
