"""Tables on a terminal: no word is split and no line is cut, however narrow it is."""

import re
import sys

import pytest

from palyra.cli.output import print_line, print_table
from palyra.cli.terminal.tables import print_rows

COLUMNS = ("name", "when", "state", "prompt")
ROWS = (
    ("morning", "30 7 * * 1-5 (Europe/Prague)", "active", "What is on today?"),
    ("sweep", "every 3600 s", "", "Tidy"),
)
COLOURS = re.compile("\x1b\\[[0-9]+m")


def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int) -> str:
    """Returns what is on the screen: colours are drawn, everything else is text."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_rows(COLUMNS, ROWS, "nothing")
    return COLOURS.sub("", capsys.readouterr().out)


@pytest.mark.parametrize("width", [30, 45, 46, 47, 50, 60, 200])
def test_no_word_is_split_and_no_line_is_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    table = printed(monkeypatch, capsys, width)
    for word in " ".join([*COLUMNS[1:], *(" ".join(row) for row in ROWS)]).split():
        assert re.search(rf"(^|\s){re.escape(word)}(\s|$)", table)
    assert all(len(line) <= width for line in table.splitlines())


@pytest.mark.parametrize("width", [30, 80])
def test_values_and_lines_are_broken_between_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    why = "A program outside the sandbox runs or obeys what is written there, so writing it asks."
    print_table([("id", 1), ("why", why)])
    first, *rest = capsys.readouterr().out.splitlines()[1:]
    assert " ".join([first.removeprefix("why  "), *(line.removeprefix("     ") for line in rest)]) == why
    print_line(why)
    lines = capsys.readouterr().out.splitlines()
    assert " ".join(lines) == why
    assert all(len(line) <= width for line in lines)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    print_table([("why", why)])
    assert capsys.readouterr().out == f"why  {why}\n"


def test_a_narrow_terminal_gets_a_block_for_each_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(printed(monkeypatch, capsys, 200).splitlines()) == 3
    assert printed(monkeypatch, capsys, 30).splitlines() == [
        "morning",
        "  when    30 7 * * 1-5",
        "          (Europe/Prague)",
        "  state   active",
        "  prompt  What is on today?",
        "",
        "sweep",
        "  when    every 3600 s",
        "  prompt  Tidy",
    ]


def test_a_table_that_is_too_wide_is_wrapped_in_its_widest_column(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(monkeypatch, capsys, 50).splitlines() == [
        "name     when             state   prompt",
        "morning  30 7 * * 1-5     active  What is on",
        "         (Europe/Prague)          today?",
        "sweep    every 3600 s     –       Tidy",
    ]
