"""`palyra tools`: lists the daemon's tools, and the unavailable ones with the reason.

Does not own: which tools exist (app).
"""

import sys

import typer

from palyra.cli.daemon_call import Client, ask_daemon
from palyra.cli.options import CommandGroup, is_json
from palyra.cli.output import print_json
from palyra.cli.terminal.style import in_one_line, style_for
from palyra.cli.terminal.tables import print_rows
from palyra.cli.terminal.word_wrap import fit
from palyra.core.events.base import JsonObject

NAME_LENGTH_MAX = 80
REASON_LENGTH_MAX = 300
_COLUMNS = ("name", "class", "risk", "runtime", "capabilities", "trust of output")

app = CommandGroup()


@app.command("tools")
def show_all(context: typer.Context) -> None:
    """List the daemon's tools, and those that are unavailable now with the reason.

    Examples:

      palyra tools

      palyra tools --json
    """
    found = ask_daemon(context, _list_tools)
    if is_json(context):
        print_json({"items": found})
        return
    print_rows(_COLUMNS, [_row(tool) for tool in found if tool.get("available") is not False], "no tools")
    style = style_for(sys.stdout)
    for tool in found:
        if tool.get("available") is False:
            name = style.bold(in_one_line(str(tool.get("name")), NAME_LENGTH_MAX))
            reason = in_one_line(str(tool.get("reason")), REASON_LENGTH_MAX)
            typer.echo(fit(f"{style.red('✗')} {name}  {reason}", sys.stdout))


async def _list_tools(client: Client) -> list[JsonObject]:
    items = (await client.get("/tools")).get("items")
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _row(tool: JsonObject) -> tuple[object, ...]:
    capabilities = tool.get("capabilities")
    return (
        tool.get("name"),
        tool.get("effect_class"),
        tool.get("risk"),
        tool.get("runtime"),
        ", ".join(map(str, capabilities)) if isinstance(capabilities, list) else None,
        tool.get("output_trust"),
    )
