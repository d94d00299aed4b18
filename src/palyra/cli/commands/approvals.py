"""`palyra approvals`: shows and answers open questions, and shows and revokes grants and refusals.

Does not own: when a person is asked (core.run).
"""

from enum import Enum
from functools import partial
from typing import Annotated

import typer

from palyra.cli.daemon_call import Client, ask_daemon
from palyra.cli.lookup import find_id, find_open_question
from palyra.cli.options import CommandGroup, is_json
from palyra.cli.output import print_json, print_line, print_result, print_table
from palyra.cli.terminal.style import date_time, in_one_line, shown
from palyra.cli.terminal.tables import print_rows
from palyra.core.events.base import JsonObject

ITEMS_MAX = 10_000

app = CommandGroup(no_args_is_help=True)
grants = CommandGroup(no_args_is_help=True)
app.add_typer(grants, name="grants")

ApprovalArgument = Annotated[
    str,
    typer.Argument(
        metavar="APPROVAL", help="The approval's id, the beginning of it, or `last` for the newest that waits."
    ),
]
ReasonOption = Annotated[str, typer.Option(help="The reason. It is recorded, and the model sees it.")]


class StatusOption(Enum):
    PENDING = "pending"
    ALLOWED = "allowed"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    ALL = "all"


class ScopeOption(Enum):
    ONCE = "once"
    SESSION = "session"
    TIMEBOXED = "timeboxed"


class OutcomeOption(Enum):
    RETRY = "retry"
    DONE = "done"
    GIVE_UP = "give_up"


ScopeChoice = Annotated[ScopeOption, typer.Option(help="How far it goes.")]
TtlOption = Annotated[str | None, typer.Option(help="How long it lasts, with --scope timeboxed: 90s, 30m, 2h, 7d.")]
OfferOption = Annotated[
    int | None, typer.Option(min=0, max=63, help="The number of an offered option; by default the first.")
]


@app.callback()
def group() -> None:
    """Questions that wait for a person, and the grants and refusals given in answers.

    Examples:

      palyra approvals list

      palyra approvals allow last
    """


@grants.callback()
def grants_group() -> None:
    """Grants and refusals: answers that cover later calls too.

    Examples:

      palyra approvals grants list
    """


@app.command("list")
def show_all(
    context: typer.Context,
    status: Annotated[StatusOption, typer.Option(help="Which ones.")] = StatusOption.PENDING,
    everyone: Annotated[bool, typer.Option("--everyone", help="Show all principals; needs the role operator.")] = False,
) -> None:
    """List the approvals that wait for an answer, the newest last. --status lists others.

    Examples:

      palyra approvals list

      palyra approvals list --status all --json
    """
    query = ({} if status is StatusOption.ALL else {"status": status.value}) | (
        {"everyone": "true"} if everyone else {}
    )
    items = ask_daemon(context, lambda client: client.items("/approvals", ITEMS_MAX, **query))
    if is_json(context):
        print_json({"items": items})
        return
    rows = [
        (each.get("id"), each.get("status"), each.get("tool") or each.get("kind"), _said(each), _asked(each))
        for each in items
    ]
    empty = "nothing waits for an answer" if status is StatusOption.PENDING else "there are none"
    print_rows(("id", "status", "tool", "what", "asked"), rows, empty)


@app.command()
def show(
    context: typer.Context,
    approval: ApprovalArgument,
    full: Annotated[bool, typer.Option("--full", help="Show all that a yes would allow, however long it is.")] = False,
) -> None:
    """Show one approval with all its calls and options. The number of an option goes with --option.

    Examples:

      palyra approvals show 0Q3K5TB1V9C7XZ2M8N4R6S0W1Y

      palyra approvals show last --full
    """
    if full:
        text = ask_daemon(context, partial(_show_full, approval=approval))
        if is_json(context):
            print_json({"text": text})
        else:
            typer.echo(shown(text))
        return
    record = ask_daemon(context, partial(_show, approval=approval))
    if is_json(context):
        print_json(record)
    else:
        _print_approval(record)


