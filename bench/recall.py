"""How well remembered items are found: words alone, vectors alone and both together, on every set; and how fast.

Each set is put into a store of its own and asked through the same search that the daemon uses. "plain" is FTS5 as it
comes: every word of the question, BM25, nothing else.
Usage: python -m bench.recall [--quick] [--no-speed] [--embedder bundled|minilm]
"""

import argparse
import asyncio
import math
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bench._recall_sets import RecallQuestion, RecallSet, bfcl_memory, chat_sets, has_corpora, vaswani, written_chats
from bench._recall_speed import measure_speed
from palyra.adapters.embedders.bundled import BundledEmbedder
from palyra.adapters.store.sqlite.connection import fetch
from palyra.adapters.store.sqlite.memory_vectors import measure_vectors
from palyra.core.memory.question import plain_words, take_apart
from palyra.ports.embedder import Embedder
from tests.support.memories import NOW_MS, OWNER, MemoryFile, item, memory_file, query

DEPTH = 1_000
CHAT_SEEDS = range(101, 113)  # The weights were chosen on other seeds.
BRANCHES = ("plain", "words", "vectors", "fused")

Find = Callable[[str, int], Awaitable[list[int]]]


class Scores(NamedTuple):
    ndcg: float
    average_precision: float
    any_in_5: float
    share_in_10: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer chats and items, for a check that it still runs")
    parser.add_argument("--no-speed", action="store_true", help="quality alone")
    parser.add_argument("--embedder", choices=("bundled", "minilm"), default="bundled")
    given = parser.parse_args()
    asyncio.run(_measure(given))


async def _measure(given: argparse.Namespace) -> None:
    bundled = BundledEmbedder()
    embedder: Embedder = bundled
    if given.embedder == "minilm":
        from palyra.adapters.embedders.minilm import MiniLmEmbedder

        embedder = MiniLmEmbedder()
    sets = [chat_sets(CHAT_SEEDS[:2] if given.quick else CHAT_SEEDS), [written_chats()]]
    if has_corpora():
        sets += [bfcl_memory(), [vaswani()]]
    print(f"{'set':14}{'branch':10}{'nDCG@10':>9}{'MAP':>8}{'any in 5':>10}{'share in 10':>13}")
    for group in sets:
        for branch, scores in (await measure_group(group, embedder, bundled)).items():
            cells = (
                f"{scores.ndcg:9.3f}{scores.average_precision:8.3f}{scores.any_in_5:10.3f}{scores.share_in_10:13.3f}"
            )
            print(f"{group[0].name:14}{branch:10}{cells}", flush=True)
    if not given.no_speed:
        await measure_speed(bundled, 5_000 if given.quick else 100_000)


async def measure_group(
    group: Sequence[RecallSet],
    embedder: Embedder,
    meanings: BundledEmbedder,
    branches: Sequence[str] = BRANCHES,
) -> dict[str, Scores]:
    """Returns the mean scores of each branch over all questions of the sets."""
    found: dict[str, list[Scores]] = {branch: [] for branch in branches}
    for one in group:
        folder = Path(tempfile.mkdtemp(prefix="palyra-bench-"))
        try:
            with memory_file(folder / "journal.db", embedder, meanings) as store:
                await store.fill(item(number, text, source) for number, (text, source) in enumerate(one.texts, 1))
                ways = _branches(store)
                for branch in branches:
                    depth = DEPTH if one.name == "vaswani" else 10
                    found[branch] += [_score(await ways[branch](asked.text, depth), asked) for asked in one.questions]
        finally:
            shutil.rmtree(folder)
    return {
        branch: Scores(*(sum(part) / len(part) for part in zip(*all_, strict=True))) for branch, all_ in found.items()
    }


def _branches(store: MemoryFile) -> dict[str, Find]:
    async def plain(text: str, limit: int) -> list[int]:
        match = " OR ".join(f'"{word}"' for word in plain_words(text))
        sql = "SELECT rowid FROM memory_words WHERE memory_words MATCH ? ORDER BY bm25(memory_words) LIMIT ?"
        return [number - 1 for (number,) in fetch(store.connection, sql, (match, limit))]

    async def vectors(text: str, limit: int) -> list[int]:
        assert store.embedder is not None
        names = fetch(store.connection, "SELECT DISTINCT word, speaker FROM memory_speakers")
        words = set(plain_words(text))
        asked = take_apart(text, [name for name in names if name[0] in words], NOW_MS)
        vector = (await store.embedder.embed([asked.vector_text], OWNER))[0]
        numbers = [number for (number,) in fetch(store.connection, "SELECT number FROM memory_entries")]
        close = measure_vectors(store.connection, (store.embedder.traits.version, vector), numbers)
        return [number - 1 for number in sorted(close, key=lambda number: -close[number])[:limit]]

    words_only = type(store.search)(store.reads, store.items)

    async def words(text: str, limit: int) -> list[int]:
        return [_place(hit.item.id) for hit in await words_only.search_memory(query(text, limit))]

    async def fused(text: str, limit: int) -> list[int]:
        return [_place(hit.item.id) for hit in await store.find(query(text, limit))]

    return {"plain": plain, "words": words, "vectors": vectors, "fused": fused}


def _place(memory_id: str) -> int:
    return int(memory_id[3:]) - 1


def _score(found: list[int], asked: RecallQuestion) -> Scores:
    hits = [place in asked.answers for place in found]
    gains = sum(1 / math.log2(rank + 2) for rank, hit in enumerate(hits[:10]) if hit)
    ideal = sum(1 / math.log2(rank + 2) for rank in range(min(10, len(asked.answers))))
    precision, seen = 0.0, 0
    for rank, hit in enumerate(hits, 1):
        seen += hit
        precision += seen / rank if hit else 0.0
    count = len(asked.answers)
    return Scores(gains / ideal, precision / count, float(any(hits[:5])), sum(hits[:10]) / count)


if __name__ == "__main__":
    main()
