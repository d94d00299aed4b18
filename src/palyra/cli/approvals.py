"""`palyra approvals`. Owns: showing and answering questions through the daemon, and what was granted. Not: when to ask."""

from enum import Enum
from typing import Annotated

import typer

from palyra.cli.daemon import UrlOption, ask_daemon
from palyra.cli.ink import date_time, in_one_line, shown
from palyra.cli.listing import print_rows
from palyra.cli.options import JsonOption, is_json
from palyra.cli.output import print_json, print_line, print_table
from palyra.core.events.base import JsonObject

ITEMS_MAX = 10_000

app = typer.Typer(help="Questions that wait for a person, and what was granted.", no_args_is_help=True)
grants = typer.Typer(help="Approvals that cover later calls too.", no_args_is_help=True)
app.add_typer(grants, name="grants")

ApprovalArgument = Annotated[str, typer.Argument(metavar="APPROVAL", help="The approval's id.")]
ReasonOption = Annotated[str, typer.Option(help="Why; it is recorded, and the model is told.")]


class Status(Enum):
    PENDING = "pending"
    ALLOWED = "allowed"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    ALL = "all"


class Scope(Enum):
    ONCE = "once"
    SESSION = "session"
    TIMEBOXED = "timeboxed"


class Outcome(Enum):
    RETRY = "retry"
    DONE = "done"
    GIVE_UP = "give_up"


@app.callback()
def group() -> None:
    """Questions that wait for a person, and what was granted."""


@grants.callback()
def grants_group() -> None:
    """Approvals that cover later calls too."""


@app.command("list")
def show_all(
    context: typer.Context,
    status: Annotated[Status, typer.Option(help="Which ones.")] = Status.PENDING,
    everyone: Annotated[bool, typer.Option("--everyone", help="Of all principals; needs the role operator.")] = False,
    url: UrlOption = None,
    json: JsonOption = False,
) -> None:
    """List approvals; those that wait, unless told otherwise.

    Examples:

      palyra approvals list

      palyra approvals list --status all --json
    """
    query = ({} if status is Status.ALL else {"status": status.value}) | ({"everyone": "true"} if everyone else {})
    items = ask_daemon(context, url, lambda client: client.items("/approvals", ITEMS_MAX, **query))
    if is_json(context, json):
        print_json({"items": items})
        return
    rows = [
        (each.get("id"), each.get("status"), each.get("tool") or each.get("kind"), _said(each), _asked(each))
        for each in items
    ]
    empty = "nothing waits for an answer" if status is Status.PENDING else "there are none"
    print_rows(("id", "status", "tool", "what", "asked"), rows, empty)


@app.command()
def show(context: typer.Context, approval: ApprovalArgument, url: UrlOption = None, json: JsonOption = False) -> None:
    """Show one approval with its options; their numbers go with --option.

    Examples:

      palyra approvals show 0Q3K5TB1V9C7XZ2M8N4R6S0W1Y
    """
    record = ask_daemon(context, url, lambda client: client.get(f"/approvals/{approval}"))
    if is_json(context, json):
        print_json(record)
    else:
        _print_approval(record)


@app.command()
def allow(
    context: typer.Context,
    approval: ApprovalArgument,
    scope: Annotated[Scope, typer.Option(help="How far it goes.")] = Scope.ONCE,
    ttl: Annotated[str | None, typer.Option(help="How long, for --scope timeboxed: 90s, 30m, 2h, 7d.")] = None,
    option: Annotated[int | None, typer.Option(min=0, max=63, help="Which offered option; else the first.")] = None,
    reason: ReasonOption = "",
    url: UrlOption = None,
    json: JsonOption = False,
) -> None:
    """Allow what is asked, once or for calls of the same shape.

    Examples:

      palyra approvals allow 0Q3K5TB1V9C7XZ2M8N4R6S0W1Y

      palyra approvals allow 0Q3K5TB1V9C7XZ2M8N4R6S0W1Y --scope timeboxed --ttl 30m
    """
    from palyra.cli.questions import TTL_DEFAULT_S, parse_seconds

    if ttl is not None and scope is not Scope.TIMEBOXED:
        raise typer.BadParameter("--ttl goes with --scope timeboxed")
    body: JsonObject = {"decision": "allow", "scope": scope.value}
    if scope is Scope.TIMEBOXED:
        body["ttl_s"] = TTL_DEFAULT_S if ttl is None else parse_seconds(ttl, "--ttl")
    if option is not None:
        body["option"] = option
    _answer(context, url, approval, _with_reason(body, reason), json)


