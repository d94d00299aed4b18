"""A child that takes items in, embeds them and changes the embedder, for as long as it lives. It is killed from outside.

`python -m tests.support.recall_kills PATH` prints a line after each commit. It ends by itself if nobody kills it.
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from palyra.core.ids import MemoryId, Principal
from palyra.core.memory.model import MemorySource
from palyra.ports.embedder import EmbedderTraits
from tests.support.memories import MemoryFile, forget_items, item, memory_file, put_items

ROUNDS_MAX = 400
BATCH = 20


class Counting:
    """Makes vectors without a model, of a version that can be changed."""

    def __init__(self, version: int, width: int = 16) -> None:
        self.traits = EmbedderTraits(version=f"counting-{version}", dimensions=width)

    async def embed(self, texts: Sequence[str], principal: Principal) -> tuple[bytes, ...]:
        import numpy

        rows = [numpy.sin(numpy.arange(1, self.traits.dimensions + 1) * (1 + sum(text.encode()))) for text in texts]
        return tuple((row / numpy.linalg.norm(row)).astype("<f4").tobytes() for row in rows)


async def work(store: MemoryFile) -> None:
    first = 1 + int(store.connection.execute("SELECT coalesce(max(number), 0) FROM memory_items").get or 0)
    for round_number in range(ROUNDS_MAX):
        start = first + round_number * BATCH
        source = MemorySource(conversation="c", position=start, speaker="Greta Berg")
        put_items(store.connection, [item(start + at, f"cat {start + at}", source) for at in range(BATCH)])
        say("put")
        store.embedder = Counting(round_number // 3)
        await store.embed()
        say("embedded")
        forget_items(store.connection, [MemoryId(f"01M{start + at:023d}") for at in range(0, BATCH, 3)])
        say("forgot")


def say(what: str) -> None:
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


def main() -> None:
    with memory_file(Path(sys.argv[1])) as store:
        asyncio.run(work(store))


if __name__ == "__main__":
    main()
