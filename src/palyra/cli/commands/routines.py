"""`palyra routines`: adds, shows, pauses, runs and removes routines through the daemon.

Does not own: what a routine is (core.routines).
"""

import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from palyra.cli.daemon_call import ask_daemon
from palyra.cli.options import JsonOption, is_json
from palyra.cli.output import print_json, print_line
from palyra.cli.target import UrlOption
from palyra.cli.terminal.style import date_time, date_time_zone, in_one_line, prose, shown, style_for
from palyra.cli.terminal.tables import print_rows
from palyra.core.errors import Invalid, NotFound
from palyra.core.events.base import JsonObject
from palyra.core.routines.model import Misfire, Overlap

if TYPE_CHECKING:
    from palyra.cli.client import Client

ROUTINES_MAX = 10_000
PROMPT_SHOWN_MAX = 60

app = typer.Typer(no_args_is_help=True)
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
    url: UrlOption = None,
    json: JsonOption = False,
) -> None:
    """Add a routine that runs as you. Give one of --every, --cron and --at.

    Examples:

      palyra routines add sweep "Tidy the download folder." --every 1h

      palyra routines add review "Write a review of the year." --at 2027-01-01T09:00 --timezone Europe/Prague
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
    added = ask_daemon(context, url, lambda client: client.post("/routines", body))
    _print_change(added, "added", is_json(context, json))


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
    url: UrlOption = None,
    json: JsonOption = False,
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

    async def act(client: "Client") -> JsonObject:
        return await client.patch(f"/routines/{(await _find(client, routine))['id']}", body)

    _print_change(ask_daemon(context, url, act), "changed", is_json(context, json))


@app.command("list")
def show_all(
    context: typer.Context, everyone: EveryoneOption = False, url: UrlOption = None, json: JsonOption = False
) -> None:
    """List routines with their next times.

    Examples:

      palyra routines list

      palyra routines list --everyone --json
    """
    query: dict[str, str | int] = {"everyone": "true"} if everyone else {}
    found = ask_daemon(context, url, lambda client: client.items("/routines", ROUTINES_MAX, **query))
    if is_json(context, json):
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
    rows = [(*_row(each), *((each.get("principal"),) if everyone else ())) for each in found]
    print_rows(columns, rows, "there are no routines; palyra routines add makes one")


@app.command()
def show(context: typer.Context, routine: RoutineArgument, url: UrlOption = None, json: JsonOption = False) -> None:
    """Show one routine.

    Examples:

      palyra routines show morning
    """
    found = ask_daemon(context, url, lambda client: _find(client, routine))
    if is_json(context, json):
        print_json(found)
        return
    style = style_for(sys.stdout)
    print_line(f"{style.bold(_text(found, 'name'))}  {_text(found, 'state')}  {style.dim(_text(found, 'id'))}")
    lines = (
        ("when", _when(found)),
        ("next", _coming(found)),
        ("misfire", _misfire(found)),
        ("overlap", _text(found, "overlap")),
        ("session", _text(found, "session_key") or "its own"),
        ("agent", _text(found, "agent")),
        ("runs as", _text(found, "principal")),
        ("from", "palyra.toml" if found.get("source") == "file" else "palyra routines, the API or an agent"),
        ("fired", f"{found.get('fired_count')}, skipped {found.get('skipped_count')}"),
        ("last", _last(found)),
    )
    for title, value in lines:
        if value:
            print_line(f"{style.dim(title)}: {value}")
    typer.echo(f"\n{prose(str(found.get('prompt')))}")


@app.command()
def pause(context: typer.Context, routine: RoutineArgument, url: UrlOption = None, json: JsonOption = False) -> None:
    """Pause a routine. Times that pass meanwhile are not made up for.

    Examples:

      palyra routines pause morning
    """
    _set_paused(context, url, json, routine, True)


@app.command()
def resume(context: typer.Context, routine: RoutineArgument, url: UrlOption = None, json: JsonOption = False) -> None:
    """Resume a paused routine, from its next time on.

    Examples:

      palyra routines resume morning
    """
    _set_paused(context, url, json, routine, False)


@app.command()
def run(context: typer.Context, routine: RoutineArgument, url: UrlOption = None, json: JsonOption = False) -> None:
    """Run a routine now, besides its schedule. Its overlap rule holds.

    Examples:

      palyra routines run morning
    """

    async def act(client: "Client") -> JsonObject:
        return await client.post(f"/routines/{(await _find(client, routine))['id']}/run")

    fired = ask_daemon(context, url, act)
    if is_json(context, json):
        print_json(fired)
        return
    print_line(f"queued; palyra routines history {shown(routine)} shows its run")


@app.command()
def history(
    context: typer.Context,
    routine: RoutineArgument,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many at most.")] = 20,
    url: UrlOption = None,
    json: JsonOption = False,
) -> None:
    """List the times that came, the newest first: fired or skipped and why, and the run. Of a removed one by its id.

    Examples:

      palyra routines history morning
    """

    async def act(client: "Client") -> list[JsonObject]:
        return await client.items(f"/routines/{await _id_of(client, routine)}/history", limit)

    found = ask_daemon(context, url, act)
    if is_json(context, json):
        print_json({"items": found})
        return
    rows = [
        (_time(each.get("due_at_ms")), _outcome(each), each.get("run_id"), "" if each.get("reason") else _came_of(each))
        for each in found
    ]
    print_rows(("due", "outcome", "run", "state"), rows, "no time has come yet")


@app.command()
def remove(context: typer.Context, routine: RoutineArgument, url: UrlOption = None, json: JsonOption = False) -> None:
    """Remove a routine with its prompt. Its history stays for 90 days; a run that goes on is not cancelled.

    Examples:

      palyra routines remove morning
    """

    async def act(client: "Client") -> JsonObject:
        found = await _find(client, routine)
        await client.delete(f"/routines/{found['id']}")
        return found

    removed = ask_daemon(context, url, act)
    if is_json(context, json):
        print_json({"removed": removed.get("id")})
        return
    print_line(f"removed {_text(removed, 'name')}; its history: palyra routines history {_text(removed, 'id')}")


def _seconds(text: str) -> int:
    found = re.fullmatch(r"([0-9]{1,9})([smhd]?)", text.strip())
    seconds = int(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}[found[2]] if found else 0
    if not seconds:
        message = f"--every is a number of seconds, or a time such as 15m, 1h or 2d, and not {text!r}"
        raise Invalid("every_invalid", message)
    return seconds


def _set_paused(context: typer.Context, url: str | None, json: bool, routine: str, is_paused: bool) -> None:
    async def act(client: "Client") -> JsonObject:
        return await client.patch(f"/routines/{(await _find(client, routine))['id']}", {"paused": is_paused})

    changed = ask_daemon(context, url, act)
    _print_change(changed, "paused" if is_paused else "resumed", is_json(context, json))


async def _find(client: "Client", routine: str) -> JsonObject:
    """Finds a routine by its id or its name. An operator names another's by its id."""
    items = await client.items("/routines", ROUTINES_MAX)
    found = [each for each in items if routine in (each.get("id"), each.get("name"))]
    if found:
        return found[0]
    if _is_id(routine):
        return await client.get(f"/routines/{routine}")
    raise NotFound("routine_unknown", f"you have no routine {routine}; palyra routines list shows those there are")


