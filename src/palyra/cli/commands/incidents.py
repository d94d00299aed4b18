"""`palyra incidents`: what the watchdog found, in words, and the remedies it offers.

Does not own: finding and acting, which the daemon does.
"""

import sys
import time
from typing import Annotated

import typer

from palyra.cli.daemon_call import Client, ask_daemon
from palyra.cli.lookup import find_incident
from palyra.cli.options import CommandGroup, is_json
from palyra.cli.output import print_json, print_line, print_result, print_styled
from palyra.cli.terminal.style import Style, date_time, member_number, shown, style_for
from palyra.core.events.base import JsonObject
from palyra.core.plurals import counted

ITEMS_MAX = 1_000

IncidentArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The incident's id, the beginning of it, or `last`.")
]

app = CommandGroup(no_args_is_help=True)


@app.callback()
def group() -> None:
    """Incidents: what is stuck or degraded, and what can be done about it.

    Examples:

      palyra incidents list
    """


@app.command("list")
def show_all(
    context: typer.Context, everything: Annotated[bool, typer.Option("--all", help="Show resolved ones too.")] = False
) -> None:
    """List open incidents, the newest first.

    Examples:

      palyra incidents list

      palyra incidents list --all --json
    """
    query = {} if everything else {"status": "open"}
    items = ask_daemon(context, lambda client: client.items("/incidents", ITEMS_MAX, **query))
    if is_json(context):
        print_json({"items": items})
        return
    if not items:
        print_line("nothing is stuck or degraded")
    style, now_ms = style_for(sys.stdout), int(time.time() * 1000)
    for item in items:
        for line in _summary(item, style, now_ms):
            print_styled(line)


@app.command()
def show(context: typer.Context, incident: IncidentArgument) -> None:
    """Show one incident: evidence, what was done, and what you can do.

    Examples:

      palyra incidents show last
    """

    async def read(client: Client) -> JsonObject:
        return await client.get(await _path(client, incident))

    record = ask_daemon(context, read)
    if is_json(context):
        print_json(record)
        return
    style, now_ms = style_for(sys.stdout), int(time.time() * 1000)
    for line in (*_summary(record, style, now_ms), *_details(record)):
        print_styled(line)


@app.command()
def act(context: typer.Context, incident: IncidentArgument) -> None:
    """Let the daemon do the remedy that it offers, whatever the mode is. The act is recorded first.

    Examples:

      palyra incidents act 01JD3V9Q6M1R8Z5X2C4B7N0KTE
    """

    async def ask(client: Client) -> JsonObject:
        return await client.post(f"{await _path(client, incident)}/act", {})

    answer = ask_daemon(context, ask)
    if is_json(context):
        print_json(answer)
    else:
        print_line(shown(str(answer.get("outcome"))))
        print_line("The next cycle, within half a minute, tells whether it helped: palyra incidents list")


@app.command()
def resolve(
    context: typer.Context,
    incident: IncidentArgument,
    reason: Annotated[str, typer.Option(help="Why it is over, for the record.")] = "",
) -> None:
    """Resolve an incident by hand. The same finding stays quiet for an hour, unless it goes away and comes back.

    Examples:

      palyra incidents resolve 01JD3V9Q6M1R8Z5X2C4B7N0KTE --reason "planned work on the disk"
    """

    async def ask(client: Client) -> JsonObject:
        return await client.post(f"{await _path(client, incident)}/resolve", {"reason": reason})

    record = ask_daemon(context, ask)
    print_result(context, record, f"{record.get('id')} is resolved")


def age(duration_ms: int) -> str:
    """Says how long ago, in the largest unit that fits: 45 s, 12 min, 3 h, 2 d."""
    seconds = max(0, duration_ms // 1000)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


async def _path(client: Client, incident: str) -> str:
    from urllib.parse import quote

    return f"/incidents/{quote(await find_incident(client, incident), safe='')}"


def _summary(item: JsonObject, style: Style, now_ms: int) -> list[str]:
    severity = str(item.get("severity"))
    paint = {"critical": style.red, "warning": style.yellow}.get(severity, style.cyan)
    state = f"open for {age(now_ms - member_number(item, 'first_seen_ms'))}"
    if item.get("status") != "open":
        state = f"resolved {age(now_ms - member_number(item, 'resolved_at_ms'))} ago"
    actions = member_number(item, "actions_count")
    acted = f", acted on {counted(actions, 'time')}" if actions else ""
    evidence = shown(str(item.get("evidence"))).splitlines() or [""]
    head = f"{paint(severity)}  {style.bold(shown(str(item.get('domain'))))}  {state}{acted}"
    lines = [f"{head}  {style.dim(str(item.get('id')))}", f"  {evidence[0]}"]
    if item.get("status") == "open":
        lines.append(f"  {style.green(shown(str(item.get('remediation'))))}")
        if item.get("remedy"):
            lines.append(f"  palyra incidents act {item.get('id')}  {style.dim(_remedy_words(item))}")
    return lines


def _remedy_words(item: JsonObject) -> str:
    return f"({shown(str(item.get('remedy_words')))})"


def _details(record: JsonObject) -> list[str]:
    evidence = shown(str(record.get("evidence"))).splitlines()[1:]
    details = [
        ("subject", shown(str(record.get("subject")))),
        ("first seen", date_time(member_number(record, "first_seen_ms"))),
        ("last seen", date_time(member_number(record, "last_seen_ms"))),
        ("last event", shown(str(record.get("last") or "opened"))),
    ]
    return [*(f"  {line}" for line in evidence), *(f"  {name + ':':12}{value}" for name, value in details)]
