"""`palyra skills`: lists skills, shows one, and changes its status, through the daemon.

Does not own: what a skill is (core.skills).
"""

import sys
from typing import Annotated
from urllib.parse import quote

import typer

from palyra.cli.daemon_call import Client, ask_daemon
from palyra.cli.options import CommandGroup, JsonOption, choose, is_json
from palyra.cli.output import print_json, print_line
from palyra.cli.target import UrlOption
from palyra.cli.terminal.style import Style, in_one_line, member_text, shown, style_for
from palyra.cli.terminal.tables import print_rows
from palyra.core.events.base import JsonObject
from palyra.core.skills import SkillPlace

DESCRIPTION_SHOWN_MAX = 80
_COLUMNS = ("name", "place", "status", "trust", "description")

app = CommandGroup()

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The skill's name, as skills list shows it.")]
AgentOption = Annotated[
    str | None, typer.Option(metavar="AGENT", help="Use this agent's workspaces, not the default one's.")
]
PlaceOption = Annotated[
    SkillPlace | None, typer.Option(help="The skill's place, if several places have one of this name.")
]
HashOption = Annotated[
    str | None,
    typer.Option("--sha256", metavar="HEX", help="Only if it still has this hash, as skills show prints it."),
]


@app.callback(invoke_without_command=True)
def group(context: typer.Context, url: UrlOption = None, json: JsonOption = False) -> None:
    """Skills: written procedures for agents, and which of them may be used. Without a command it lists them.

    Examples:

      palyra skills

      palyra skills show investigate-failure
    """
    if context.invoked_subcommand is None:
        choose(context, url, json)
        show_all(context, None)


@app.command("list")
def show_all(context: typer.Context, agent: AgentOption = None) -> None:
    """List skills: those of the home, those that come with Palyra, and those in the agent's workspaces.

    Examples:

      palyra skills list

      palyra skills list --agent coder --json
    """
    found = ask_daemon(context, lambda client: _list(client, agent))
    if is_json(context):
        print_json({"items": found})
        return
    print_rows(_COLUMNS, [_row(skill) for skill in found], "there are no skills; docs/skills.md shows how to write one")
    for skill in found:
        _print_remarks(skill)


@app.command()
def show(context: typer.Context, name: NameArgument, agent: AgentOption = None, place: PlaceOption = None) -> None:
    """Show a skill: its facts, its files and its instructions. Invisible characters are shown as ?.

    Examples:

      palyra skills show investigate-failure

      palyra skills show deploy --place workspace --agent coder
    """
    skill = ask_daemon(context, lambda client: _get(client, name, agent, place))
    if is_json(context):
        print_json(skill)
        return
    _print_skill(skill)


@app.command()
def enable(
    context: typer.Context,
    name: NameArgument,
    agent: AgentOption = None,
    place: PlaceOption = None,
    sha256: HashOption = None,
) -> None:
    """Allow a skill to be used. A skill of a workspace is accepted as it is now; a change of its files ends that.

    Examples:

      palyra skills enable deploy

      palyra skills enable deploy --place workspace --sha256 4f2c…
    """
    _change(context, name, {"status": "active", "agent": agent, "place": _word(place), "sha256": sha256})


@app.command()
def disable(context: typer.Context, name: NameArgument, agent: AgentOption = None, place: PlaceOption = None) -> None:
    """Disable a skill. Agents are not offered it and cannot open it.

    Examples:

      palyra skills disable careful-refactor
    """
    _change(context, name, {"status": "disabled", "agent": agent, "place": _word(place)})


@app.command()
def quarantine(
    context: typer.Context, name: NameArgument, agent: AgentOption = None, place: PlaceOption = None
) -> None:
    """Quarantine a skill that you do not trust. Agents are not offered it and cannot open it, even after it changes.

    Examples:

      palyra skills quarantine deploy --place workspace
    """
    _change(context, name, {"status": "quarantined", "agent": agent, "place": _word(place)})


def _change(context: typer.Context, name: str, wish: JsonObject) -> None:
    body = {member: value for member, value in wish.items() if value is not None}
    skill = ask_daemon(context, lambda client: client.patch(_path(name), body))
    if is_json(context):
        print_json(skill)
        return
    style = style_for(sys.stdout)
    typer.echo(f"{style.bold(member_text(skill, 'name'))} ({_where(skill)}) is {_status(skill, style)}")


