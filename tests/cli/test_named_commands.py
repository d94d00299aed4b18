"""Messages name commands that exist: whatever a text of the source calls `palyra …` is a command of this release."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import typer
from typer.testing import CliRunner

from palyra.cli.main import app

SOURCE = Path(__file__).parents[2] / "src" / "palyra"
# A command as messages write it: in backticks, after "run:", or in the examples of a help text.
NAMED = re.compile(r"(?:`|run: |\n {6,})palyra((?: [a-z][a-z-]+)+)")


def texts() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield str(path.relative_to(SOURCE)), node.value


def missing_word(words: str) -> str | None:
    """Returns the first word that names no command; words behind a command without further ones are its arguments."""
    command: object = typer.main.get_command(app)
    for word in words.split():
        below = getattr(command, "commands", None)
        if below is None:
            return None
        if word not in below:
            return word
        command = below[word]
    return None


def test_commands_that_texts_name_exist() -> None:
    names = {(place, match.group(1).strip()) for place, text in texts() for match in NAMED.finditer(text)}
    assert len(names) > 50
    assert [f"{place}: palyra {words}" for place, words in sorted(names) if missing_word(words) is not None] == []


def test_a_command_that_does_not_exist_is_found() -> None:
    assert missing_word("sessions forget") == "forget"
    assert missing_word("approvals allow last") is None


def test_the_list_of_commands_cuts_no_sentence() -> None:
    for arguments in ([], ["policy"]):
        told = CliRunner().invoke(app, [*arguments, "--help"], terminal_width=80).stdout
        assert "..." not in told.partition("Commands:")[2]
