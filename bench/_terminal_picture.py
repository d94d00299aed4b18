"""Makes docs/terminal.svg: a real chat with the demo guide, one tool call and one approval.

    python -m bench._terminal_picture

Owns: what is typed, and the picture of what the terminal shows. The picture refers to nothing outside itself.
"""

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from io import StringIO
from itertools import groupby
from pathlib import Path

import pyte
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tests.support.terminals import COLUMNS, Terminal

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "terminal.svg"
PICTURE_BYTES_MAX = 60_000
ROWS_MAX = 200  # Nothing is scrolled away.
READY_TIMEOUT_S = 30.0
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        variables = {"PALYRA_HOME": home, "PALYRA_SERVER__HTTP": address, "PALYRA_SERVER__DETECT": "[]"}
        environment = {**os.environ, **variables}
        for key in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "NO_COLOR"):
            environment.pop(key, None)
        daemon = subprocess.Popen(
            [sys.executable, "-m", "palyra", "serve"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_for(address)
            picture = draw(chat(variables))
        finally:
            daemon.terminate()
            daemon.wait()
    outside = re.findall(r"https?://(?!www\.w3\.org/2000/svg)[^\s\"<]*", picture)
    if len(picture.encode()) > PICTURE_BYTES_MAX or outside:
        raise SystemExit(f"the picture has {len(picture.encode())} bytes, and refers to {outside}")
    PICTURE.write_text(picture, encoding="utf-8")
    print(f"{PICTURE}: {len(picture.encode())} bytes")


def wait_for(address: str) -> None:
    host, _, port = address.partition(":")
    end_s = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < end_s:
        try:
            socket.create_connection((host, int(port)), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the daemon did not start")


def chat(variables: dict[str, str]) -> list[Text]:
    with Terminal(["chat"], variables) as terminal:
        terminal.expect_last_line("›")
        terminal.type("approval\r")
        terminal.expect_screen("/d › a key and Enter")
        terminal.type("a\r")
        terminal.expect("done")
        terminal.expect_last_line("›")
        return painted(terminal.raw)


def painted(written: str) -> list[Text]:
    """What a terminal of many rows shows. pyte knows no faint text, so it becomes grey."""
    screen = pyte.Screen(COLUMNS, ROWS_MAX)
    pyte.Stream(screen).feed(re.sub(r"(\x1b\[(?:0;)?)2m", r"\g<1>90m", written))
    lines = []
    for row in range(ROWS_MAX):
        line = Text()
        cells = [screen.buffer[row][column] for column in range(COLUMNS)]
        for (colour, is_bold), run in groupby(cells, lambda cell: (cell.fg, cell.bold)):
            line.append("".join(cell.data for cell in run), style_of(colour, is_bold))
        line.rstrip()
        lines.append(line)
    while not lines[-1].plain:
        lines.pop()
    return lines


def draw(lines: list[Text]) -> str:
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    for line in lines:
        console.print(line, soft_wrap=True)
    form = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    form = re.sub(r"<!--.*?-->", "", form).replace("Fira Code, monospace", FONTS)
    svg = console.export_svg(title="palyra chat", theme=MONOKAI, code_format=form, unique_id="palyra")
    return re.sub(r"[ \t]+\n", "\n", svg).strip() + "\n"


def style_of(colour: str, is_bold: bool) -> Style:
    """A colour's name as pyte gives it, in rich's words."""
    names = {"default": None, "brown": "yellow", "brightblack": "#8f908a"}
    return Style(color=names.get(colour, colour if colour.isalpha() else f"#{colour}"), bold=is_bold)


if __name__ == "__main__":
    main()
