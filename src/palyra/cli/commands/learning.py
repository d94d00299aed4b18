"""`palyra learning`: shows what learning proposes, decides it, and tells how learning does.

Does not own: finding and applying, which the daemon does.
"""

import sys
from typing import Annotated

import typer

from palyra.cli.daemon_call import Client, ask_daemon
from palyra.cli.lookup import find_candidate
from palyra.cli.options import CommandGroup, is_json
from palyra.cli.output import print_json, print_line, print_styled
from palyra.cli.terminal.lift_chart import report_lines
from palyra.cli.terminal.style import in_one_line, member_number, member_text, prose, shown, style_for, time_text
from palyra.cli.terminal.tables import print_rows
from palyra.cli.terminal.word_wrap import fit
from palyra.core.errors import Conflict
from palyra.core.events.base import JsonObject
from palyra.core.learning.model import CandidateKind, CandidateStatus

ITEMS_MAX = 10_000
CONTENT_SHOWN_MAX = 70
PATH = "/learning/candidates"

app = CommandGroup(no_args_is_help=True)
CandidateArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The candidate's id, the beginning of it, or `last`.")
]
ReasonOption = Annotated[str, typer.Option(metavar="TEXT", help="Why; kept with the candidate.")]


@app.callback()
def group() -> None:
    """Learning: what was found in your runs, and what becomes of it.

    Examples:

      palyra learning list

      palyra learning accept last
    """


@app.command("list")
def show_all(
    context: typer.Context,
    status: Annotated[
        CandidateStatus | None, typer.Option(help="Only those in this state; suppressed ones are shown only so.")
    ] = None,
    kind: Annotated[CandidateKind | None, typer.Option(help="Only those of this kind.")] = None,
    everyone: Annotated[bool, typer.Option("--everyone", help="Everyone's candidates; for operators.")] = False,
) -> None:
    """List candidates, the one that changed last at the end. Those that wait for you are `pending_review`.

    Examples:

      palyra learning list --status pending_review

      palyra learning list --status suppressed --json
    """
    query: dict[str, str | int] = {"everyone": "true"} if everyone else {}
    query |= {} if status is None else {"status": status.value}
    query |= {} if kind is None else {"kind": kind.value}
    found = ask_daemon(context, lambda client: client.items(PATH, ITEMS_MAX, **query))
    found.sort(key=lambda each: (member_number(each, "updated_at_ms"), member_text(each, "id")))
    if is_json(context):
        print_json({"items": found})
        return
    columns = ("id", "status", "kind", "sure", "trust", "content", *(("principal",) if everyone else ()))
    rows = [(*_row(each), *((each.get("principal"),) if everyone else ())) for each in found]
    nothing = "nothing was learned yet; palyra learning report tells how learning does"
    print_rows(columns, rows, "no candidate fits; palyra learning list shows all" if query else nothing)


@app.command()
def show(context: typer.Context, candidate: CandidateArgument) -> None:
    """Show one candidate: what it says, what it was drawn from, and what accepting it changes.

    Examples:

      palyra learning show last
    """

    async def read(client: Client) -> JsonObject:
        return await client.get(f"{PATH}/{await find_candidate(client, candidate)}")

    found = ask_daemon(context, read)
    if is_json(context):
        print_json(found)
        return
    _print_whole(found)


@app.command()
def accept(context: typer.Context, candidate: CandidateArgument, reason: ReasonOption = "") -> None:
    """Accept a candidate: it is remembered, written down, or made a skill. You can undo it.

    Examples:

      palyra learning accept last
    """
    _decide(context, candidate, {"action": "accept", "reason": reason})


@app.command()
def edit(
    context: typer.Context,
    candidate: CandidateArgument,
    content: Annotated[str, typer.Argument(metavar="TEXT", help="What it should say.")],
    reason: ReasonOption = "",
) -> None:
    """Accept a candidate with other words. The words are yours then, whatever they came from.

    Examples:

      palyra learning edit last "I prefer short answers in English."
    """
    _decide(context, candidate, {"action": "edit", "content": content, "reason": reason})


@app.command()
def reject(context: typer.Context, candidate: CandidateArgument, reason: ReasonOption = "") -> None:
    """Reject a candidate. The same is not proposed again.

    Examples:

      palyra learning reject last --reason "That was last year."
    """
    _decide(context, candidate, {"action": "reject", "reason": reason})


@app.command()
def promote(context: typer.Context, candidate: CandidateArgument) -> None:
    """Put a suppressed, rejected or undone candidate into review.

    Examples:

      palyra learning promote 7K3
    """
    _decide(context, candidate, {"action": "promote"})


@app.command()
def undo(context: typer.Context, candidate: CandidateArgument, reason: ReasonOption = "") -> None:
    """Take back what an accepted candidate made.

    Examples:

      palyra learning undo last
    """
    _decide(context, candidate, {"action": "undo", "reason": reason})


