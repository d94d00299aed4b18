"""How long can a stranger hold the event loop? Drives a real engine with long, costly texts and prints the worst.

Each row is one run: a message, a tool's output, arguments or an answer made of what costs most to scan. `held` is the
most CPU time of the loop's thread between two turns of another task; the design allows 50 ms.
Usage: python -m bench.loop [--quick]
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from palyra.adapters.providers.prepared_turns import Turn
from palyra.adapters.providers.scripted import Script
from palyra.adapters.tools.fs_patch import FsPatch
from palyra.adapters.tools.fs_search import FsSearch
from tests.support.asking import ask, calls, finished, says
from tests.support.engines import OWNER, Workshop
from tests.support.long_strangers import COSTLY, MESSAGE_CHARS, OUTPUT_CHARS, Printer, of_length, prints
from tests.support.loop_beats import loop_beats

LIMIT_MS = 50.0
PATCH = "--- a/f.txt\n+++ b/f.txt\n" + "@@ -1,3 +1,3 @@\n a\n-a\n+b\n a\n" * 3_000

Row = tuple[str, Turn, str, str]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    share = 10 if parser.parse_args().quick else 1
    found = [(asyncio.run(_held_ms(row)), row[0]) for row in _rows(share)]
    print(f"{'what is long':44} {'held':>9} {'whole run':>10}")
    for (held_ms, whole_ms), name in sorted(found, reverse=True):
        print(f"{name:44} {held_ms:6.1f} ms {whole_ms:7.0f} ms{'  OVER' if held_ms > LIMIT_MS else ''}")


def _rows(share: int) -> Iterator[Row]:
    for name, text in COSTLY.items():
        long, longer = of_length(text, MESSAGE_CHARS // share), of_length(text, OUTPUT_CHARS // share)
        yield f"output of a tool: {name}", prints(), "go", longer
        yield f"message: {name}", says("Yes."), long, ""
        yield f"arguments: {name}", calls("fs.write", path="a.txt", content=long), "go", ""
        yield f"answer in one piece: {name}", says(long), "go", ""
    yield "arguments: many keys", calls("fs.write", **{f"k{n}": n for n in range(20_000 // share)}), "go", ""
    yield "arguments: a patch of many hunks", calls("fs.patch", patch=PATCH), "go", ""
    yield "arguments: characters that do not show", calls("fs.write", path="a", content="\u202e" * 60_000), "go", ""
    yield "arguments: lines", calls("fs.write", path="a", content="a\n" * 100_000), "go", ""
    yield "message: many references", says("Yes."), "@file:a " * (20_000 // share), ""
    yield "message: markers", says("Yes."), "‹secret:x:" * (15_000 // share), ""


async def _held_ms(row: Row) -> tuple[float, float]:
    _, turn, text, printed = row
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(Path(folder), [Script(turns=(turn, says("Done.")))])
        workshop.tools += [Printer(printed), FsPatch(), FsSearch()]
        (workshop.workspace / "f.txt").write_text("a\n" * 20_000)
        async with workshop.open() as engine, loop_beats() as beats:
            began_s = time.perf_counter()
            record = await engine.runs.start(OWNER, ask(text))
            await finished(engine, record)
            whole_ms = (time.perf_counter() - began_s) * 1000
    return beats.held_s * 1000, whole_ms


if __name__ == "__main__":
    main()
