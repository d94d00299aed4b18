"""`palyra sessions compact`: shortens the context of a long session.

Does not own: what is kept (core.compaction).
"""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from palyra.cli.commands.sessions import SessionArgument, find_session
from palyra.cli.commands.sessions import app as sessions_app
from palyra.cli.daemon_call import ask_daemon
from palyra.cli.options import JsonOption, is_json
from palyra.cli.output import print_json, print_line
from palyra.cli.target import UrlOption
from palyra.cli.terminal.compaction_view import compaction_lines
from palyra.cli.terminal.style import style_for
from palyra.core.events.base import JsonObject

if TYPE_CHECKING:
    from palyra.cli.client import Client

TIMEOUT_S = 310.0


@sessions_app.command("compact")
def compact(
    context: typer.Context,
    session: SessionArgument,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be kept and lost; change nothing.")
    ] = False,
    url: UrlOption = None,
    json: JsonOption = False,
) -> None:
    """Replace the older part of a session's context by a checked summary.

    The last six exchanges, rules, decisions and open tasks stay word for word. The tape itself is not changed, and
    `palyra sessions restore` brings the state before back.

    Examples:

      palyra sessions compact cli --dry-run

      palyra sessions compact 01JXQ0Z7N8E4T5Y6W7V8S9R0QP
    """

    async def call(client: "Client") -> JsonObject:
        found = await find_session(client, session)
        return await client.post(f"/sessions/{found['id']}/compact", {"dry_run": dry_run}, TIMEOUT_S)

    answer = ask_daemon(context, url, call)
    if is_json(context, json):
        print_json(answer)
        return
    for line in compaction_lines(answer, style_for(sys.stdout)):
        print_line(line)