async def _id_of(client: "Client", routine: str) -> str:
    try:
        return str((await _find(client, routine))["id"])
    except NotFound:
        if _is_id(routine):
            return routine
        raise


def _is_id(text: str) -> bool:
    return len(text) == 26 and text.isalnum() and text.isupper()


def _print_change(routine: JsonObject, verb: str, as_json: bool) -> None:
    if as_json:
        print_json(routine)
        return
    coming = _coming(routine)
    told = f"next: {coming}" if coming else f"state: {_text(routine, 'state')}"
    print_line(f"{verb} {_text(routine, 'name')} ({_when(routine)}); {told}")


def _row(routine: JsonObject) -> tuple[object, ...]:
    return (
        routine.get("name"),
        _when(routine),
        _time(routine.get("next_at_ms")),
        routine.get("state"),
        _last(routine),
        routine.get("fired_count"),
        routine.get("skipped_count"),
        in_one_line(_text(routine, "prompt"), PROMPT_SHOWN_MAX),
    )


def _when(routine: JsonObject) -> str:
    if routine.get("every_s") is not None:
        return f"every {routine['every_s']} s"
    if routine.get("cron") is not None:
        return f"{_text(routine, 'cron')} ({_text(routine, 'timezone')})"
    return f"at {_text(routine, 'at')}"


def _coming(routine: JsonObject) -> str:
    at_ms = routine.get("next_at_ms")
    return date_time_zone(at_ms) if isinstance(at_ms, int) else ""


def _misfire(routine: JsonObject) -> str:
    rule = _text(routine, "misfire")
    return f"{rule}, at most {routine.get('misfire_max')}" if rule == "all" else rule


def _last(routine: JsonObject) -> str:
    """Returns what came of the last time: its run's state and why it failed, or why there was no run."""
    last = routine.get("last")
    return _came_of(last) if isinstance(last, dict) else ""


def _came_of(fire: JsonObject) -> str:
    reason, state = _text(fire, "run_reason"), _text(fire, "run_state") or _text(fire, "error")
    if fire.get("reason") is not None:
        return f"skipped: {_text(fire, 'reason')}"
    return f"{state}: {reason}" if reason and state in ("failed", "cancelled") else state


def _outcome(fire: JsonObject) -> str:
    manual = ", by hand" if fire.get("is_manual") else ""
    if fire.get("reason") is None:
        return f"{_text(fire, 'outcome')}{manual}"
    count = fire.get("count")
    several = f", {count} times" if isinstance(count, int) and count > 1 else ""
    return f"{_text(fire, 'outcome')}: {_text(fire, 'reason')}{several}{manual}"


def _time(at_ms: object) -> str:
    return date_time(at_ms) if isinstance(at_ms, int) else ""


def _text(record: JsonObject, member: str) -> str:
    """Returns a member as text that is safe to show."""
    return shown(str(record.get(member) or ""))