@app.command()
def allow(
    context: typer.Context,
    approval: ApprovalArgument,
    scope: ScopeChoice = ScopeOption.ONCE,
    ttl: TtlOption = None,
    option: OfferOption = None,
    principal: Annotated[
        str | None, typer.Option("--as", metavar="USER", help="For a pairing question: whose account it is.")
    ] = None,
    role: Annotated[
        str | None, typer.Option(metavar="ROLE", help="For a pairing question: what they may do from it.")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(help="A path of a draft that is not to be applied. Repeat it for more.")
    ] = None,
    reason: ReasonOption = "",
) -> None:
    """Allow a call that waits: once, or also later calls of the same shape. For a draft: apply its changes.

    Examples:

      palyra approvals allow last

      palyra approvals allow 0Q3K5TB1V9C7XZ2M8N4R6S0W1Y --scope timeboxed --ttl 30m

      palyra approvals allow last --without .vscode/tasks.json
    """
    body = {"decision": "allow", **_terms(scope, ttl, option)}
    if principal is not None:
        body["principal"] = principal
    if role is not None:
        body["role"] = role
    if without:
        body["without"] = without
    _answer(context, approval, _with_reason(body, reason))


@app.command()
def deny(
    context: typer.Context,
    approval: ApprovalArgument,
    scope: ScopeChoice = ScopeOption.ONCE,
    ttl: TtlOption = None,
    option: OfferOption = None,
    reason: ReasonOption = "",
    end_run: Annotated[
        bool, typer.Option("--end-run", help="End the run too, instead of letting it continue.")
    ] = False,
) -> None:
    """Deny a call that waits: once, or also later calls of the same shape. The run continues, unless you add --end-run.

    Examples:

      palyra approvals deny 0Q3K5TB1V9C7XZ2M8N4R6S0W1Y --reason "use the test database"

      palyra approvals deny last --scope session
    """
    is_lasting = (scope, ttl, option) != (ScopeOption.ONCE, None, None)
    body = {"decision": "deny"} | (_terms(scope, ttl, option) if is_lasting else {})
    body |= {"end_run": True} if end_run else {}
    _answer(context, approval, _with_reason(body, reason))


@app.command()
def settle(
    context: typer.Context,
    approval: ApprovalArgument,
    outcome: Annotated[OutcomeOption, typer.Argument(help="Run it again, treat it as done, or give up on it.")],
    reason: ReasonOption = "",
) -> None:
    """Decide about a call that started before a crash and whose outcome is unknown.

    Examples:

      palyra approvals settle 0Q3K5TB1V9C7XZ2M8N4R6S0W1Y done
    """
    _answer(context, approval, _with_reason({"decision": outcome.value}, reason))


@grants.command("list")
def list_grants(context: typer.Context) -> None:
    """List the grants and the refusals, which cover more than one call.

    Examples:

      palyra approvals grants list
    """
    items = ask_daemon(context, lambda client: client.items("/grants", ITEMS_MAX))
    if is_json(context):
        print_json({"items": items})
        return
    rows = [
        (
            each.get("id"),
            each.get("kind"),
            each.get("tool"),
            each.get("scope"),
            _constraints(each),
            _until(each),
            each.get("principal"),
        )
        for each in items
    ]
    print_rows(("id", "kind", "tool", "scope", "where", "until", "given to"), rows, "nothing is granted or refused")


@grants.command()
def revoke(
    context: typer.Context,
    grant: Annotated[str, typer.Argument(metavar="GRANT", help="The id of a grant or refusal, or its beginning.")],
) -> None:
    """Revoke a grant or a refusal. From now on its calls wait for an answer again.

    Examples:

      palyra approvals grants revoke 0Q3K5TB1V9C7XZ2M8N4R6S0W1Y
    """
    record = ask_daemon(context, partial(_revoke, grant=grant))
    print_result(context, {"ok": True, **record}, f"{record.get('id')} is revoked")


def _terms(scope: ScopeOption, ttl: str | None, option: int | None) -> JsonObject:
    from palyra.cli.terminal.questions import TTL_DEFAULT_S, parse_grant_seconds

    if ttl is not None and scope is not ScopeOption.TIMEBOXED:
        raise typer.BadParameter("--ttl goes with --scope timeboxed")
    body: JsonObject = {"scope": scope.value}
    if scope is ScopeOption.TIMEBOXED:
        body["ttl_s"] = TTL_DEFAULT_S if ttl is None else parse_grant_seconds(ttl)
    return body if option is None else {**body, "option": option}


