"""`palyra chat`: its options. Does not own: the chat itself (terminal.conversation)."""

import sys
from typing import Annotated

import typer

from palyra.cli.daemon_call import ask_daemon
from palyra.cli.options import CommandGroup, home_of
from palyra.core.errors import Invalid
from palyra.core.events.base import JsonObject

SESSION_KEY = "cli"
HISTORY_FILE = "chat_history"

app = CommandGroup()


@app.command(json=False)
def chat(
    context: typer.Context,
    session: Annotated[str, typer.Option(metavar="KEY|ID", help="The session; created if it is new.")] = SESSION_KEY,
    agent: Annotated[str | None, typer.Option(help="The agent of a new session, instead of the default one.")] = None,
) -> None:
    """Chat in the terminal. Answers stream, tools show their status, and approvals appear in the chat.

    A line that you send while a run is active steers that run. Ctrl-C cancels the run; pressed twice, it leaves.
    Type /help in the chat for all commands. A chat continues where it ended, also after a restart of the daemon.

    Examples:

      palyra chat

      palyra chat --session garden

      palyra chat --session 01M7J5QDJJVGX2NSX6PYDVPYA2
    """
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        raise Invalid("terminal_needed", "a chat needs a terminal; in a pipe, use palyra run -")
    from palyra.cli.terminal.conversation import Conversation

    history = home_of(context).root / HISTORY_FILE
    ask_daemon(context, lambda client: Conversation(client, agent, history).talk(_named(session)))


def _named(session: str) -> JsonObject:
    """Returns what finds the session or makes it. A restored session has no key, so it is named by its id."""
    from palyra.core.ids import parse_session_id

    try:
        return {"id": parse_session_id(session)}
    except Invalid:
        return {"key": session}
