"""`palyra plugins`: shows what a plugin asks for before it is installed, lists plugins and removes them.

Does not own: installing (adapters.runtimes.wasm).
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from palyra.cli.options import CommandGroup, YesOption, expanded, home_of, is_json
from palyra.cli.output import print_json, print_line, print_result, print_table

if TYPE_CHECKING:
    from palyra.app.plugins import PluginRow

app = CommandGroup(no_args_is_help=True)


@app.callback()
def group() -> None:
    """WASM plugins of this home: your own tools, in a sandbox.

    Examples:

      palyra plugins install ./textstats
    """


@app.command("install", url=False)
def install_plugin(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(help="A folder with plugin.toml and the .wasm, or a .zip of it.")],
    replace: Annotated[bool, typer.Option("--replace", help="Replace a plugin of the same name.")] = False,
    yes: YesOption = False,
) -> None:
    """Check a plugin, show what it asks for, and install it. A running daemon loads it by itself.

    The module is compiled and started once, and its SHA-256 is pinned. A module that changes later is refused.

    Examples:

      palyra plugins install ./textstats

      palyra plugins install textstats.zip --yes
    """
    from palyra.app.plugins import install, look_at, make_row

    candidate = look_at(expanded(path))
    row = make_row(candidate.manifest, candidate.sha256)
    if not is_json(context):
        print_table(_facts(row))
    if not yes:
        typer.confirm(f"Install {row.name} {row.version}?", abort=True, err=True)
    install(home_of(context), candidate, replace)
    if is_json(context):
        print_json({"ok": True, "plugin": row})
    else:
        print_line(f"{row.name} {row.version} is installed; its tools ask before they run, until a policy allows them")


@app.command("list", url=False)
def list_all(context: typer.Context) -> None:
    """List plugins with their tools and what they may use. Broken plugins are listed with the reason.

    Examples:

      palyra plugins list --json
    """
    from palyra.app.plugins import list_plugins
    from palyra.cli.terminal.tables import print_rows

    found = list_plugins(home_of(context))
    if is_json(context):
        print_json({"items": found.rows, "next_after": None, "broken": found.broken})
        return
    rows = [(row.name, row.version, _granted(row), _tools(row)) for row in found.rows]
    broken = [
        (each.name.removeprefix("wasm.").split(".")[0], "", "", f"broken: {each.reason}") for each in found.broken
    ]
    print_rows(
        ("name", "version", "may use", "tools"),
        [*rows, *broken],
        "there are no plugins; palyra plugins install PATH adds one",
    )


@app.command("remove", url=False)
def remove_plugin(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(help="The plugin's name, as palyra plugins list shows it.", show_default=False)
    ],
) -> None:
    """Remove a plugin. A running daemon unloads its tools by itself.

    Examples:

      palyra plugins remove textstats
    """
    from palyra.app.plugins import remove

    remove(home_of(context), name)
    print_result(context, {"ok": True, "name": name}, f"{name} is removed")


def _facts(row: "PluginRow") -> list[tuple[str, object]]:
    tools = [(f"tool wasm.{row.name}.{each['name']}", _said(each)) for each in row.functions]
    return [
        ("plugin", f"{row.name} {row.version}"),
        ("description", row.description),
        ("sha256", row.sha256),
        ("may use", _granted(row)),
        ("limits", f"{row.fuel} fuel, {row.memory_mib} MiB, {row.timeout_s:g} s"),
        *tools,
    ]


def _said(function: dict[str, str]) -> str:
    return f"{function['effect_class']}: {function['description']}"


def _granted(row: "PluginRow") -> str:
    return ", ".join(row.capabilities) or "nothing"


def _tools(row: "PluginRow") -> str:
    return ", ".join(f"wasm.{row.name}.{each['name']}" for each in row.functions)
