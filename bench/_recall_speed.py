"""How fast items are taken in and found: a store of many items of one owner. Part of bench.recall."""

import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from bench._chats import make_chat
from palyra.adapters.embedders.bundled import BundledEmbedder
from palyra.core.memory.model import MemoryItem, MemorySource
from tests.support.memories import item, memory_file, query

QUESTIONS_COUNT = 200
SYLLABLES = ("ka", "lo", "mi", "ren", "ta", "vos", "ni", "pel", "dor", "shu", "ga", "bri", "en", "ul")


async def measure_speed(embedder: BundledEmbedder, items_count: int) -> None:
    embedder.load()
    folder = Path(tempfile.mkdtemp(prefix="palyra-bench-"))
    try:
        items, questions = many_items(items_count)
        with memory_file(folder / "journal.db", embedder, embedder) as store:
            began_s = time.perf_counter()
            await store.fill(items)
            rate = items_count / (time.perf_counter() - began_s)
            times_ms, used_ms = [], []
            for text in questions:
                began_s, used_s = time.perf_counter(), time.process_time()
                await store.find(query(text))
                times_ms.append(1000 * (time.perf_counter() - began_s))
                used_ms.append(1000 * (time.process_time() - used_s))
    finally:
        shutil.rmtree(folder)
    times_ms.sort()
    print(f"{items_count:,} items of one owner: taken in at {rate:,.0f} items/s with vectors (wanted >= 2,000)")
    p95 = times_ms[int(len(times_ms) * 0.95)]
    print(
        f"  search: p50 {statistics.median(times_ms):.1f} ms (wanted <= 25), p95 {p95:.1f} ms, {len(questions)} questions"
    )
    print(f"  processor time of a search: p50 {statistics.median(used_ms):.1f} ms; on a busy machine this tells more")


def many_items(count: int) -> tuple[list[MemoryItem], list[str]]:
    """Returns turns of many chats, each with a few rare words of its own, and questions about them."""
    chance = random.Random(7)
    chats = [make_chat(seed) for seed in range(200, 230)]
    turns = [turn for chat in chats for turn in chat.turns]
    names = ["".join(chance.choices(SYLLABLES, k=3)) for _ in range(20_000)]
    items = []
    for number in range(count):
        turn = turns[number % len(turns)]
        conversation = f"{turn.conversation}-{number // len(turns)}"
        source = MemorySource(conversation=conversation, position=turn.position, speaker=turn.speaker, at=turn.at)
        text = f"{turn.text} {chance.choice(names)} {chance.choice(names)}"
        items.append(item(number + 1, text, source))
    asked = [question.text for chat in chats for question in chat.questions]
    questions = [
        f"{chance.choice(asked)} {chance.choice(names) if chance.random() < 0.5 else ''}"
        for _ in range(QUESTIONS_COUNT)
    ]
    return items, questions