@app.command()
def deny(
    context: typer.Context,
    approval: ApprovalArgument,
    reason: ReasonOption = "",
    end_run: Annotated[bool, typer.Option("--end-run", help="End the run too, instead of letting it go on.")] = False,
    url: UrlOption = None,
    json: JsonOption = False,
) -> None:
    """Deny what is asked. The run goes on without it, unless told otherwise.

    Examples:

      palyra approvals deny 0Q3K5TB1V9C7XZ2M8N4R6S0W1Y --reason "use the test database"
    """
    body: JsonObject = {"decision": "deny"} | ({"end_run": True} if end_run else {})
    _answer(context, url, approval, _with_reason(body, reason), json)


@app.command()
def settle(
    context: typer.Context,
    approval: ApprovalArgument,
    outcome: Annotated[Outcome, typer.Argument(help="Run it again, treat it as done, or give up on it.")],
    reason: ReasonOption = "",
    url: UrlOption = None,
    json: JsonOption = False,
) -> None:
    """Say what became of a call that was started before a crash and never reported back.

    Examples:

      palyra approvals settle 0Q3K5TB1V9C7XZ2M8N4R6S0W1Y done
    """
    _answer(context, url, approval, _with_reason({"decision": outcome.value}, reason), json)


@grants.command("list")
def list_grants(context: typer.Context, url: UrlOption = None, json: JsonOption = False) -> None:
    """List what was granted for more than one call.

    Examples:

      palyra approvals grants list
    """
    items = ask_daemon(context, url, lambda client: client.items("/grants", ITEMS_MAX))
    if is_json(context, json):
        print_json({"items": items})
        return
    rows = [
        (each.get("id"), each.get("tool"), each.get("scope"), _constraints(each), _until(each), each.get("principal"))
        for each in items
    ]
    print_rows(("id", "tool", "scope", "where", "until", "given to"), rows, "nothing is granted")


@grants.command()
def revoke(
    context: typer.Context,
    grant: Annotated[str, typer.Argument(metavar="GRANT", help="The grant's id.")],
    url: UrlOption = None,
    json: JsonOption = False,
) -> None:
    """Take a grant back; from now on its calls are asked for again.

    Examples:

      palyra approvals grants revoke 0Q3K5TB1V9C7XZ2M8N4R6S0W1Y
    """
    record = ask_daemon(context, url, lambda client: client.delete(f"/grants/{grant}"))
    if is_json(context, json):
        print_json({"ok": True, **record})
    else:
        print_line(f"{grant} is revoked")


def _answer(context: typer.Context, url: str | None, approval: str, body: JsonObject, json: bool) -> None:
    record = ask_daemon(context, url, lambda client: client.post(f"/approvals/{approval}", body))
    if is_json(context, json):
        print_json(record)
    else:
        print_line(f"{approval} is {record.get('status')}")


def _with_reason(body: JsonObject, reason: str) -> JsonObject:
    return {**body, "reason": reason} if reason else body


def _print_approval(record: JsonObject) -> None:
    import msgspec

    from palyra.cli.questions import seen_text

    arguments = record.get("arguments")
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    policies = record.get("policies")
    print_table(
        [
            ("approval", record.get("id")),
            ("kind", record.get("kind")),
            ("status", f"{record.get('status')}{f' by {decided}' if (decided := record.get('decided_by')) else ''}"),
            ("run", record.get("run_id") or "–"),
            ("session", record.get("session_id")),
            ("tool", record.get("tool") or "–"),
            ("arguments", text),
            ("risk", record.get("risk")),
            ("rule", record.get("rule")),
            ("policies", ", ".join(map(str, policies)) if isinstance(policies, list) and policies else "–"),
            ("has seen", seen_text(record) or "nothing from outside"),
            ("asked", _asked(record)),
            ("expires", date_time(record.get("expires_at_ms"))),
        ]
    )
    if isinstance(record.get("preview"), str):
        typer.echo(f"\n{shown(str(record['preview']))}\n")
    options = record.get("options")
    for index, option in enumerate(options if isinstance(options, list) else []):
        print_line(f"  --option {index}  {option.get('scope')}: {option.get('text')}")


def _asked(record: JsonObject) -> str:
    return date_time(record.get("created_at_ms"))


def _said(record: JsonObject) -> str:
    from palyra.cli.questions import arguments_text

    return in_one_line(str(record.get("preview") or "") or arguments_text(record.get("arguments")), 80)


def _constraints(record: JsonObject) -> str:
    constraints = record.get("constraints")
    each = [
        f"{item.get('argument')} {item.get('operator')} {item.get('value')}"
        for item in (constraints if isinstance(constraints, list) else [])
    ]
    return "; ".join(each) or "any arguments"


def _until(record: JsonObject) -> str:
    if record.get("is_revoked"):
        return "revoked"
    return date_time(record.get("expires_at_ms")) if record.get("expires_at_ms") else "the session's reset"
