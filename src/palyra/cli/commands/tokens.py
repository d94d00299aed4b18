"""`palyra tokens` and `palyra login-link`: requests them through the daemon, or without one.

Does not own: what a role may do (gateway.access).
Invariant: a new token is printed once, to standard output alone, so that a script can store it without showing it.
"""

import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from palyra.cli.daemon_call import Client, ask_daemon
from palyra.cli.lookup import choose_token
from palyra.cli.options import CommandGroup, chosen_url, home_of, is_json
from palyra.cli.output import print_json, print_line, print_result
from palyra.cli.target import target_of
from palyra.cli.terminal.style import date_time
from palyra.cli.terminal.tables import print_rows
from palyra.core.errors import PalyraError
from palyra.core.events.base import JsonObject
from palyra.ports.tokens import Role, Speaks

ITEMS_MAX = 10_000
NO_DAEMON = frozenset({"daemon_unreachable", "token_missing"})  # No daemon answers, or none was ever started here.

app = CommandGroup(no_args_is_help=True)
link_app = CommandGroup()
Answer = TypeVar("Answer")


@app.callback()
def group() -> None:
    """Tokens: who may use the daemon, as which principal, and for how long.

    Examples:

      palyra tokens new --for user:alice --role user --expires 30d
    """


@app.command()
def new(
    context: typer.Context,
    principal: Annotated[
        str, typer.Option("--for", metavar="PRINCIPAL", help="The principal it stands for, such as user:alice.")
    ],
    role: Annotated[
        Role, typer.Option(help="viewer reads, user works, operator sees everyone's work, admin does all.")
    ],
    expires: Annotated[
        str | None, typer.Option(metavar="30d|12h", help="How long it is valid; by default until revoked.")
    ] = None,
    label: Annotated[str, typer.Option(help="A label to recognize it by.")] = "",
    action: Annotated[
        list[str] | None,
        typer.Option(metavar="ACTION", help="Allow only this: runs, approvals.answer; may be repeated."),
    ] = None,
    is_person: Annotated[
        bool | None,
        typer.Option(
            "--person/--program",
            show_default=False,
            help="Who writes what is said with it: you, or a program or agent, whose words count as content from outside.",
        ),
    ] = None,
) -> None:
    """Create a token and print it. It is shown only this once.

    Examples:

      palyra tokens new --for user:alice --role user --expires 30d --label laptop --person

      palyra tokens new --for user:phone --role user --action approvals --person

      palyra tokens new --for user:owner --role user --program --label ci
    """
    from palyra.cli.terminal.questions import parse_seconds

    wish: JsonObject = {"principal": principal, "role": role.value, "label": label, "actions": list(action or ())}
    if expires is not None:
        wish["ttl_s"] = parse_seconds(expires, "--expires")
    if is_person is None and role is not Role.VIEWER:
        is_person = _ask_who_speaks()
    if is_person is not None:
        wish["speaks"] = (Speaks.PERSON if is_person else Speaks.PROGRAM).value
    issued = _ask(context, lambda client: client.post("/tokens", wish), lambda: _issue(context, wish))
    if is_json(context):
        print_json(issued)
        return
    typer.echo(issued["token"])
    typer.echo("It is shown this once. Use it as PALYRA_TOKEN=…, or in a request as Authorization: Bearer …", err=True)


@app.command("list")
def show_all(context: typer.Context) -> None:
    """List tokens: principal, role, expiry, and when each was last used, to the minute.

    Examples:

      palyra tokens list
    """
    items = _ask(context, lambda client: client.items("/tokens", ITEMS_MAX), lambda: _list(context))
    if is_json(context):
        print_json({"items": items})
        return
    rows = [
        (each.get("id"), each.get("principal"), _role(each), each.get("speaks"), each.get("label"), _date(each, "created_at_ms"),
         _date(each, "expires_at_ms"), _date(each, "last_used_at_ms"), each.get("state"))
        for each in sorted(items, key=_created_at)
    ]  # fmt: skip
    print_rows(
        ("id", "for", "role", "speaks", "label", "created", "expires", "last use", "state"), rows, "there are no tokens"
    )


