"""Tables on a terminal: no word is split, however narrow it is."""

import sys

import pytest

from palyra.cli.terminal.tables import print_rows

COLUMNS = ("name", "when", "state", "prompt")
ROWS = (
    ("morning", "30 7 * * 1-5 (Europe/Prague)", "active", "What is on today?"),
    ("sweep", "every 3600 s", "", "Tidy"),
)


def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_rows(COLUMNS, ROWS, "nothing")
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [30, 45, 60, 200])
def test_no_word_is_split(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int) -> None:
    words = printed(monkeypatch, capsys, width)
    for row in ROWS:
        for word in " ".join(row).split():
            assert word in words


def test_a_narrow_terminal_gets_a_block_for_each_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(printed(monkeypatch, capsys, 200).splitlines()) == 3
    narrow = printed(monkeypatch, capsys, 30).splitlines()
    assert len(narrow) == 4 + 1 + 3, "a row has no line for what is not there"
