"""`palyra sessions checkpoint|checkpoints|restore|diff|pin|unpin|pins`: going back, and words that stay.

Does not own: the other commands of sessions (sessions), what checkpoints and pins are (core).
"""

import sys
from typing import Annotated
from urllib.parse import quote

import typer

from palyra.cli.commands.sessions import SessionArgument, find_session, show_made
from palyra.cli.daemon_call import Client, ask_daemon
from palyra.cli.lookup import choose_mark
from palyra.cli.options import CommandGroup, is_json
from palyra.cli.output import print_json, print_line, print_result
from palyra.cli.terminal.style import date_time, in_one_line, style_for
from palyra.cli.terminal.tables import print_rows
from palyra.core.errors import Invalid
from palyra.core.events.base import JsonObject

CHECKPOINTS_MAX = 1_000
_SHOWN_LENGTH_MAX = 80

app = CommandGroup()
LabelOption = Annotated[str | None, typer.Option(help="A label.")]


@app.command()
def checkpoint(
    context: typer.Context,
    session: SessionArgument,
    at_seq: Annotated[int | None, typer.Option(min=1, help="The event to go back to; without it, the newest.")] = None,
    label: LabelOption = None,
) -> None:
    """Name the present state of a session, or that at an event, so that it can be restored.

    Examples:

      palyra sessions checkpoint cli --label "before the refactoring"
    """
    body = _given(at_seq=at_seq, label=label)
    made = ask_daemon(context, lambda client: _post(client, session, "checkpoints", body))
    print_result(context, made, f"{made.get('id')} is a checkpoint at event {made.get('seq')}")


@app.command()
def checkpoints(context: typer.Context, session: SessionArgument) -> None:
    """List the checkpoints of a session, the oldest first.

    Examples:

      palyra sessions checkpoints cli
    """

    async def ask(client: Client) -> list[JsonObject]:
        record = await find_session(client, session)
        return await client.items(f"/sessions/{record['id']}/checkpoints", CHECKPOINTS_MAX)

    items = ask_daemon(context, ask)
    if is_json(context):
        print_json({"items": items})
        return
    rows = [
        (each.get("id"), each.get("seq"), date_time(each.get("at_ms")), each.get("reason"), each.get("label"))
        for each in items
    ]
    print_rows(("id", "at event", "made", "reason", "label"), rows, "no checkpoints yet")


@app.command()
def restore(
    context: typer.Context,
    session: SessionArgument,
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT", help="Its id, the beginning of it, its label, or `last`.")
    ],
    label: LabelOption = None,
) -> None:
    """Create a new session that goes on from a checkpoint. The session itself stays as it is.

    Examples:

      palyra sessions restore cli last

      palyra sessions restore cli "before the refactoring"
    """

    async def act(client: Client) -> JsonObject:
        session_id = str((await find_session(client, session))["id"])
        made = await client.items(f"/sessions/{session_id}/checkpoints", CHECKPOINTS_MAX)
        checkpoint_id = choose_mark(made, checkpoint, "checkpoint")
        return await client.post(f"/sessions/{session_id}/restore", _given(checkpoint_id=checkpoint_id, label=label))

    record = ask_daemon(context, act)
    show_made(record, is_json(context))


@app.command()
def diff(
    context: typer.Context,
    session: SessionArgument,
    other: Annotated[str, typer.Argument(metavar="OTHER", help="The session to compare with, by id or key.")],
) -> None:
    """Show what was said in two sessions since they parted.

    Examples:

      palyra sessions diff cli 01JD3V9Q6M1R8Z5X2C4B7N0KTE
    """
    from palyra.cli.terminal.session_diff import compare, diff_lines

    async def ask(client: Client) -> JsonObject:
        return await compare(client, await find_session(client, session), await find_session(client, other))

    found = ask_daemon(context, ask)
    if is_json(context):
        print_json(found)
        return
    for line in diff_lines(found, style_for(sys.stdout)):
        typer.echo(line)


@app.command()
def pin(
    context: typer.Context,
    session: SessionArgument,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="The words; without them, those of --seq.")] = None,
    seq: Annotated[int | None, typer.Option(min=1, help="The event that the words are from.")] = None,
) -> None:
    """Keep words in the context of a session until you remove them.

    Examples:

      palyra sessions pin cli "The database is PostgreSQL 16."

      palyra sessions pin cli --seq 42
    """
    if text is None and seq is None:
        raise Invalid("pin_empty", "give the words to pin, or --seq with the event that has them")
    body = _given(text=text, source_seq=seq)
    made = ask_daemon(context, lambda client: _post(client, session, "pins", body))
    if is_json(context):
        print_json(made)
    else:
        print_line(f"{made.get('id')} is pinned: {in_one_line(str(made.get('text')), _SHOWN_LENGTH_MAX)}")


@app.command()
def pins(context: typer.Context, session: SessionArgument) -> None:
    """List the pins of a session, the oldest first.

    Examples:

      palyra sessions pins cli
    """
    from palyra.cli.terminal.chat_pins import pins_in

    async def ask(client: Client) -> list[JsonObject]:
        record = await find_session(client, session)
        return pins_in(await client.get(f"/sessions/{record['id']}/pins"))

    items = ask_daemon(context, ask)
    if is_json(context):
        print_json({"items": items})
        return
    rows = [
        (each.get("id"), each.get("trust"), in_one_line(str(each.get("text")), _SHOWN_LENGTH_MAX)) for each in items
    ]
    print_rows(("id", "trust", "text"), rows, "nothing is pinned")


@app.command()
def unpin(
    context: typer.Context,
    session: SessionArgument,
    pin: Annotated[str, typer.Argument(metavar="PIN", help="Its id, the beginning of it, or `last`.")],
) -> None:
    """Remove a pin.

    Examples:

      palyra sessions unpin cli 01JD3V9Q6M1R8Z5X2C4B7N0KTE
    """
    from palyra.cli.terminal.chat_pins import pins_in

    async def act(client: Client) -> str:
        session_id = str((await find_session(client, session))["id"])
        pin_id = choose_mark(pins_in(await client.get(f"/sessions/{session_id}/pins")), pin, "pin")
        await client.delete(f"/sessions/{session_id}/pins/{quote(pin_id, safe='')}")
        return pin_id

    removed = ask_daemon(context, act)
    print_result(context, {"ok": True, "id": removed}, f"{removed} is no longer pinned")


async def _post(client: Client, session: str, part: str, body: JsonObject) -> JsonObject:
    record = await find_session(client, session)
    return await client.post(f"/sessions/{record['id']}/{part}", body)


def _given(**members: str | int | None) -> JsonObject:
    return {name: value for name, value in members.items() if value is not None}