async def _list(client: Client, agent: str | None) -> list[JsonObject]:
    items = (await client.get("/skills", **_query(agent))).get("items")
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


async def _get(client: Client, name: str, agent: str | None, place: SkillPlace | None) -> JsonObject:
    return await client.get(_path(name), **_query(agent, place))


def _path(name: str) -> str:
    return f"/skills/{quote(name, safe='')}"


def _query(agent: str | None, place: SkillPlace | None = None) -> dict[str, str | int]:
    said = {"agent": agent, "place": _word(place)}
    return {member: value for member, value in said.items() if value is not None}


def _word(place: SkillPlace | None) -> str | None:
    return place.value if place is not None else None


def _row(skill: JsonObject) -> tuple[object, ...]:
    return (
        skill.get("name"),
        skill.get("place"),
        "broken" if skill.get("problem") else skill.get("status"),
        skill.get("trust"),
        in_one_line(member_text(skill, "description"), DESCRIPTION_SHOWN_MAX),
    )


def _print_remarks(skill: JsonObject) -> None:
    """Prints remarks below the table, so that its columns stay narrow."""
    style = style_for(sys.stdout)
    name = in_one_line(member_text(skill, "name"), DESCRIPTION_SHOWN_MAX)
    if skill.get("problem"):
        typer.echo(f"{style.red('✗')} {name}: {shown(member_text(skill, 'problem'))}")
    elif skill.get("place") == "workspace" and skill.get("status") == "quarantined":
        typer.echo(f"{style.yellow('!')} {name}: {'; '.join(_words(skill, 'notes')) or 'quarantined'}")


def _print_skill(skill: JsonObject) -> None:
    style = style_for(sys.stdout)
    typer.echo(f"{style.bold(member_text(skill, 'name'))}  {_status(skill, style)}  {style.dim(_where(skill))}")
    print_line(in_one_line(member_text(skill, "description"), 2_000))
    lines = [
        ("trust", member_text(skill, "trust")),
        ("sha256", member_text(skill, "sha256")),
        ("allows", _allows(skill)),
        ("of these unknown here", ", ".join([*_words(skill, "unknown_tools"), *_words(skill, "missing_tools")])),
        ("files", ", ".join(_file(each) for each in _files(skill))),
    ]
    for title, value in lines:
        if value:
            typer.echo(f"{style.dim(title)}: {shown(value)}")
    for note in _words(skill, "notes"):
        typer.echo(f"{style.yellow('!')} {note}")
    if skill.get("problem"):
        typer.echo(f"{style.red('✗')} {shown(member_text(skill, 'problem'))}")
    if member_text(skill, "body"):
        typer.echo(f"\n{shown(member_text(skill, 'body'))}")
    if skill.get("place") == "workspace" and skill.get("status") != "active" and not skill.get("problem"):
        name, sha256 = member_text(skill, "name"), member_text(skill, "sha256")
        typer.echo(f"\nto accept exactly this: palyra skills enable {name} --place workspace --sha256 {sha256}")


def _allows(skill: JsonObject) -> str:
    if skill.get("allowed_tools") is None:
        return "whatever the agent may use"
    return ", ".join(_words(skill, "allowed_tools")) or "no tool"


def _status(skill: JsonObject, style: Style) -> str:
    if skill.get("problem"):
        return style.red("broken")
    status = member_text(skill, "status")
    return {"active": style.green, "quarantined": style.yellow}.get(status, style.dim)(status)


def _where(skill: JsonObject) -> str:
    root = skill.get("root")
    return f"{member_text(skill, 'place')} {shown(root)}" if isinstance(root, str) else member_text(skill, "place")


def _files(skill: JsonObject) -> list[JsonObject]:
    files = skill.get("files")
    return [each for each in files if isinstance(each, dict)] if isinstance(files, list) else []


def _file(file: JsonObject) -> str:
    return f"{file.get('path')} ({file.get('bytes')} bytes)"


def _words(skill: JsonObject, member: str) -> list[str]:
    words = skill.get(member)
    return [shown(str(word)) for word in words] if isinstance(words, list) else []