@app.command()
def revoke(
    context: typer.Context,
    token: Annotated[str, typer.Argument(metavar="ID", help="The token's id, the beginning of it, or `last`.")],
) -> None:
    """Revoke a token. The daemon refuses it from the next request on.

    Examples:

      palyra tokens revoke 9f86d081884c7d65
    """
    from urllib.parse import quote

    async def act(client: Client) -> JsonObject:
        token_id = choose_token(await client.items("/tokens", ITEMS_MAX), token)
        return await client.delete(f"/tokens/{quote(token_id, safe='')}")

    record = _ask(context, act, lambda: _revoke(context, choose_token(_list(context), token)))
    print_result(context, record, f"{record.get('id')} of {record.get('principal')} is revoked")


@app.command("rotate-admin")
def rotate_admin(context: typer.Context) -> None:
    """Replace the node's admin token in admin.token. The old one stops working at once, and browsers are logged out.

    Examples:

      palyra tokens rotate-admin
    """
    home = home_of(context)
    answer = _ask(context, lambda client: client.post("/tokens/rotate-admin"), lambda: _rotate(context))
    if is_json(context):
        print_json(answer)
    elif chosen_url(context) is None:
        print_line(f"the new admin token is in {home.admin_token}")
    else:
        typer.echo(answer["token"])


@link_app.command("login-link")
def login_link(context: typer.Context) -> None:
    """Print a link that logs a browser in. It works once, within ten minutes.

    Examples:

      palyra login-link
    """
    answer = ask_daemon(context, lambda client: client.post("/login-link"))
    link = f"{target_of(home_of(context), chosen_url(context)).url}{answer['path']}"
    if is_json(context):
        print_json({"url": link, "valid_for_s": answer["valid_for_s"]})
    else:
        typer.echo(link)


def _ask_who_speaks() -> bool | None:
    """Asks on a terminal. A script that says nothing is told what that means."""
    if sys.stdin.isatty() and sys.stderr.isatty():
        return typer.confirm("Will a person write what is said with it (no: a program or an agent)?", err=True)
    typer.echo(
        "Nobody said who speaks with it: over MCP it counts as a program's, elsewhere as a person's. "
        "Say --person or --program.",
        err=True,
    )
    return None


def _ask(context: typer.Context, act: "Callable[[Client], Awaitable[Answer]]", without: Callable[[], Answer]) -> Answer:
    """Asks the daemon if one answers, else acts without one. An address given with --url must answer."""
    try:
        return ask_daemon(context, act)
    except PalyraError as error:
        if chosen_url(context) is not None or error.code not in NO_DAEMON:
            raise
        return without()


def _issue(context: typer.Context, wish: JsonObject) -> JsonObject:
    from palyra.app.credentials import issue_token

    return _as_json(issue_token(home_of(context), wish))


def _list(context: typer.Context) -> list[JsonObject]:
    from palyra.app.credentials import list_tokens

    return [_as_json(record) for record in list_tokens(home_of(context))]


def _revoke(context: typer.Context, token_id: str) -> JsonObject:
    from palyra.app.credentials import revoke_token

    return _as_json(revoke_token(home_of(context), token_id))


def _rotate(context: typer.Context) -> JsonObject:
    from palyra.app.credentials import rotate_admin_token

    return _as_json(rotate_admin_token(home_of(context)))


def _as_json(record: object) -> JsonObject:
    import msgspec

    return msgspec.json.decode(msgspec.json.encode(record), type=JsonObject)


def _role(each: JsonObject) -> str:
    actions = each.get("actions")
    narrowed = f" ({', '.join(map(str, actions))})" if isinstance(actions, list) and actions else ""
    return f"{each.get('role')}{narrowed}"


def _created_at(each: JsonObject) -> int:
    created = each.get("created_at_ms")
    return created if isinstance(created, int) else 0


def _date(each: JsonObject, name: str) -> str | None:
    return date_time(each[name]) if each.get(name) else None
