"""`palyra memory`: adds, finds, lists, edits, forgets, exports and imports remembered items through the daemon.

Does not own: what is worth keeping (core.memory).
An export is lines of JSON, one item each, in the form that an import and the API take.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
import typer

from palyra.cli.daemon_call import Client, ask_daemon
from palyra.cli.lookup import find_memory
from palyra.cli.options import CommandGroup, expanded, is_json, open_input
from palyra.cli.output import print_json, print_line, print_result
from palyra.cli.terminal.questions import parse_seconds
from palyra.cli.terminal.style import date_time, in_one_line, shown
from palyra.cli.terminal.tables import print_rows
from palyra.core.errors import Invalid, Unavailable
from palyra.core.events.base import JsonObject
from palyra.core.memory.model import BATCH_MAX, ITEMS_PER_PRINCIPAL_MAX, MemoryKind, MemoryScope
from palyra.core.plurals import counted

CONTENT_SHOWN_MAX = 80
LINE_BYTES_MAX = 128 * 1024  # The longest item takes less.
BATCH_BYTES_MAX = 4 * 1024 * 1024  # Well below what the daemon takes in one request.
# The members of an item that an import and the API take.
GIVEN = ("content", "kind", "scope", "scope_id", "source", "metadata", "trust", "taint")
SOURCE = ("conversation", "position", "speaker", "at")
_IDENTIFIED = frozenset({MemoryScope.SESSION, MemoryScope.CHANNEL})  # The others have a default.
_NEXT_STEPS = {"secret": "; palyra secrets set NAME keeps a secret"}  # By the reason of a refusal.

app = CommandGroup(no_args_is_help=True)
MemoryArgument = Annotated[str, typer.Argument(metavar="ID", help="The item's id, the beginning of it, or last.")]
KindOption = Annotated[MemoryKind | None, typer.Option(help="What the item is.")]
ScopeOption = Annotated[MemoryScope | None, typer.Option(help="Where the item counts.")]
ScopeIdOption = Annotated[str | None, typer.Option(metavar="ID", help="The session, agent or channel of --scope.")]


@app.callback()
def group() -> None:
    """Memory: what agents are reminded of in later conversations.

    Examples:

      palyra memory add "The staging server is called heron."
    """


@app.command()
def add(
    context: typer.Context,
    content: Annotated[str, typer.Argument(metavar="TEXT", help="The statement. It should make sense on its own.")],
    kind: KindOption = None,
    scope: ScopeOption = None,
    scope_id: ScopeIdOption = None,
    ttl: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Forget it after this time: 90s, 30m, 2h, 7d.")
    ] = None,
) -> None:
    """Remember one statement.

    Examples:

      palyra memory add "I prefer short answers." --kind preference

      palyra memory add "The release is frozen until Friday." --ttl 3d
    """
    if not content.strip():
        raise typer.BadParameter("the text is empty; say what to remember")
    if scope in _IDENTIFIED and scope_id is None:
        raise typer.BadParameter(f"--scope {scope.value} needs --scope-id")
    wish: dict[str, object] = {
        "content": content,
        "kind": None if kind is None else kind.value,
        "scope": None if scope is None else scope.value,
        "scope_id": scope_id,
        "ttl_s": None if ttl is None else parse_seconds(ttl, "--ttl"),
    }
    body: JsonObject = {member: value for member, value in wish.items() if value is not None}
    answer = ask_daemon(context, lambda client: client.post("/memory", body))
    if is_json(context):
        print_json(answer)
        return
    (added,) = _items(answer)
    print_line(_told(added))
    if added.get("status") == "refused":
        raise typer.Exit(1)


@app.command()
def search(
    context: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A question, or some words.")],
    count: Annotated[int, typer.Option("--count", "-k", min=1, max=100, help="How many at most.")] = 10,
) -> None:
    """Find items, the best match first.

    Examples:

      palyra memory search "what is the staging server called?"

      palyra memory search heron -k 3 --json
    """
    answer = ask_daemon(context, lambda client: client.get("/memory/search", q=query, k=count))
    if is_json(context):
        print_json(answer)
        return
    rows = [(_score(item), item.get("kind"), item.get("id"), _content(item)) for item in _items(answer)]
    print_rows(("score", "kind", "id", "content"), rows, "nothing is remembered about this")


@app.command("list")
def show_all(
    context: typer.Context,
    kind: KindOption = None,
    scope: ScopeOption = None,
    scope_id: ScopeIdOption = None,
    history: Annotated[bool, typer.Option("--history", help="Earlier forms of edited items too.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=ITEMS_PER_PRINCIPAL_MAX, help="How many at most.")] = 200,
) -> None:
    """List your items in the order of their creation.

    Examples:

      palyra memory list --kind preference

      palyra memory list --history --json
    """
    query = _query(kind, scope, scope_id, history)
    found = ask_daemon(context, lambda client: client.items("/memory", limit, **query))
    if is_json(context):
        print_json({"items": found})
        return
    rows = [
        (
            item.get("id"),
            item.get("kind"),
            item.get("scope"),
            item.get("trust"),
            _time(item),
            _status(item),
            _content(item),
        )
        for item in found
    ]
    columns = ("id", "kind", "scope", "trust", "created", "status", "content")
    print_rows(columns, rows, "nothing is remembered; palyra memory add remembers something")


@app.command()
def edit(
    context: typer.Context,
    memory: MemoryArgument,
    content: Annotated[str | None, typer.Argument(metavar="TEXT", help="The new statement.")] = None,
    kind: KindOption = None,
) -> None:
    """Change an item. It gets a new id; the earlier form stays as history until the item is forgotten.

    Examples:

      palyra memory edit 01JXQ0Z7N8E4T5Y6W7V8S9R0QP "The staging server is called egret."
    """
    wish = {"content": content, "kind": None if kind is None else kind.value}
    body: JsonObject = {member: value for member, value in wish.items() if value is not None}
    if not body:
        raise typer.BadParameter("there is nothing to change; give a new text, or --kind")

    async def change(client: Client) -> JsonObject:
        return await client.patch(f"/memory/{await find_memory(client, memory)}", body)

    edited = ask_daemon(context, change)
    print_result(context, edited, f"changed; its id is now {edited.get('id')}")


@app.command()
def forget(
    context: typer.Context,
    memories: Annotated[
        list[str], typer.Argument(metavar="ID...", help="The ids of the items, their beginnings, or last.")
    ],
) -> None:
    """Forget items for good: their text, their history, and what sessions were shown of them.

    Examples:

      palyra memory forget last

      palyra memory forget 01JXQ0Z7N8E4T5Y6W7V8S9R0QP
    """

    async def act(client: Client) -> list[str]:
        meant = list(dict.fromkeys([await find_memory(client, each) for each in memories]))
        for memory in meant:
            await client.delete(f"/memory/{memory}")
        return meant

    forgotten = ask_daemon(context, act)
    print_result(context, {"forgotten": forgotten}, f"forgot {counted(len(forgotten), 'item')}")


@app.command()
def export(
    context: typer.Context,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file.")] = None,
) -> None:
    """Write all items as lines of JSON.

    Examples:

      palyra memory export > memory.jsonl

      palyra memory export -o memory.jsonl
    """
    found = ask_daemon(context, lambda client: client.items("/memory", ITEMS_PER_PRINCIPAL_MAX))
    lines = [msgspec.json.encode(_given(item)) + b"\n" for item in found]
    if output is None:
        sys.stdout.buffer.writelines(lines)
        sys.stdout.buffer.flush()
        return
    target = expanded(output)
    try:
        target.write_bytes(b"".join(lines))
    except OSError as cause:
        raise Unavailable("file_unwritable", f"{target} cannot be written: {cause.strerror}") from cause
    if is_json(context):
        print_json({"items_count": len(lines), "file": str(target)})
        return
    print_line(f"wrote {counted(len(lines), 'item')} to {shown(str(target))}")


@app.command("import")
def import_items(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Lines of JSON, as export writes them; - is the input.")],
) -> None:
    """Remember the items of a file. Those that are known already are left out, so it can be repeated.

    Examples:

      palyra memory import memory.jsonl
    """
    with ExitStack() as opened:
        source = sys.stdin.buffer if file == "-" else opened.enter_context(open_input(expanded(Path(file))))
        batches = list(_batches(source))

    async def act(client: Client) -> list[JsonObject]:
        return [item for batch in batches for item in _items(await client.post("/memory", {"items": batch}))]

    added = ask_daemon(context, act)
    counts = {
        status: sum(item.get("status") == status for item in added) for status in ("stored", "duplicate", "refused")
    }
    if is_json(context):
        print_json({**counts, "items": added})
        return
    print_line(", ".join(f"{count} {status}" for status, count in counts.items() if count) or "the file has no items")


def _query(
    kind: MemoryKind | None, scope: MemoryScope | None, scope_id: str | None, has_history: bool
) -> dict[str, str | int]:
    wanted = {
        "kind": None if kind is None else kind.value,
        "scope": None if scope is None else scope.value,
        "scope_id": scope_id,
        "superseded": "true" if has_history else None,
    }
    return {name: value for name, value in wanted.items() if value is not None}


def _batches(file: BinaryIO) -> Iterator[list[JsonObject]]:
    """Yields the items in requests of bounded size."""
    batch: list[JsonObject] = []
    size_bytes = 0
    for number, line in enumerate(iter(lambda: file.readline(LINE_BYTES_MAX + 1), b""), 1):
        if not line.strip():
            continue
        if len(batch) == BATCH_MAX or size_bytes + len(line) > BATCH_BYTES_MAX:
            yield batch
            batch, size_bytes = [], 0
        batch.append(_read_line(line, number))
        size_bytes += len(line)
    if batch:
        yield batch


def _read_line(line: bytes, number: int) -> JsonObject:
    message = f"line {number} is no item as palyra memory export writes it"
    if len(line) > LINE_BYTES_MAX:
        raise Invalid("import_line_invalid", message)
    try:
        item = _given(msgspec.json.decode(line, type=dict[str, object]))
    except (msgspec.DecodeError, UnicodeDecodeError) as cause:
        raise Invalid("import_line_invalid", message) from cause
    if not item.get("content"):
        raise Invalid("import_line_invalid", f"{message}: it has no content")
    return item


def _given(item: JsonObject) -> JsonObject:
    """Returns what of an item can be given again. Ids and times are the daemon's; trust never rises on the way (L8)."""
    given = {name: item[name] for name in GIVEN if item.get(name) is not None}
    source = given.get("source")
    if isinstance(source, dict):
        given["source"] = {name: source[name] for name in SOURCE if source.get(name) is not None}
    if given.get("scope", MemoryScope.PRINCIPAL.value) == MemoryScope.PRINCIPAL.value:
        given.pop("scope_id", None)
    return given


def _items(answer: JsonObject) -> list[JsonObject]:
    items = answer.get("items")
    return items if isinstance(items, list) else []


def _told(added: JsonObject) -> str:
    reason = f" ({shown(str(added['reason']))})" if added.get("reason") else ""
    match added.get("status"):
        case "stored":
            return f"remembered {added.get('id')}"
        case "duplicate":
            return f"known already: {added.get('id')}"
        case "review":
            return f"waits for review{reason}"
        case _:
            return f"refused{reason}{_NEXT_STEPS.get(str(added.get('reason')), '')}"


def _score(item: JsonObject) -> str:
    score = item.get("score")
    return f"{score:.2f}" if isinstance(score, int | float) else ""


def _content(item: JsonObject) -> str:
    return in_one_line(str(item.get("content") or ""), CONTENT_SHOWN_MAX)


def _time(item: JsonObject) -> str:
    at_ms = item.get("created_at_ms")
    return date_time(at_ms) if isinstance(at_ms, int) else ""


def _status(item: JsonObject) -> str:
    by = item.get("superseded_by")
    return f"superseded by {by}" if by else str(item.get("status") or "")