def _answer(context: typer.Context, approval: str, body: JsonObject) -> None:
    record = ask_daemon(context, partial(_send, approval=approval, body=body))
    forbidden = f": by now it is forbidden ({record['decided_rule']})" if record.get("decided_rule") else ""
    print_result(context, record, f"{record.get('id')} is {record.get('status')}{forbidden}")


async def _show(client: Client, approval: str) -> JsonObject:
    return await client.get(f"/approvals/{await find_id(client, '/approvals', approval)}")


async def _show_full(client: Client, approval: str) -> str:
    from palyra.cli.terminal.full_card import read_full

    return await read_full(client, await find_id(client, "/approvals", approval))


async def _send(client: Client, approval: str, body: JsonObject) -> JsonObject:
    return await client.post(f"/approvals/{await find_open_question(client, approval)}", body)


async def _revoke(client: Client, grant: str) -> JsonObject:
    return await client.delete(f"/grants/{await find_id(client, '/grants', grant)}")


def _with_reason(body: JsonObject, reason: str) -> JsonObject:
    return {**body, "reason": reason} if reason else body


def _print_approval(record: JsonObject) -> None:
    from palyra.cli.terminal.card import touched_text, why_text
    from palyra.cli.terminal.questions import seen_text

    covered_by = f" (by an earlier answer, {record['covered_by']})" if record.get("covered_by") else ""
    decided = f" by {record['decided_by']}{covered_by}" if record.get("decided_by") else ""
    print_table(
        [
            ("approval", record.get("id")),
            ("kind", record.get("kind")),
            ("status", f"{record.get('status')}{decided}"),
            ("run", record.get("run_id") or "–"),
            ("session", record.get("session_id")),
            ("tool", record.get("tool") or "–"),
            ("calls", record.get("count") or 1),
            *([("arguments", _json(record.get("arguments")))] if record.get("count") in (None, 1) else []),
            ("touches", touched_text(record.get("touches")) or "–"),
            ("risk", record.get("risk")),
            ("rule", record.get("rule")),
            ("why", why_text(record) or "–"),
            ("has seen", seen_text(record) or "nothing from outside"),
            ("asked", _asked(record)),
            ("expires", date_time(record.get("expires_at_ms"))),
        ]
    )
    _print_calls(record)
    if record.get("status") == "pending":
        _print_options(record)


def _print_options(record: JsonObject) -> None:
    from palyra.cli.terminal.questions import is_allowable

    options = record.get("options")
    for index, option in enumerate(options if isinstance(options, list) else []):
        scope = str(option.get("scope"))
        only_no = "" if is_allowable(record, scope) else " (only to deny: a call of critical risk is allowed once)"
        print_line(f"  --option {index}  {scope}: {option.get('text')}{only_no}")
    if record.get("kind") == "draft":
        print_line("  --without PATH  apply all but this path; repeat it for more")


def _print_calls(record: JsonObject) -> None:
    """Prints every call in full, because an answer is for all of them."""
    calls = record.get("calls")
    several = calls if isinstance(calls, list) and len(calls) > 1 else []
    for number, call in enumerate(several, 1):
        typer.echo("")
        print_line(f"call {number}  {_json(call.get('arguments'))}")
        if isinstance(call.get("preview"), str):
            typer.echo(shown(call["preview"]))
    if not several and isinstance(record.get("preview"), str):
        typer.echo(f"\n{shown(str(record['preview']))}")
    if record.get("is_cut"):
        typer.echo("\nThis leaves out some of what a yes would allow. Read it before you allow it: --full")
    typer.echo("")


def _json(value: object) -> str:
    import msgspec

    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _asked(record: JsonObject) -> str:
    return date_time(record.get("created_at_ms"))


def _said(record: JsonObject) -> str:
    from palyra.cli.terminal.questions import arguments_text, brief_arguments

    count = record.get("count")
    several = f"{count} calls: " if isinstance(count, int) and count > 1 else ""
    said = brief_arguments(record.get("arguments")) if several or record.get("kind") == "draft" else ""
    return several + in_one_line(
        said or str(record.get("preview") or "") or arguments_text(record.get("arguments")), 80
    )


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
