"""`palyra mcp`: shows what the tools of an MCP server say before they are accepted, and adds and removes servers.

Without a subcommand it is `palyra mcp-server`, for a program that starts it; a person at a terminal gets the help.
Does not own: asking servers (app.mcp_servers), serving clients (cli.commands.editor).
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from palyra.cli.commands.editor import forward_mcp
from palyra.cli.options import CommandGroup, YesOption, home_of, is_json
from palyra.cli.output import print_json, print_line, print_notice, print_result
from palyra.core.errors import Invalid
from palyra.core.plurals import counted

if TYPE_CHECKING:
    from palyra.app.mcp_servers import McpLook, McpToolRow
    from palyra.config.section_text import Value

app = CommandGroup()

NameArgument = Annotated[str, typer.Argument(help="The server's name.", show_default=False)]


@app.callback(invoke_without_command=True)
def group(context: typer.Context) -> None:
    """MCP servers of this home: what their tools say, and what you accepted of it.

    An MCP client that starts `palyra mcp` itself is served, as with `palyra mcp-server`.

    Examples:

      palyra mcp add time -- uvx mcp-server-time

      palyra mcp accept time
    """
    if context.invoked_subcommand is not None:
        return
    if sys.stdin.isatty():
        typer.echo(context.get_help())
        raise typer.Exit(2)
    forward_mcp(context)


@app.command("add", url=False)
def add_server(
    context: typer.Context,
    name: NameArgument,
    command: Annotated[list[str] | None, typer.Argument(help="The program and its arguments, after --.")] = None,
    url: Annotated[str | None, typer.Option("--url", help="The address of a server, in place of a program.")] = None,
    token: Annotated[str | None, typer.Option("--token", help="A secret for the address: vault:NAME.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", help="NAME=VALUE for the program. Repeatable.")] = None,
    read_only: Annotated[
        list[str] | None, typer.Option("--read-only", help="Tools that change nothing, such as get_*. Repeatable.")
    ] = None,
    yes: YesOption = False,
) -> None:
    """Ask a server for its tools, show them, and add the server to palyra.toml. Restart the daemon afterwards.

    What was shown is accepted. A tool that says something else later is not used until you accept it again.

    Examples:

      palyra mcp add time --read-only 'get_*' -- uvx mcp-server-time

      palyra mcp add tracker --url https://mcp.example.com/mcp --token vault:tracker
    """
    from palyra.app.mcp_servers import add, look_at_new

    values = _values(name, command, url, token, _pairs(env or []))
    if read_only:
        values["read_only"] = read_only
    look = look_at_new(home_of(context), values)
    _confirm(look, f"Add {name} and accept these tools?", is_quiet=yes, is_json=is_json(context))
    add(home_of(context), values, look)
    _tell(context, look, f"{name} is added with {counted(len(look.tools), 'tool')}; restart the daemon to use it")


@app.command("accept", url=False)
def accept_server(context: typer.Context, name: NameArgument, yes: YesOption = False) -> None:
    """Show what the tools of a server say now, and accept it. A running daemon takes it over by itself.

    Until you accept it, a session that can use the server counts as tainted by it, and changed tools are left out.

    Examples:

      palyra mcp accept time
    """
    from palyra.app.mcp_servers import accept, look_at_configured

    look = look_at_configured(home_of(context), name)
    _confirm(look, f"Accept these tools of {name}?", is_quiet=yes, is_json=is_json(context))
    accept(home_of(context), look)
    _tell(context, look, f"accepted as they are now: {counted(len(look.tools), 'tool')} of {name}")


@app.command("list", url=False)
def list_all(context: typer.Context) -> None:
    """List the configured servers and how many of their tools you accepted. `palyra tools` shows their tools.

    Examples:

      palyra mcp list
    """
    from palyra.app.mcp_servers import list_servers
    from palyra.cli.terminal.tables import print_rows

    rows = list_servers(home_of(context))
    if is_json(context):
        print_json({"items": rows, "next_after": None})
        return
    shown = [(row.name, row.address, str(row.accepted_count)) for row in rows]
    print_rows(("name", "address", "accepted tools"), shown, "there are no MCP servers; palyra mcp add adds one")


@app.command("remove", url=False)
def remove_server(context: typer.Context, name: NameArgument) -> None:
    """Remove a server from palyra.toml, and forget what you accepted of it. Restart the daemon afterwards.

    Examples:

      palyra mcp remove time
    """
    from palyra.app.mcp_servers import remove

    remove(home_of(context), name)
    print_result(context, {"ok": True, "name": name}, f"{name} is removed; restart the daemon to end it")


def _values(
    name: str, command: list[str] | None, url: str | None, token: str | None, env: dict[str, str]
) -> "dict[str, Value]":
    if bool(command) == bool(url):
        raise Invalid("mcp_target", "name either a program after -- or an address with --url")
    values: dict[str, Value] = {"name": name}
    if command:
        values["command"] = command
    if url:
        values["url"] = url
    if token:
        values["token"] = token
    return {**values, "env": env} if env else values


def _pairs(texts: list[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    if not all(sign and key for key, sign, _ in pairs):
        raise Invalid("env_invalid", "write variables as NAME=VALUE, such as --env TOKEN=vault:tracker")
    return {key: value for key, _, value in pairs}


def _confirm(look: "McpLook", question: str, *, is_quiet: bool, is_json: bool) -> None:
    """Shows the tools before it asks. With --json they are shown on standard error, and are the result in any case."""
    say = print_notice if is_json else print_line
    if not (is_json and is_quiet):
        for row in look.tools:
            _show(row, say)
        for words in look.left_out:
            say(f"left out: {words}")
    if not is_quiet:
        typer.confirm(question, abort=True, err=True)


def _show(row: "McpToolRow", say: Callable[[str], None]) -> None:
    from palyra.core.spelling import spell_out

    say(f"{row.name}  ({row.effect_class}, {row.status})")
    for line in row.description.splitlines() or ["no description"]:
        say(f"    {spell_out(line)}")
    for words in _schema_lines(row.input_schema):
        say(f"    {spell_out(words)}")


def _schema_lines(schema: dict[str, object]) -> list[str]:
    """Returns everything that a model reads of a schema: each argument, then what stands beside the arguments."""
    import msgspec

    properties = schema.get("properties")
    arguments = properties if isinstance(properties, dict) else {}
    lines = [f"{name}: {msgspec.json.encode(each).decode()}" for name, each in arguments.items()]
    beside = {key: each for key, each in schema.items() if key not in ("type", "properties")}
    return [*lines, f"beside the arguments: {msgspec.json.encode(beside).decode()}"] if beside else lines


def _tell(context: typer.Context, look: "McpLook", words: str) -> None:
    if is_json(context):
        print_json({"ok": True, "server": look.server, "tools": look.tools, "left_out": look.left_out})
    else:
        print_line(words)
