"""Options that several commands share: their names, their help texts, and reading them."""

from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
import typer

from palyra.app import Home
from palyra.core.errors import NotFound

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON value instead of text.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


class GlobalOptions(msgspec.Struct, frozen=True):
    """The options given before the command's name."""

    home: Home
    is_json: bool


def home_of(context: typer.Context) -> Home:
    return _choice(context).home


def is_json(context: typer.Context, own: bool) -> bool:
    """`--json` counts before and after the command's name."""
    return own or _choice(context).is_json


def _choice(context: typer.Context) -> GlobalOptions:
    choice = context.find_object(GlobalOptions)
    if choice is None:
        raise typer.BadParameter("no home was chosen")
    return choice


def expanded(path: Path) -> Path:
    return path.expanduser().absolute()


def open_input(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as cause:
        raise NotFound("file_unreadable", f"{path} cannot be read: {cause.strerror}") from cause
