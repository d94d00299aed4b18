"""`palyra pair`: issues codes by which people link their accounts, and lists and revokes links.

Does not own: answering the question that follows (approvals).
"""

from typing import Annotated

import typer

from palyra.cli.daemon_call import ask_daemon
from palyra.cli.options import CommandGroup, JsonOption, choose, is_json
from palyra.cli.output import print_json, print_line
from palyra.cli.target import UrlOption
from palyra.cli.terminal.style import date_time, shown
from palyra.cli.terminal.tables import print_rows
from palyra.core.events.base import JsonObject
from palyra.ports.tokens import Role

LINKS_MAX = 10_000

app = CommandGroup(no_args_is_help=False)


@app.callback(invoke_without_command=True)
def issue(
    context: typer.Context,
    channel: Annotated[str | None, typer.Option(metavar="CHANNEL", help="The code works in this channel only.")] = None,
    principal: Annotated[str | None, typer.Option("--as", metavar="USER", help="For whom, such as user:alice.")] = None,
    role: Annotated[Role | None, typer.Option(help="What they may do.")] = None,
    url: UrlOption = None,
    json: JsonOption = False,
) -> None:
    """Issue a pairing code. Whoever sends it to the bot asks to be linked, and you answer that question.

    Examples:

      palyra pair --channel team --as user:alice --role user

      palyra approvals allow last --as user:alice
    """
    if context.invoked_subcommand is not None:
        return
    choose(context, url, json)
    person = f"user:{principal}" if principal is not None and ":" not in principal else principal
    wish = {"channel": channel, "principal": person, "role": None if role is None else role.value}
    body: JsonObject = {name: value for name, value in wish.items() if value is not None}
    code = ask_daemon(context, lambda client: client.post("/pairing/codes", body))
    if is_json(context):
        print_json(code)
        return
    until = code.get("expires_at_ms")
    print_line(f"code: {shown(str(code.get('code')))}")
    print_line(f"It works once, until {date_time(until) if isinstance(until, int) else 'soon'}.")
    print_line("The person sends it to the bot; then: palyra approvals list")


@app.command("list")
def show_all(context: typer.Context) -> None:
    """List accounts that are linked.

    Examples:

      palyra pair list
    """
    found = ask_daemon(context, lambda client: client.items("/pairing/links", LINKS_MAX))
    if is_json(context):
        print_json({"items": found})
        return
    rows = [
        (each.get("id"), each.get("channel"), each.get("display") or each.get("sender_id"), each.get("principal"),
         each.get("role"), _time(each))
        for each in found
    ]  # fmt: skip
    print_rows(
        ("id", "channel", "account", "principal", "role", "until"),
        rows,
        "no account is linked; link one with `palyra pair`",
    )


@app.command()
def revoke(context: typer.Context, link: Annotated[str, typer.Argument(metavar="LINK", help="The link's id.")]) -> None:
    """Revoke the link of an account. Its messages count as a stranger's from now on.

    Examples:

      palyra pair revoke 01JZ8Y7Q4B9C2D5E6F7G8H9J0K
    """
    revoked = ask_daemon(context, lambda client: client.delete(f"/pairing/links/{link}"))
    if is_json(context):
        print_json(revoked)
        return
    print_line(f"{shown(str(revoked.get('display') or revoked.get('sender_id')))} is no longer linked")


def _time(link: JsonObject) -> str:
    at_ms = link.get("expires_at_ms")
    return date_time(at_ms) if isinstance(at_ms, int) else ""
