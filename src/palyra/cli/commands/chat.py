"""The command `palyra chat`. Owns: its options. Does not own: the chat itself (terminal.conversation)."""

import sys
from typing import Annotated

import typer

from palyra.cli.daemon_call import ask_daemon
from palyra.cli.options import home_of
from palyra.cli.target import UrlOption
from palyra.core.errors import Invalid

SESSION_KEY = "cli"
HISTORY_FILE = "chat_history"

app = typer.Typer()


@app.command()
def chat(
    context: typer.Context,
    session: Annotated[str, typer.Option(metavar="KEY", help="The session; made if it is new.")] = SESSION_KEY,
    agent: Annotated[str | None, typer.Option(help="The agent of a new session; else the default one.")] = None,
    url: UrlOption = None,
) -> None:
    """Talk in the terminal: answers as they come, tools as they run, approvals inline.

    What you type while a run is active steers it. Ctrl-C cancels the run, twice leaves. /help in the chat tells the rest.
    A chat goes on where it was left, also after the daemon was restarted.

    Examples:

      palyra chat

      palyra chat --session garden
    """
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        raise Invalid("terminal_needed", "a chat needs a terminal; use palyra run, which reads - from a pipe")
    from palyra.cli.terminal.conversation import Conversation

    history = home_of(context).root / HISTORY_FILE
    ask_daemon(context, url, lambda client: Conversation(client, agent, history).talk(session))
