"""`palyra context`: previews what the references of a text bring. Does not own: resolving them (the daemon)."""

import sys
from typing import Annotated

import typer

from palyra.cli.commands.sessions import find_session
from palyra.cli.daemon_call import Client, ask_daemon
from palyra.cli.options import CommandGroup, is_json
from palyra.cli.output import print_json, print_line
from palyra.cli.terminal.style import shown, style_for
from palyra.core.events.base import JsonObject

app = CommandGroup(no_args_is_help=True)


@app.callback()
def group() -> None:
    """What a message brings along: files, changes and pages that it refers to.

    Examples:

      palyra context preview 'what does @file:notes.md say?'
    """


@app.command()
def preview(
    context: typer.Context,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A message with references, such as @file:notes.md.")],
    session: Annotated[
        str | None,
        typer.Option(
            "--session",
            metavar="SESSION",
            help="Resolve them as in this session: its id, the beginning of it, key, label or last.",
        ),
    ] = None,
    is_rendered: Annotated[bool, typer.Option("--rendered", help="Also print what a model would be shown.")] = False,
) -> None:
    """Show what each reference of a text brings, or why it brings nothing. Nothing is recorded.

    Examples:

      palyra context preview 'review @diff against @file:docs/style.md'

      palyra context preview '@url:https://example.com/' --rendered
    """
    from palyra.cli.terminal.reference_preview import reference_lines

    async def ask(client: Client) -> JsonObject:
        named = {} if session is None else {"session_id": (await find_session(client, session))["id"]}
        return await client.post("/context/preview", {"text": text, **named})

    answer = ask_daemon(context, ask)
    if is_json(context):
        print_json(answer)
        return
    lines = reference_lines(answer, style_for(sys.stdout))
    for line in lines:
        typer.echo(line)
    print_line(f"{answer.get('total_chars')} characters" if lines else "the text has no references")
    if is_rendered and answer.get("rendered"):
        typer.echo(shown(str(answer.get("rendered"))))
