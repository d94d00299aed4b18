"""What commands print: text for people, JSON for programs, errors in one form.

Does not own: what is said (commands).
Invariant: results go to standard output, everything else to standard error, so that results can be piped.
"""

import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec
import typer
from typer.core import TyperGroup

from palyra.cli.options import is_json
from palyra.cli.terminal.word_wrap import fit, wrap
from palyra.core.errors import PalyraError
from palyra.core.spelling import spell_json, spell_out

HELP_LENGTH_MAX = 300
_COLOURS = re.compile(r"(\x1b\[(?:0|1|2|31|32|33|36)m)")  # Those that cli.terminal.style writes.


class PalyraGroup(TyperGroup):
    """Prints our errors as `error: <code>: <message>` and exits with 1; wrong usage exits with 2."""

    def invoke(self, ctx: Any) -> Any:  # Typer's context; its module differs between releases.
        try:
            return super().invoke(ctx)
        except typer.BadParameter as wrong:
            wrong.message = wrong.message.removeprefix("Value error, ")  # The words of a library, not of ours.
            raise
        except PalyraError as error:
            typer.echo(fit(printable(f"error: {error}"), sys.stderr), err=True)
            raise typer.Exit(1) from error

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Lists the commands with their whole first sentences. Typer would cut them to one line."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, each.get_short_help_str(HELP_LENGTH_MAX)) for name, each in commands if each and not each.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


class Advance(Protocol):
    def __call__(self, done: int, total: int | None = None) -> None: ...


def print_json(value: object) -> None:
    """Prints JSON with invisible characters escaped: the value is the same, and it is harmless on a terminal."""
    typer.echo(spell_json(msgspec.json.encode(value).decode("utf-8")))


def print_line(text: str) -> None:
    typer.echo(fit(printable(text), sys.stdout))


def print_result(context: typer.Context, value: object, line: str) -> None:
    """Prints the value as JSON if that was asked for, else the line."""
    if is_json(context):
        print_json(value)
    else:
        print_line(line)


def print_notice(text: str) -> None:
    """Prints a line that is no result."""
    typer.echo(fit(printable(text), sys.stderr), err=True)


def print_styled(text: str) -> None:
    """Prints one line that has our own colours. Every other invisible character in it is spelled out all the same."""
    parts = _COLOURS.split(text)
    typer.echo("".join(part if number % 2 else printable(part) for number, part in enumerate(parts)))


def print_table(rows: Sequence[tuple[str, object]]) -> None:
    """Prints a name and a value in each line. On a terminal, further lines of a value begin below its first."""
    width = max(len(name) for name, _ in rows)
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for name, value in rows:
        line = printable(f"{name.ljust(width)}  {value}")
        for each in [line] if columns is None else wrap(line, columns, " " * (width + 2)):
            typer.echo(each)


def printable(text: str) -> str:
    """Returns stored text in one line with invisible characters spelled out, because anyone may have written it."""
    return spell_out(text)


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Advance]:
    """Shows a progress bar on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        yield _in_silence
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)

        def advance(done: int, total: int | None = None) -> None:
            bar.update(task, completed=done, total=total)  # A total of None keeps the present one.

        yield advance


def _in_silence(done: int, total: int | None = None) -> None:
    """Drops the progress, because no terminal shows it."""
