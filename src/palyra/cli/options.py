"""Options that several commands share: their names, their help texts, and reading them."""

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TypeVar

import msgspec
import typer
from msgspec.structs import replace

from palyra.app import Home
from palyra.cli.target import UrlOption
from palyra.core.errors import NotFound

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON value instead of text.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


class GlobalOptions(msgspec.Struct, frozen=True):
    """The options given before the command's name."""

    home: Home
    is_json: bool
    url: str | None = None


Act = TypeVar("Act", bound=Callable[..., Any])


class CommandGroup(typer.Typer):
    """Commands that take `--url` and `--json` besides the options of their own, unless they say that they do not."""

    def command(
        self, name: str | None = None, *, url: bool = True, json: bool = True, **settings: Any
    ) -> Callable[[Act], Act]:
        register = super().command(name, **settings)

        def add(act: Act) -> Act:
            register(_with_shared(act, ({"url": UrlOption} if url else {}) | ({"json": JsonOption} if json else {})))
            return act

        return add


def _with_shared(act: Callable[..., Any], shared: dict[str, Any]) -> Callable[..., Any]:
    """Returns a command with the shared options, as typer reads them: from a signature."""

    @wraps(act)
    def run(context: typer.Context, **given: Any) -> None:
        taken = {name: given.pop(name) for name in shared}
        choose(context, taken.get("url"), taken.get("json", False))
        act(context, **given)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    defaults = {"url": None, "json": False}
    own = inspect.signature(act).parameters.values()
    more = [inspect.Parameter(name, kind, default=defaults[name], annotation=shared[name]) for name in shared]
    run.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]
    run.__annotations__ = {**act.__annotations__, **shared}
    return run


def choose(context: typer.Context, url: str | None, json: bool) -> None:
    """Keeps the options that a command was given, for `chosen_url` and `is_json`."""
    chosen = _choice(context)
    context.obj = replace(chosen, url=url, is_json=chosen.is_json or json)


def home_of(context: typer.Context) -> Home:
    return _choice(context).home


def is_json(context: typer.Context) -> bool:
    """`--json` counts before and after the command's name."""
    return _choice(context).is_json


def chosen_url(context: typer.Context) -> str | None:
    return _choice(context).url


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
