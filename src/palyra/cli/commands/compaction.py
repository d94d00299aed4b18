"""`palyra sessions compact|compactions`: shortens the context of a long session, and shows how that was done.

Does not own: what is kept (core.compaction).
"""

import sys
from typing import Annotated

import typer

from palyra.cli.commands.sessions import SessionArgument, find_session
from palyra.cli.daemon_call import Client, ask_daemon
from palyra.cli.options import CommandGroup, is_json
from palyra.cli.output import print_json, print_styled
from palyra.cli.terminal.compaction_view import compaction_lines, record_lines
from palyra.cli.terminal.style import style_for
from palyra.core.errors import NotFound
from palyra.core.events.base import JsonObject

TIMEOUT_S = 310.0
SHOWN_MAX = 20  # The newest ones; older ones are on the tape.
CHECKPOINTS_MAX = 1_000

app = CommandGroup()


@app.command("compact")
def compact(
    context: typer.Context,
    session: SessionArgument,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be kept and lost; change nothing.")
    ] = False,
) -> None:
    """Replace the older part of a session's context by a checked summary.

    The last six exchanges, rules, decisions and open tasks stay word for word. The tape itself is not changed, and
    `palyra sessions restore` brings the state before back.

    Examples:

      palyra sessions compact cli --dry-run

      palyra sessions compact 01JXQ0Z7N8E4T5Y6W7V8S9R0QP
    """

    async def call(client: Client) -> JsonObject:
        found = await find_session(client, session)
        return await client.post(f"/sessions/{found['id']}/compact", {"dry_run": dry_run}, TIMEOUT_S)

    answer = ask_daemon(context, call)
    if is_json(context):
        print_json(answer)
        return
    for line in compaction_lines(answer, style_for(sys.stdout)):
        print_styled(line)


@app.command("compactions")
def compactions(context: typer.Context, session: SessionArgument) -> None:
    """Show the compactions of a session: what was kept, dropped and retired, and how a model's summary was checked.

    With --json also the whole summaries, those that were refused included.

    Examples:

      palyra sessions compactions cli
    """

    async def call(client: Client) -> list[tuple[JsonObject, JsonObject | None]]:
        found = await find_session(client, session)
        marks = await client.items(f"/sessions/{found['id']}/checkpoints", CHECKPOINTS_MAX)
        made = [mark for mark in marks if mark.get("reason") == "compaction"][-SHOWN_MAX:]
        return [pair for mark in made if (pair := await _read(client, str(found["id"]), mark)) is not None]

    found = ask_daemon(context, call)
    if is_json(context):
        print_json({"items": [{**event, "record": record} for event, record in found]})
        return
    style = style_for(sys.stdout)
    for event, record in found:
        for line in record_lines(event, record, style):
            print_styled(line)
    if not found:
        print_styled("no compactions yet")


async def _read(client: Client, session_id: str, mark: JsonObject) -> tuple[JsonObject, JsonObject | None] | None:
    """Returns the compaction that stands right behind its checkpoint, and its record. Older releases made no record."""
    at_seq = mark.get("seq")
    page = await client.get(f"/sessions/{session_id}/tape", after=at_seq if isinstance(at_seq, int) else 0, limit=2)
    events = page.get("events")
    found = [each for each in events if isinstance(each, dict)] if isinstance(events, list) else []
    event = next((each for each in found if each.get("type") == "session.compacted"), None)
    if event is None:
        return None
    data = event.get("data")
    artifact_id = data.get("artifact_id") if isinstance(data, dict) else None
    if artifact_id is None:
        return event, None
    try:
        return event, await client.get(f"/artifacts/{artifact_id}")
    except NotFound:
        return event, None  # The event was erased, and its record with it.
