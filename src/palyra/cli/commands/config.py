"""`palyra config`: shows and checks the configuration. Does not own: reading it (palyra.config)."""

import os
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from palyra.app import Home
from palyra.cli.options import CommandGroup, home_of, is_json
from palyra.cli.output import print_json, print_line, printable
from palyra.core.plurals import counted

if TYPE_CHECKING:
    from palyra.config import Config, ConfigProblem, Section

app = CommandGroup(no_args_is_help=True)


@app.callback()
def group() -> None:
    """The configuration: palyra.toml and environment variables.

    Examples:

      palyra config check
    """


@app.command(url=False)
def show(context: typer.Context) -> None:
    """Print the configuration in force as TOML, with defaults and variables. Secrets are shown as references.

    Examples:

      palyra config show

      palyra config show --json
    """
    config = load_or_explain(home_of(context))
    if is_json(context):
        print_json(members_of(config))
    else:
        typer.echo(to_toml(config), nl=False)


@app.command(url=False)
def check(context: typer.Context) -> None:
    """Check the file and the variables, and print every problem with its line.

    Examples:

      palyra config check
    """
    home = home_of(context)
    problems, warnings = find_problems(home)
    if is_json(context):
        path = str(config_file(home))
        print_json({"ok": not problems, "path": path, "problems": problems, "warnings": warnings})
    else:
        for problem in problems:
            print_line(str(problem))
        for warning in warnings:
            print_line(warning_line(warning))
        print_line(counted(len(problems), "problem") if problems else "all is well")
    if problems:
        raise typer.Exit(1)


@app.command(url=False)
def path(context: typer.Context) -> None:
    """Print the path of the configuration file.

    Examples:

      $EDITOR "$(palyra config path)"
    """
    file = config_file(home_of(context))
    if is_json(context):
        print_json({"path": str(file), "exists": file.is_file()})
    else:
        typer.echo(str(file))


@app.command(url=False)
def example(context: typer.Context) -> None:
    """Print an example file with every section and key.

    Examples:

      palyra config example | less
    """
    from palyra.config.example import EXAMPLE

    if is_json(context):
        print_json({"text": EXAMPLE})
    else:
        typer.echo(EXAMPLE, nl=False)


def config_file(home: Home) -> Path:
    from palyra.config import FILE_NAME

    return home.root / FILE_NAME


def load_or_explain(home: Home) -> "Config":
    """Returns the configuration. If it is wrong, prints each problem on its own line and exits with code 1."""
    from palyra.config import ConfigInvalid, load

    try:
        return load(home.root, os.environ)
    except ConfigInvalid as error:
        for problem in error.problems:
            typer.echo(printable(f"error: {problem}"), err=True)
        raise typer.Exit(1) from error


def find_problems(home: Home) -> tuple[tuple["ConfigProblem", ...], tuple["ConfigProblem", ...]]:
    """Returns the problems that keep the daemon from starting, and those it would warn of."""
    from palyra.config import ConfigInvalid, load

    try:
        return look_further(home, load(home.root, os.environ))
    except ConfigInvalid as error:
        return error.problems, ()


def look_further(home: Home, config: "Config") -> tuple[tuple["ConfigProblem", ...], tuple["ConfigProblem", ...]]:
    """Does the same for a configuration that could be read. `palyra serve` says this, word for word."""
    from palyra.app.start_checks import start_problems, start_warnings
    from palyra.config import ConfigProblem

    def problem(what: str) -> ConfigProblem:
        return ConfigProblem(source=str(config_file(home)), line=None, where="", what=what)

    warnings = map(problem, start_warnings(home, config, os.environ))
    return tuple(map(problem, start_problems(home, config))), tuple(warnings)


def warning_line(warning: "ConfigProblem") -> str:
    """Returns a warning in the words that `config check` and the start of the daemon share."""
    return f"warning: {warning}"


def members_of(config: "Config") -> dict[str, Any]:
    """Returns the sections by their names in the file, without members that are not set."""
    from palyra.config import Section

    members: dict[str, Any] = {}
    for name, attribute in zip(config.__struct_encode_fields__, config.__struct_fields__, strict=True):
        value = getattr(config, attribute)
        if isinstance(value, Section):
            members[name] = _table(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], Section):
            members[name] = [_table(each) for each in value]
    return members


def to_toml(config: "Config") -> str:
    lines: list[str] = []
    for name, value in members_of(config).items():
        tables = value if isinstance(value, list) else [value]
        header = f"[[{name}]]" if isinstance(value, list) else f"[{name}]"
        for table in tables:
            lines += [header, *(f"{key} = {_toml(each)}" for key, each in table.items()), ""]
    return "\n".join(lines)


def _table(section: "Section") -> dict[str, Any]:
    values = {name: _plain(getattr(section, name)) for name in section.__struct_fields__}
    return {name: value for name, value in values.items() if value is not None}


def _plain(value: Any) -> Any:
    from palyra.config import ListenAddress, SecretRef

    if isinstance(value, Enum):
        return value.value
    if isinstance(value, ListenAddress | SecretRef):
        return str(value)
    if isinstance(value, dict):
        return {_plain(key): _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _toml(value: Any) -> str:
    import json

    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