@app.command()
def share(
    context: typer.Context,
    candidate: CandidateArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask; the readers are printed all the same.")] = False,
) -> None:
    """Share a line of your notes in MEMORY.md of its workspace. You are asked first, with the names of who will read it.

    Examples:

      palyra learning share last
    """

    async def read(client: Client) -> JsonObject:
        return await client.get(f"{PATH}/{await find_candidate(client, candidate, 'accepted')}")

    found = ask_daemon(context, read)
    readers = [str(reader) for reader in _items(found, "readers")]
    if not readers:
        what = f"candidate {member_text(found, 'id')} is in no notes, so there is nothing to share; notes hold"
        raise Conflict("not_in_notes", f"{what} accepted facts and decisions: palyra learning list --status accepted")
    typer.echo(f"{shown(member_text(found, 'content'))}\nIt will be read by:", err=True)
    typer.echo("".join(f"  {shown(reader)}\n" for reader in readers), err=True)
    if not yes:
        typer.confirm("Share it?", abort=True, err=True)
    _decide(context, member_text(found, "id"), {"action": "share", "readers": list(readers)})


@app.command()
def report(context: typer.Context) -> None:
    """Show how learning does: how much is junk, how much is used, and whether it helps.

    Examples:

      palyra learning report
    """
    found = ask_daemon(context, lambda client: client.get("/learning/report"))
    if is_json(context):
        print_json(found)
        return
    for line in report_lines(found):
        print_line(line)


def _decide(context: typer.Context, candidate: str, body: JsonObject) -> None:
    status = {"undo": "accepted", "share": "accepted", "promote": "suppressed"}.get(
        str(body["action"]), "pending_review"
    )

    async def act(client: Client) -> JsonObject:
        return await client.post(f"{PATH}/{await find_candidate(client, candidate, status)}", body)

    decided = ask_daemon(context, act)
    if is_json(context):
        print_json(decided)
        return
    where = member_text(decided, "applied_to")
    told = f"; applied to {where}" if where else ""
    note = (
        f": {member_text(decided, 'reason')}"
        if decided.get("status") == "pending_review" and decided.get("reason")
        else ""
    )
    print_line(
        f"{member_text(decided, 'kind')} {member_text(decided, 'id')} is {member_text(decided, 'status')}{told}{note}"
    )


def _print_whole(found: JsonObject) -> None:
    style = style_for(sys.stdout)
    print_styled(
        f"{style.bold(member_text(found, 'kind'))}  {member_text(found, 'status')}  {style.dim(member_text(found, 'id'))}"
    )
    taint = found.get("taint")
    lines = (
        ("sure", _sure(found)),
        ("found by", member_text(found, "origin")),
        ("trust", member_text(found, "trust")),
        ("from outside", shown(", ".join(map(str, taint))) if isinstance(taint, list) else ""),
        ("goes to", member_text(found, "destination")),
        ("applied to", member_text(found, "applied_to")),
        ("target", member_text(found, "target")),
        ("why", member_text(found, "why")),
        ("note", member_text(found, "reason")),
        ("decided by", member_text(found, "decided_by")),
        ("found at", time_text(found.get("created_at_ms"))),
    )
    for title, value in lines:
        if value:
            print_styled(f"{style.dim(title)}: {value}")
    typer.echo("\n" + fit(prose(str(found.get("content"))), sys.stdout))
    _print_list("accepting it changes", [shown(str(line)) for line in _items(found, "diff")])
    excerpts = [each for each in _items(found, "excerpts") if isinstance(each, dict)]
    _print_list("drawn from", [_excerpt(each) for each in excerpts])


def _print_list(title: str, lines: list[str]) -> None:
    if lines:
        print_line("")
        print_styled(style_for(sys.stdout).bold(title))
    for line in lines:
        print_line(f"  {line}")


def _excerpt(excerpt: JsonObject) -> str:
    words = in_one_line(member_text(excerpt, "text"), CONTENT_SHOWN_MAX)
    return f"{excerpt.get('seq')} {member_text(excerpt, 'actor')} ({member_text(excerpt, 'trust')}): {words}"


def _row(found: JsonObject) -> tuple[object, ...]:
    content = in_one_line(member_text(found, "content"), CONTENT_SHOWN_MAX)
    return (found.get("id"), found.get("status"), found.get("kind"), _sure(found), found.get("trust"), content)


def _sure(found: JsonObject) -> str:
    bps = found.get("confidence_bps")
    return f"{bps // 100}%" if isinstance(bps, int) else ""


def _items(found: JsonObject, member: str) -> list[object]:
    items = found.get(member)
    return items if isinstance(items, list) else []
